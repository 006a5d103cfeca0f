"""compose.yaml brought up by Debian's docker-compose in the tests' own engine, with stand-ins for every image but soak's own."""

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from soak.lab.topology import free_ports
from tests.conftest import find_tool
from tests.engine.dockerd import Dockerd
from tests.engine.images import PLACES, ROOT, Rootfs, binary_of, import_rootfs
from tests.engine.soakimage import build_soak

NGINX_IMAGE = "soak-test-nginx-bash:local"
PROMETHEUS_IMAGE = "soak-test-prometheus:local"
PROJECT = "soak-compose-test"
_PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Composed:
    """One project. ``up``, use, ``down``."""

    def __init__(self, dockerd: Dockerd, compose: str, **environment: str) -> None:
        soak_port, prometheus_port = free_ports(2)
        self.prometheus = f"http://127.0.0.1:{prometheus_port}"
        self.soak_url = f"http://127.0.0.1:{soak_port}"
        self._compose = compose
        self._environment = {
            **os.environ,
            "DOCKER_HOST": dockerd.host,
            "DOCKER_SOCK": str(dockerd.socket),
            "DOCKER_GID": str(dockerd.socket.stat().st_gid),
            "COMPOSE_PROJECT_NAME": PROJECT,
            "SOAK_IMAGE": build_soak(dockerd),
            "NGINX_IMAGE": import_nginx(dockerd),
            "PROMETHEUS_IMAGE": import_prometheus(dockerd),
            "SOAK_PORT": str(soak_port),
            "PROMETHEUS_PORT": str(prometheus_port),
            **environment,
        }

    def run(self, *words: str, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
        """Run a command of Compose to its end."""
        return subprocess.run(
            [self._compose, "--ansi", "never", *words],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def up(self) -> None:
        """Start all but Grafana."""
        done = self.run("up", "-d", "soak", "nginx", "prometheus")
        assert 0 == done.returncode, done.stderr

    def soak(self, *words: str, timeout: float = 60) -> "subprocess.CompletedProcess[str]":
        """Run a soak command inside, as a person does."""
        return self.run("exec", "-T", "soak", "soak", *words, timeout=timeout)

    def down(self) -> None:
        """Remove all of it."""
        done = self.run("down", "--volumes", "--timeout", "30")
        assert 0 == done.returncode, done.stderr

    def query(self, text: str) -> list[dict[str, Any]]:
        """Ask Prometheus, from outside."""
        with urllib.request.urlopen(f"{self.prometheus}/api/v1/query?query={quote(text)}", timeout=30) as got:
            answer: dict[str, Any] = json.load(got)
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def until(self, look: Callable[[], Any], seconds: float, what: str) -> Any:
        """Look until there is something; fails with what the services said."""
        end = time.monotonic() + seconds
        while not (found := look()):
            if time.monotonic() > end:
                said = self.run("logs", "--tail", "20").stdout + self.run("ps").stdout
                raise AssertionError(f"{what} did not happen within {seconds:g} s:\n{said}")
            time.sleep(0.5)
        return found


def import_nginx(engine: Dockerd) -> str:
    """Import nginx with the shell that its health check in compose.yaml uses."""

    def fill(rootfs: Rootfs) -> None:
        rootfs.program(binary_of("nginx"), PLACES["nginx"])
        rootfs.program(Path("/bin/bash"), "bin/bash")

    return import_rootfs(engine, NGINX_IMAGE, fill, {"PATH": _PATH})


def import_prometheus(engine: Dockerd) -> str:
    """Import Debian's Prometheus and promtool, started as in the official image."""

    def fill(rootfs: Rootfs) -> None:
        for name in ("prometheus", "promtool"):
            rootfs.program(Path(str(find_tool(name))), f"bin/{name}")

    return import_rootfs(engine, PROMETHEUS_IMAGE, fill, {"PATH": _PATH}, entrypoint=["/bin/prometheus"])
