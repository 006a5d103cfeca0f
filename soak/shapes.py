"""The traffic shapes that people benchmark proxies with, by name: what ``shape: h2`` in a plan and ``--traffic h2`` stand for.

Each is a set of fields of a traffic class in the plan; a plan may change any of them. Pure data: imports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]

SHAPES: Mapping[str, Fields] = {
    "single": {"tls": False, "path": "/single/bytes/1024"},
    "balance": {"tls": False},
    "tls-reused": {},
    "tls-new": {"connection": "new"},
    "tls-resumed": {"connection": "resume"},
    "churn": {"tls": False, "connection": "new", "spread_sources": True},
    "slow": {"path": "/delay/100/bytes/1024"},
    "many-routes": {"tls": False, "hosts": 1000},
    "large-100k": {"path": "/bytes/102400", "response_bytes": 102_400},
    "large-1m": {"path": "/bytes/1048576", "response_bytes": 1_048_576},
    "post": {"method": "POST", "path": "/echo", "request_bytes": 4096, "response_bytes": 4096},
    "h2": {"protocol": "h2", "connections": 16, "streams": 16},
    "cache-mixed": {"tls": False, "path": "/cache", "cache_keys": 2000, "response_bytes": 8192},
    "websocket": {
        "protocol": "websocket",
        "path": "/ws",
        "connections": 100,
        "request_bytes": 64,
        "response_bytes": 64,
    },
    "l4": {"through": "l4"},
    "stream": {
        "path": "/drip/30000/bytes/65536",
        "response_bytes": 65_536,
        "connection": "new",
        "streaming": True,
    },
}
"""Fields of the plan's traffic class, by shape."""

SUMMARIES: Mapping[str, str] = {
    "single": "Kept connections to one backend.",
    "balance": "Kept connections over all backends; the distribution is reported.",
    "tls-reused": "TLS on kept connections.",
    "tls-new": "A full TLS handshake for each request; the handshake is part of the latency.",
    "tls-resumed": "A new connection for each request that resumes the TLS session; a resumption that fails is an outcome.",
    "churn": "A new plain connection for each request, from many loopback addresses.",
    "slow": "The backend answers after 100 ms.",
    "many-routes": "A thousand host names with a route each.",
    "large-100k": "Answers of 100 KiB, checked by checksum without being kept.",
    "large-1m": "Answers of 1 MiB, checked by checksum without being kept.",
    "post": "POST with a 4 KiB body, echoed; each delivered at most once.",
    "h2": "HTTP/2: 16 connections with 16 streams each.",
    "cache-mixed": "Hits, misses, short lives, revalidation, variants and what must not be stored.",
    "websocket": "Long-lived sockets that echo a message for each slot; a cut is an outcome with its age.",
    "l4": "TLS on kept connections through a byte pipe: the handshake is with the backend, the proxy reads nothing.",
    "stream": "Downloads dribbled over 30 s; a cut is an outcome with its age.",
}
"""One sentence for each shape."""
