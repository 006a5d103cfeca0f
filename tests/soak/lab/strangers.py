"""A real nginx and real origins that somebody else than soak runs, as processes with pid files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soak.lab.process import row_of
from soak.lab.rendering import Rendered, render_first
from soak.lab.topology import free_ports
from soak.plan import Plan
from soak.proxies.catalog import adapter
from soak.proxies.companion import companion_output_of

START_S = 30.0


class Strangers:
    """They outlive every run; ``end`` ends them."""

    def __init__(
        self, home: Path, *, backends: int = 2, kind: str = "nginx", shared: bool = True, pipe: bool = False
    ) -> None:
        self.home = home
        http, https, tcp, *ports = free_ports(3 + 2 * backends)
        ports, tls = ports[:backends], ports[backends:] if pipe else []
        varnish = {
            "ports": dict(zip(("cli", "proxy"), free_ports(2), strict=True)),
            "companions": {"hitch": {"pid_file": str(home / "hitch.pid")}},
        }
        self.lab: dict[str, Any] = {
            "kind": "attach",
            "start_timeout": 10,
            "attach": {
                "proxy": {
                    "directory": str(home / "proxy"),
                    "http_port": http,
                    "https_port": https,
                    "pid_file": str(_pid_file(home, kind)),
                    **({"tcp_port": tcp} if pipe else {}),
                    **(varnish if kind == "varnish" else {}),
                },
                "backends": [
                    {
                        "host": "127.0.0.1",
                        "port": port,
                        "pid_file": str(home / f"b{number}.pid"),
                        "start": self._origin(number, port, shared=shared, tls=tls[number - 1 : number]),
                        **({"tls_port": tls[number - 1]} if pipe else {}),
                    }
                    for number, port in enumerate(ports, start=1)
                ],
                "shared": str(home / "origins.shared") if shared else None,
            },
        }
        self.kind = kind
        proxy = {"kind": kind} | (
            {"binary": str(adapter(kind).find_binary(None))} if kind == "varnish" else {}
        )
        self.plan = Plan.model_validate({"lab": self.lab, "proxy": proxy})
        self._started: list[subprocess.Popen[bytes]] = []

    def _origin(self, number: int, port: int, *, shared: bool, tls: list[int]) -> list[str]:
        command = [sys.executable, "-P", "-m", "soak.lab.origin", "--name", f"b{number}", "--port", str(port)]
        command += ["--stay", "--pid-file", str(self.home / f"b{number}.pid")]
        for tls_port in tls:
            command += ["--tls-port", str(tls_port)]
            command += ["--certificate", str(self.directory / "origin.pem")]
            command += ["--key", str(self.directory / "origin.key")]
        together = ["--shared", str(self.home / "origins.shared"), "--row", str(number - 1)]
        return command + (together if shared else [])

    @property
    def directory(self) -> Path:
        return self.home / "proxy"

    def render(self) -> Rendered:
        return render_first(self.plan)

    def start(self) -> None:
        """Render, then start them and wait for their pid files."""
        rendered = self.render()
        program = str(adapter(self.kind).find_binary(None))
        self._proxy = [program, *rendered.proxy[1:]] if self.kind != "varnish" else list(rendered.proxy)
        self._output = rendered.output
        self._spawn_proxy()
        for name, command in rendered.companions.items():
            self.spawn(command, companion_output_of(self.directory, name))
            self.pid_file(name).write_text(f"{self._started[-1].pid}\n")
        assert self.plan.lab.attach is not None
        for one in self.plan.lab.attach.backends:
            self.spawn(one.start)
        for name in ("proxy", *self.names):
            self.pid(name)

    def restart_proxy(self) -> None:
        """Start it again after it has ended."""
        self.pid_file("proxy").unlink(missing_ok=True)
        self._spawn_proxy()
        self.pid("proxy")

    def _spawn_proxy(self) -> None:
        self.spawn(self._proxy, self._output)
        if self.kind != "nginx":  # which writes its own
            self.pid_file("proxy").write_text(f"{self._started[-1].pid}\n")

    def spawn(self, command: Sequence[str], output: Path | None = None) -> None:
        with (output or self.home / "strangers.log").open("ab") as log:
            self._started.append(
                subprocess.Popen(
                    command,
                    cwd=self.home,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    @property
    def names(self) -> list[str]:
        return [f"b{number + 1}" for number in range(len(self.lab["attach"]["backends"]))]

    def pid_file(self, name: str) -> Path:
        return _pid_file(self.home, self.kind) if name == "proxy" else self.home / f"{name}.pid"

    def pid(self, name: str) -> int:
        """Return who its pid file names, once it names somebody."""
        end = time.monotonic() + START_S
        while True:
            text = self.pid_file(name).read_text().strip() if self.pid_file(name).exists() else ""
            if text and row_of(int(text)) is not None:
                return int(text)
            assert time.monotonic() < end, (self.home / "strangers.log").read_text()
            time.sleep(0.02)

    def files(self) -> dict[str, bytes]:
        """Return what soak may change: configuration and certificates, by name."""
        names = ("nginx.conf", "main.vcl", "hitch.conf", "site.pem", "site.key", "site.bundle.pem")
        return {
            name: (self.directory / name).read_bytes() for name in names if (self.directory / name).exists()
        }

    def end(self) -> None:
        """End them all, those that soak started again, too."""
        for name in ("proxy", *self.names):
            path = self.pid_file(name)
            text = path.read_text().strip() if path.exists() else ""
            if text.isdigit() and (row := row_of(int(text))) is not None and row.alive:
                os.kill(row.pid, signal.SIGCONT)
                os.kill(row.pid, signal.SIGTERM)
        for process in self._started:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(timeout=30)


def _pid_file(home: Path, kind: str) -> Path:
    return home / "proxy" / "nginx.pid" if kind == "nginx" else home / "proxy.pid"
