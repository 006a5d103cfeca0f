"""What the kernel counts for a container: CPU, memory, OOM kills, processes; cgroup v1, v2, and both at once (hybrid).

Read from the files of the container's own control group, so that the CPU of workers that have ended stays counted and a look
costs some hundred microseconds. The group is found by a process in it, for every engine names its groups in its own way.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_NS = 1e9
_US = 1e6


@dataclass(frozen=True, slots=True)
class Counters:
    """One look at a container."""

    cpu_s: float
    """CPU time since the container's start, of processes that have ended, too."""
    rss_bytes: int
    """Anonymous memory: what its processes hold themselves, without the page cache."""
    oom_kills: int
    """Processes that the kernel has killed for want of memory since the container's start."""
    throttled_s: float = 0.0
    """How long its threads were held back by its quota of CPU since its start, added up."""
    pids: Sequence[int] = ()
    """Its processes, as this host numbers them; empty when they cannot be seen from here."""


def read_counters(pid: int, container: str, proc: Path = Path("/proc")) -> Counters | None:
    """Read the counters of the group that this process is in; None when it cannot be seen from here.

    ``container`` is the container's id: a group whose path does not name it belongs to somebody else (another host's or
    another namespace's process of that number).
    """
    try:
        groups = _groups_of(pid, proc)
        if not any(container in path for path in groups.values()):
            return None
        mounts = _mounts(proc)
    except OSError:
        return None

    def directory(controller: str) -> Path | None:
        if controller not in groups or controller not in mounts:
            return None
        root, where = mounts[controller]
        inside = os.path.relpath(groups[controller], root)
        return None if inside.startswith("..") or container not in groups[controller] else where / inside

    unified, accounting, memory = directory(""), directory("cpuacct"), directory("memory")
    throttled_s = _throttled_s(unified, directory("cpu"))
    cpu_s = _cpu_s(unified, accounting)
    rss = _rss_bytes(unified, memory)
    if cpu_s is None or rss is None:
        return None
    return Counters(cpu_s, rss, _oom_kills(unified, memory), throttled_s, _pids(unified, memory))


def _groups_of(pid: int, proc: Path) -> Mapping[str, str]:
    """Return the process' group in each hierarchy, by controller; the unified one is called ""."""
    groups: dict[str, str] = {}
    for line in (proc / str(pid) / "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        groups |= dict.fromkeys(names.split(","), path)
    return groups


def _mounts(proc: Path) -> Mapping[str, tuple[str, Path]]:
    """Return where each hierarchy is mounted, by controller: the group that the mount shows as its root, and the place."""
    found: dict[str, tuple[str, Path]] = {}
    for line in (proc / "self" / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, where = before.split(" ")[3:5]
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            found.setdefault("", (root, Path(where)))
        elif kind == "cgroup":
            for name in options.split(" ")[-1].split(","):
                found.setdefault(name, (root, Path(where)))
    return found


def _table(path: Path | None) -> Mapping[str, int]:
    """Return a file of ``name number`` lines; empty when it is not there."""
    if path is None:
        return {}
    with suppress(OSError, ValueError):
        rows = (line.split() for line in path.read_text().splitlines())
        return {row[0]: int(row[1]) for row in rows if len(row) == 2}
    return {}


def _cpu_s(unified: Path | None, accounting: Path | None) -> float | None:
    if accounting is not None:
        with suppress(OSError, ValueError):
            return int((accounting / "cpuacct.usage").read_text()) / _NS
    usage = _table(unified and unified / "cpu.stat").get("usage_usec")
    return None if usage is None else usage / _US


def _rss_bytes(unified: Path | None, memory: Path | None) -> int | None:
    if memory is not None:
        return _table(memory / "memory.stat").get("total_rss")
    return _table(unified and unified / "memory.stat").get("anon")


def _oom_kills(unified: Path | None, memory: Path | None) -> int:
    if memory is not None:
        return _table(memory / "memory.oom_control").get("oom_kill", 0)
    return _table(unified and unified / "memory.events").get("oom_kill", 0)


def _throttled_s(unified: Path | None, cpu: Path | None) -> float:
    if cpu is not None:
        return _table(cpu / "cpu.stat").get("throttled_time", 0) / _NS
    return _table(unified and unified / "cpu.stat").get("throttled_usec", 0) / _US


def _pids(unified: Path | None, memory: Path | None) -> Sequence[int]:
    group = memory or unified
    if group is not None:
        with suppress(OSError, ValueError):
            return tuple(map(int, (group / "cgroup.procs").read_text().split()))
    return ()
