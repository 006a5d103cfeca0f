"""Containers and networks as records: what is wished for, and what a look at the engine shows. Knows no SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chaos.target import Identity
from soak.lab.process import exit_words

CPU_PERIOD_US = 100_000
"""The kernel's usual period; a quota of this much is one CPU."""
_SIGNALLED = 128


@dataclass(frozen=True, slots=True)
class Limits:
    """What a container may use, as the engine has it. 0: no limit (``memory_swap``: -1).

    CPUs are given in one of two ways, period and quota or ``nano_cpus``; the engine refuses to change from one to the other.
    """

    cpu_period: int
    cpu_quota: int
    memory: int
    memory_swap: int
    nano_cpus: int = 0

    @property
    def cpus(self) -> float:
        """CPUs, however they were given; 0: all there are."""
        if self.nano_cpus:
            return self.nano_cpus / 1e9
        return self.cpu_quota / (self.cpu_period or CPU_PERIOD_US) if self.cpu_quota > 0 else 0.0

    def tightened(self, cpus: float, memory: int) -> Limits:
        """Return these limits with so many CPUs, and so much memory (with its swap); 0 leaves one as it is."""
        tight = self
        if cpus and self.nano_cpus:
            tight = replace(tight, nano_cpus=round(cpus * 1e9))
        elif cpus:
            period = self.cpu_period or CPU_PERIOD_US
            tight = replace(tight, cpu_period=period, cpu_quota=round(cpus * period))
        return replace(tight, memory=memory, memory_swap=memory) if memory else tight


@dataclass(frozen=True, slots=True)
class End:
    """A container's end of a network."""

    network: str
    """The network's id."""
    address: str
    """The IPv4 address that it has, or will have once it runs."""
    fixed: bool
    """Whether it was asked for: only such a one is got again."""
    aliases: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Container:
    """One look at a container."""

    id: str
    name: str
    image: str
    state: str
    """created, running, paused, restarting, removing, exited or dead."""
    labels: Mapping[str, str]
    started: str = ""
    """When its process was started; another time is another process. Only ``inspect`` knows it, and all that follows."""
    pid: int = 0
    exit_code: int = 0
    oom_killed: bool = False
    ends: Mapping[str, End] = field(default_factory=dict)
    """Its end of each network that it is connected to, by the network's name."""
    limits: Limits = field(default_factory=lambda: Limits(0, 0, 0, 0))

    @property
    def identity(self) -> Identity:
        """Container and start: the same container after a restart is another process."""
        return {"container": self.id, "started": self.started}

    @property
    def addresses(self) -> Mapping[str, str]:
        """Its IPv4 address in each network, by the network's name."""
        return {name: end.address for name, end in self.ends.items()}

    @property
    def how_ended(self) -> str:
        """Say how its main process ended; an engine gives a signal as 128 and its number."""
        if self.oom_killed:
            return "killed for want of memory (OOM)"
        signalled = _SIGNALLED < self.exit_code < 2 * _SIGNALLED
        return exit_words(_SIGNALLED - self.exit_code if signalled else self.exit_code)

    @property
    def alive(self) -> bool:
        """Whether it has a process, suspended or not."""
        return self.state in ("running", "paused")


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container to be made."""

    name: str
    image: str
    argv: Sequence[str]
    """The command with its program; the image's entrypoint is not used."""
    labels: Mapping[str, str]
    network: str | None = None
    address: str | None = None
    """Its fixed IPv4 address there."""
    binds: Mapping[Path, str] = field(default_factory=dict)
    """Directories of this host, by where the container sees them; writable."""
    reads: Sequence[Path] = ()
    """Directories of this host that it sees under the same path and cannot write to."""
    joins: str = ""
    """The container whose network it shares, address and ports included, instead of having one."""
    ports: Mapping[int, int] = field(default_factory=dict)
    """Its TCP ports, by the port of this host that leads there: ``{host: container}``."""
    publish: str = "127.0.0.1"
    """The address of this host on which they are."""
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    user: str = ""
    cpus: float = 0.0
    memory_bytes: int = 0
    open_files: int = 0


@dataclass(frozen=True, slots=True)
class Network:
    """A network of containers."""

    id: str
    name: str
    subnet: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a command in a container."""

    code: int
    output: str


def inspected(found: Mapping[str, Any]) -> Container:
    """Read what the engine says of one container."""
    state, host = found["State"], found["HostConfig"]
    ends: Mapping[str, Any] = found["NetworkSettings"]["Networks"] or {}
    return Container(
        id=found["Id"],
        name=found["Name"].lstrip("/"),
        image=found["Config"]["Image"],
        state=state["Status"],
        labels=found["Config"]["Labels"] or {},
        started=state["StartedAt"],
        pid=state["Pid"],
        exit_code=state["ExitCode"],
        oom_killed=state["OOMKilled"],
        ends={name: _end(end, found["Id"]) for name, end in ends.items()},
        limits=Limits(
            host["CpuPeriod"] or 0,
            max(0, host["CpuQuota"] or 0),  # the engine says -1 where one was lifted
            host["Memory"] or 0,
            host["MemorySwap"] or 0,
            host.get("NanoCpus") or 0,
        ),
    )


def _end(end: Mapping[str, Any], container: str) -> End:
    asked = str((end.get("IPAMConfig") or {}).get("IPv4Address") or "")
    # The engine adds the short id itself each time.
    aliases = tuple(alias for alias in end.get("Aliases") or () if not container.startswith(alias))
    return End(str(end.get("NetworkID") or ""), str(end.get("IPAddress") or asked), bool(asked), aliases)


def network_of(found: Mapping[str, Any]) -> Network:
    """Read what the engine says of one network."""
    pools = found["IPAM"]["Config"] or [{}]
    return Network(found["Id"], found["Name"], str(pools[0].get("Subnet", "")), found["Labels"] or {})
