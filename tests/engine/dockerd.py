"""A container engine of the tests' own: one private ``dockerd`` with its own socket, directories and address pool.

It has no default bridge, forwards nothing and adds one rule to iptables for as long as it lives, and leaves nothing on it: no process,
mount, network interface or control group, also when it was killed and what ran in its containers lives on. It goes, too, when the
tests are killed; what it cannot take along then, the next tests do (``remove_orphans``).
"""

import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import docker

_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_START_S = 30.0
_STOP_S = 30.0
_END_S = 10.0
_PREFIX, _OWNER = "soak-dockerd-", "owner"


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

    def __init__(self, home: Path | None = None, pool: str | None = None) -> None:
        """Make a new one, or take over what is left in ``home`` of one whose owner is dead."""
        self.home = home or Path(tempfile.mkdtemp(prefix=_PREFIX))
        self.socket = self.home / "docker.sock"
        self.host = f"unix://{self.socket}"
        self.log = self.home / "dockerd.log"
        self._group = f"soak-{self.home.name}"
        # another session's engine draws another
        self._pool = pool or f"10.{random.SystemRandom().randrange(200, 250)}.0.0/16"
        self._process: subprocess.Popen[bytes] | None = None
        self._open = pool is not None
        self._lock = None if home else self._claim()

    def start(self) -> None:
        """Start it and return once it answers. Raises ``RuntimeError`` with its words."""
        command = ["setpriv", "--pdeathsig", "TERM", "dockerd", "--host", self.host]
        command += ["--data-root", str(self.home / "data"), "--exec-root", str(self.home / "exec")]
        command += ["--pidfile", str(self.home / "dockerd.pid"), "--cgroup-parent", f"/{self._group}"]
        command += ["--exec-opt", "native.cgroupdriver=cgroupfs"]  # systemd's knows no such parent
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
        """End it and remove all that it made, in whatever state it is. Returns what somebody had left in it: containers, networks.

        Its processes, too, if they do not end when killed.
        """
        left: list[str] = []
        try:
            left += self._remove_all()
            self.end()
        finally:
            self._let_through(wanted=False)
            left += [f"process {pid}" for pid in self._end_processes()]
            for mount in reversed(self.mounts()):
                subprocess.run(["umount", "-l", mount], check=False)
            for link in self.links():
                subprocess.run(["ip", "link", "delete", link], check=False, env={"PATH": _PATH})
            for group in self.groups():
                _remove_group(group)
            shutil.rmtree(self.home, ignore_errors=True)
            if self._lock is not None:
                self._lock.close()
        return left

    def processes(self) -> list[int]:
        """Return the ids of its processes: its own, its containerd and shims, and all that run in its containers."""
        inside = {
            int(pid)
            for group in self.groups()
            for each in _within(group)
            for pid in _text(each / "cgroup.procs").split()
        }
        own = {int(p.name) for p in Path("/proc").glob("[0-9]*") if f"{self.home}/" in _text(p / "cmdline")}
        return sorted((inside | own) - {0, os.getpid()})  # 0 is one that this namespace has no number for

    def groups(self) -> list[Path]:
        """Return its control group in each hierarchy of this machine."""
        rows = (line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines())
        places = [Path(row[1], self._group) for row in rows if row[2] in ("cgroup", "cgroup2")]
        return [place for place in places if place.is_dir()]

    def links(self) -> list[str]:
        """Return the bridges of its networks after what is plugged into them. Which are its own stands in its store."""
        with suppress(OSError):
            store = (self.home / "data/network/files/local-kv.db").read_bytes()
            own = [p for p in Path("/sys/class/net").glob("br-*") if p.name[3:].encode() in store]
            return [p.name for bridge in own for p in (*bridge.glob("brif/*"), bridge)]
        return []

    def mounts(self) -> list[str]:
        """Return what is mounted in its directories."""
        rows = (line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines())
        return [row[1] for row in rows if row[1].startswith(f"{self.home}/")]

    def _claim(self) -> TextIO:
        """Take a lock for as long as this process lives: whoever finds it free knows that nobody will stop this engine."""
        draft = self.home / f".{_OWNER}"
        lock = draft.open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(self._pool)
        lock.flush()
        draft.rename(self.home / _OWNER)
        return lock

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

    def _end_processes(self) -> list[int]:
        """Kill what an engine leaves that was killed itself, until nothing is left. Returns what does not end."""
        deadline = time.monotonic() + _END_S
        with suppress(subprocess.TimeoutExpired):
            self.end(signal.SIGKILL)
        while (pids := self.processes()) and time.monotonic() < deadline:
            for group in self.groups():
                for each in _within(group):
                    _thaw(each)
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        return pids


def remove_orphans() -> None:
    """Remove what is left of the engines of tests that were killed."""
    for owner in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_OWNER}"):
        with suppress(BlockingIOError, FileNotFoundError), owner.open() as file:  # its tests are alive; gone
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Dockerd(owner.parent, file.read()).stop()


def _within(group: Path) -> Iterator[Path]:
    """Return a group and all below it, the innermost first; empty when it is gone."""
    for directory, _, _ in os.walk(group, topdown=False):
        yield Path(directory)


def _thaw(group: Path) -> None:
    """Let a paused group run: cgroup v1 kills nothing that is frozen."""
    with suppress(OSError):
        (group / "freezer.state").write_text("THAWED")


def _text(path: Path) -> str:
    """Return a file of /proc or a control group; empty when what it tells of is gone."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _remove_group(group: Path) -> None:
    for inner in _within(group):
        with suppress(OSError):
            inner.rmdir()
