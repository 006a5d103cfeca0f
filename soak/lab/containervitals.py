"""The vitals of a container: CPU and memory as the kernel counts them for all its processes, dead ones too; processes and their roles.

Where its processes can be seen from here (the usual case), they are read from /proc as in a local lab, open files included;
elsewhere the engine names them, and open files are not counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

from soak.lab.cgroup import Counters
from soak.lab.containers import Container
from soak.lab.engine import Engine
from soak.lab.enginewords import EngineError
from soak.lab.process import row_of
from soak.model import Member, Vital
from soak.proxies.base import ProcessRole, ProxyAdapter, SeenProcess, TellsProcesses


async def look_at_container(
    engine: Engine, container: str, name: str, at_s: float, adapter: ProxyAdapter | None = None
) -> Vital:
    """Look at one container now; all zeroes when it does not run or the engine is away. ``adapter`` tells a proxy's processes."""
    try:
        seen = await engine.inspect(container)
        if not seen.alive:
            return nothing(at_s, name)
        counters = await engine.counters(seen)
        processes, files = await asyncio.to_thread(_seen_from_here, counters.pids)
        if not processes:
            processes = list(await engine.top(seen.id))
    except (
        EngineError
    ):  # it ended meanwhile, or the engine is away: faults and events say so, a look does not fail
        return nothing(at_s, name)
    return _vital(seen, counters, files, _members(processes, adapter), subject=name, at_s=at_s)


def nothing(at_s: float, name: str) -> Vital:
    """Return the look at something that does not run."""
    return Vital(at_s=at_s, subject=name, rss_bytes=0, cpu_s=0.0, fds=0, processes=0)


def _seen_from_here(pids: Sequence[int]) -> tuple[list[SeenProcess], int | None]:
    """Return the processes with their open files added up; None for these when they may not be read."""
    processes: list[SeenProcess] = []
    files: int | None = 0
    for pid in pids:
        try:
            process = psutil.Process(pid)
            row = row_of(pid)
            argv, started = tuple(process.cmdline()), row.started if row else 0.0
            processes.append(SeenProcess(pid, process.ppid(), argv, started))
        except psutil.Error:
            continue
        try:
            files = None if files is None else files + process.num_fds()
        except psutil.NoSuchProcess:
            continue
        except psutil.AccessDenied:
            files = None
    return processes, files


def _vital(
    seen: Container,
    counters: Counters,
    files: int | None,
    members: Sequence[Member],
    *,
    subject: str,
    at_s: float,
) -> Vital:
    roles = Counter(member.role for member in members)
    detail: dict[str, Any] = {
        "container": seen.id[:12],
        "roles": dict(roles),
        "oom_kills": counters.oom_kills,
    }
    if files is None:
        detail["fds"] = "not readable"
    return Vital(
        at_s=at_s,
        subject=subject,
        rss_bytes=counters.rss_bytes,
        cpu_s=counters.cpu_s,
        fds=files or 0,
        processes=roles.total(),
        old_processes=roles[ProcessRole.OLD_WORKER.value],
        detail=detail,
        members=[member for member in members if member.started],
    )


def _members(processes: Sequence[SeenProcess], adapter: ProxyAdapter | None) -> list[Member]:
    """Return each process with its role. Where the engine named it, nobody knows its start: 0."""
    told: Mapping[int, ProcessRole] = {}
    if isinstance(adapter, TellsProcesses):
        told = adapter.roles(processes)
    elif adapter is not None:
        told = {one.pid: adapter.role(" ".join(one.argv)) for one in processes}
    return [Member(one.pid, one.started, told.get(one.pid, ProcessRole.OTHER).value) for one in processes]
