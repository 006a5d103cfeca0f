"""A container engine of the tests' own: one private ``dockerd`` with its own socket, directories and address pool.

It has no default bridge, forwards nothing and adds one rule to iptables for as long as it lives, and leaves nothing on it: no process,
mount, network interface or control group. It goes, too, when the tests are killed.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import docker

_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_START_S = 30.0
_STOP_S = 30.0


def why_not() -> str | None:
    """Say why this machine cannot run an engine for tests; None when it can."""
    for tool, package in (
        ("dockerd", "docker.io"),
        ("iptables", "iptables"),
        ("ip", "iproute2"),
        ("setpriv", "util-linux"),
    ):
        if shutil.which(tool, path=_PATH) is None:
            return f"{tool} is not on PATH; Debian and Ubuntu: apt install {package}"
    return None if os.geteuid() == 0 else "running a container engine for tests needs root"


class Dockerd:
    """One private engine. ``start``, use ``host``, ``stop``."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="soak-dockerd-"))
        self.socket = self.home / "docker.sock"
        self.host = f"unix://{self.socket}"
        self.log = self.home / "dockerd.log"
        self._group = f"soak-{self.home.name}"
        self._pool = (
            f"10.{random.SystemRandom().randrange(200, 250)}.0.0/16"  # another session's engine draws another
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._open = False

    def start(self) -> None:
        """Start it and return once it answers. Raises ``RuntimeError`` with its words."""
        command = ["setpriv", "--pdeathsig", "TERM", "dockerd", "--host", self.host]
        command += ["--data-root", str(self.home / "data"), "--exec-root", str(self.home / "exec")]
        command += ["--pidfile", str(self.home / "dockerd.pid"), "--cgroup-parent", f"/{self._group}"]
        command += [
            "--bridge",
            "none",
            "--iptables=false",
            "--ip6tables=false",
            "--ip-forward=false",
            "--ip-masq=false",
        ]
        command += ["--default-address-pool", f"base={self._pool},size=24", "--log-level", "warn"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PATH": _PATH},
                start_new_session=True,
            )
        self._let_through(wanted=True)
        deadline = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                words = self.log.read_text()[-2000:]
                self.stop()
                raise RuntimeError(f"dockerd did not come up: {words}")
            time.sleep(0.05)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the process and wait; containers, networks and images stay for the next ``start``."""
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.wait(_STOP_S)
        self._process = None

    def client(self) -> docker.APIClient:
        """Return a client of the SDK's: a second pair of eyes, beside soak's own."""
        return docker.APIClient(self.host, version="1.41", timeout=60)

    def stop(self) -> list[str]:
        """End it and remove all that it made. Returns what somebody had left in it: containers, networks."""
        left = self._remove_all()
        try:
            self.end()
        finally:
            self._let_through(wanted=False)
            self._end_shims()
            for mount in reversed(self.mounts()):
                subprocess.run(["umount", "-l", mount], check=False)
            for group in Path("/sys/fs/cgroup").glob(f"**/{self._group}"):
                _remove_group(group)
            shutil.rmtree(self.home, ignore_errors=True)
        return left

    def mounts(self) -> list[str]:
        """Return what is mounted in its directories."""
        rows = (line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines())
        return [row[1] for row in rows if row[1].startswith(f"{self.home}/")]

    def _let_through(self, *, wanted: bool) -> None:
        """Let containers of this engine reach each other where another engine has closed all bridges of the machine."""
        if wanted is not self._open:
            rule = ["FORWARD", "-s", self._pool, "-d", self._pool, "-j", "ACCEPT"]
            subprocess.run(
                ["iptables", "-w", "-I" if wanted else "-D", *rule], check=False, env={"PATH": _PATH}
            )
            self._open = wanted

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as caller:
            if caller.connect_ex(str(self.socket)) != 0:
                return False
        client = docker.APIClient(self.host, version="1.41", timeout=10)
        try:
            return bool(client.ping())
        except (docker.errors.DockerException, OSError):
            return False
        finally:
            client.close()

    def _remove_all(self) -> list[str]:
        if self._process is None or not self._answers():
            return []
        client, left = self.client(), []
        for row in client.containers(all=True):
            left.append(f"container {row['Names'][0]}")
            client.remove_container(row["Id"], force=True, v=True)
        for row in client.networks():
            if row["Name"] not in ("none", "host", "bridge"):
                left.append(f"network {row['Name']}")
                client.remove_network(row["Id"])
        client.close()
        return left

    def _end_shims(self) -> None:
        """End what an engine that was killed leaves: its containerd, the shims of its containers."""
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                words = (directory / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if f"{self.home}/" in words and int(directory.name) != os.getpid():
                os.kill(int(directory.name), signal.SIGKILL)


def _remove_group(group: Path) -> None:
    for inner in sorted(group.glob("**/"), reverse=True):
        try:
            inner.rmdir()
        except OSError:
            continue
