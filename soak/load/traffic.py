"""A worker's slice of the plan, as JSON: everything a load worker needs, so that where it runs is not its business."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # origins and load workers have no plan, and start in half the time without what reads one
    from soak.plan import Plan, TrafficClassPlan

STREAM_TIMEOUT_S = 120.0
"""How long the body of a streaming class may take."""


@dataclass(frozen=True, slots=True)
class ClassSpec:
    """One traffic class as the engine sees it. Times in seconds, rate in requests per second over all workers."""

    name: str
    rate: float
    host: str
    """Name to resolve and connect to."""
    port: int
    authority: str
    """Value of the Host header."""
    tls: bool = False
    server_name: str = ""
    connection: str = "reuse"
    method: str = "GET"
    path: str = "/"
    headers: Sequence[tuple[str, str]] = ()
    request_bytes: int = 0
    response_bytes: int | None = None
    check_body: bool = True
    """Compare the answer's checksum with that of the known pattern (or, for an echo, of what was sent)."""
    check_identity: bool = True
    """Require the answer to echo the request id."""
    status: int = 200
    idempotent: bool = True
    protocol: str = "http1"
    connections: int = 16
    """HTTP/2: connections at most; websocket: sockets."""
    streams: int = 16
    """HTTP/2: streams on a connection at most."""
    hosts: int = 0
    """Go round the names r1 ... rN of ``authority``; the answer must name its route."""
    cache_keys: int = 0
    """Draw from so many cacheable objects."""
    spread_sources: bool = False
    """Connect from many addresses of 127.0.0.0/8."""
    streaming: bool = False
    """Latency ends with the first byte; the body may take as long as ``body_timeout_s``."""
    body_timeout_s: float | None = None
    """Of this class alone; None: the slice's."""
    through: str = "http"
    """``l4``: a byte pipe; then TLS is the origin's, and its certificate is no sign of what the proxy serves."""


@dataclass(frozen=True, slots=True)
class LoadSlice:
    """What one worker sends: slots ``k, k+N, ...`` of each class, from ``t0_ns`` for ``seconds``."""

    worker: int
    workers: int
    t0_ns: int
    """CLOCK_MONOTONIC instant of slot 0."""
    seconds: float
    seed: int
    classes: Sequence[ClassSpec]
    arrivals: str = "uniform"
    connect_timeout_s: float = 5.0
    tls_timeout_s: float = 5.0
    response_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    max_in_flight: int = 10_000
    """For this worker, all classes together."""
    max_lag_s: float = 0.010
    coalesce_s: float | None = None
    """How long a due slot may wait for those behind it, so that one wake sends several; None: as the rate suggests."""
    max_age_s: float = 60.0
    idle_timeout_s: float = 20.0
    ca_file: str | None = None
    evidence_per_second: int = 10
    realtime: bool = True
    """Run before ordinary programs where this is allowed."""
    supervised: bool = True
    """Stop sending (slots are missed) when no heartbeat came on stdin for ``dead_man_s``."""
    dead_man_s: float = 3.0
    from_second: int = 0
    """First second to account for. Above 0 the worker replaces one that died: slots due since then are ``missed``."""
    lost: dict[str, int] = field(default_factory=dict)
    """Requests by class that a dead predecessor had in flight; booked as ``client_resource`` in the first window."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> LoadSlice:
        """Read what ``to_json`` wrote."""
        classes = [
            ClassSpec(**{**c, "headers": tuple(tuple(h) for h in c["headers"])}) for c in value["classes"]
        ]
        return cls(**{**value, "classes": classes})


@cache
def _unit() -> bytes:
    """Return the block of which ``pattern`` is made; 8,168 bytes."""
    return b"".join(b"%08x" % ((i * 2654435761) & 0xFFFFFFFF) for i in range(1021))


def pattern(n: int) -> bytes:
    """Return the ``n`` known bytes that an origin answers to ``/bytes/N`` and that requests carry as body.

    Printable, not constant and not periodic in 256, so that a shifted or repeated block changes the checksum.
    """
    unit = _unit()
    return (unit * (n // len(unit) + 1))[:n]


def cache_body(key: str, variant: str, n: int) -> bytes:
    """Return the ``n`` bytes that an origin answers to ``/cache/KEY/bytes/N`` for this ``X-Soak-Variant`` ("" without).

    64 hexadecimal digits that name key and variant, then the pattern from a place that depends on them. Bodies of 16
    bytes and more therefore differ whenever key or variant do: a cache that mixes them up changes the checksum.
    """
    label = sha256(f"{key}\0{variant}".encode()).hexdigest().encode()
    start = int(label[:8], 16) % len(_unit())
    return (label + pattern(start + max(0, n - len(label)))[start:])[:n]


def classes_of(
    plan: Plan, *, host: str, http_port: int, https_port: int, authority: str, tcp_port: int = 0
) -> list[ClassSpec]:
    """Translate the plan's traffic classes for one proxy address."""
    ports = {"http": http_port, "https": https_port, "tls": tcp_port}
    return [
        spec_of(c, plan.rate, host=host, port=ports[scheme_of(c)], authority=authority)
        for c in plan.traffic.classes
    ]


def scheme_of(c: TrafficClassPlan) -> str:
    """Return where a class goes in: ``http``, ``https``, or ``tls`` for the byte pipe."""
    if c.through == "l4":
        return "tls"
    return "https" if c.tls else "http"


def spec_of(c: TrafficClassPlan, rate: float, *, host: str, port: int, authority: str) -> ClassSpec:
    """Translate one class of a plan whose whole rate is ``rate``."""
    return ClassSpec(
        name=c.name,
        rate=rate * c.share,
        host=host,
        port=port,
        authority=authority,
        tls=c.tls,
        server_name=authority,
        connection=c.connection,
        method=c.method,
        path=c.path,
        request_bytes=c.request_bytes,
        response_bytes=c.response_bytes,
        status=c.status,
        idempotent=c.idempotent,
        protocol=c.protocol,
        connections=c.connections,
        streams=c.streams,
        hosts=c.hosts,
        cache_keys=c.cache_keys,
        spread_sources=c.spread_sources,
        streaming=c.streaming,
        body_timeout_s=STREAM_TIMEOUT_S if c.streaming else None,
        through=c.through,
    )
