"""Envoy's listeners beside those of the site, and their clusters: a byte pipe, and the page of its own metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from soak.proxies.base import BackendAddress, ProxyModel

_TYPE = "type.googleapis.com/envoy."
HEALTH_CHECKS: Sequence[Mapping[str, Any]] = [
    {
        "timeout": "0.4s",
        "interval": "0.5s",
        "no_traffic_interval": "0.5s",
        "unhealthy_threshold": 2,
        "healthy_threshold": 1,
        "http_health_check": {"path": "/bytes/1"},
    }
]
"""How every cluster of backends is looked at."""
_LIMITS = ("max_connections", "max_pending_requests", "max_requests", "max_retries")
NO_BREAKERS: Mapping[str, Any] = {"thresholds": [dict.fromkeys(_LIMITS, 100_000)]}
"""By default Envoy turns away what is more than 1,024 at a time."""
_PIPES = "pipes"
_ADMIN = "admin"


def pipe_listener(model: ProxyModel) -> dict[str, Any]:
    """Return the listener that passes bytes on to the backends' TLS; a refused connection is tried on others."""
    passed_on = {
        "name": "envoy.filters.network.tcp_proxy",
        "typed_config": {
            "@type": _TYPE + "extensions.filters.network.tcp_proxy.v3.TcpProxy",
            "stat_prefix": "pipe",
            "cluster": _PIPES,
            "idle_timeout": "75s",
            "max_connect_attempts": 3,
        },
    }
    return {
        "name": "pipe",
        "address": _address(model.listen_host, model.tcp_port),
        "filter_chains": [{"filters": [passed_on]}],
    }


def pipe_cluster(backends: Sequence[BackendAddress]) -> dict[str, Any]:
    """Return the backends by their TLS ports; their health is asked for on the plain ones."""
    endpoints = [
        {
            "endpoint": {
                "address": _address(b.host, b.tls_port),
                "health_check_config": {"port_value": b.port},
            }
        }
        for b in backends
    ]
    return {
        "name": _PIPES,
        "type": "STATIC",
        "connect_timeout": "1s",
        "lb_policy": "ROUND_ROBIN",
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "circuit_breakers": NO_BREAKERS,
        "load_assignment": {"cluster_name": _PIPES, "endpoints": [{"lb_endpoints": endpoints}]},
        "health_checks": HEALTH_CHECKS,
    }


def metrics_listener(model: ProxyModel, port: int) -> dict[str, Any]:
    """Return a listener for one page of the admin side: whoever reaches it can read counters and change nothing."""
    page = {
        "match": {
            "path": "/stats/prometheus",
            "headers": [{"name": ":method", "string_match": {"exact": "GET"}}],
        },
        "route": {"cluster": _ADMIN, "timeout": "5s"},
    }
    manager = {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": _TYPE + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "metrics",
            "route_config": {
                "name": "metrics",
                "virtual_hosts": [{"name": "metrics", "domains": ["*"], "routes": [page]}],
            },
            "http_filters": [
                {
                    "name": "envoy.filters.http.router",
                    "typed_config": {"@type": _TYPE + "extensions.filters.http.router.v3.Router"},
                }
            ],
        },
    }
    return {
        "name": "metrics",
        "address": _address(model.listen_host, port),
        "filter_chains": [{"filters": [manager]}],
    }


def admin_cluster(path: str) -> dict[str, Any]:
    """Return the admin side as a cluster of one."""
    endpoint = {"endpoint": {"address": {"pipe": {"path": path}}}}
    return {
        "name": _ADMIN,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": _ADMIN, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _address(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}
