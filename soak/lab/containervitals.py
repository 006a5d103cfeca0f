"""The vitals of a container: CPU and memory as the kernel counts them for all its processes, dead ones too; processes and their roles.

Where its processes can be seen from here (the usual case), they are read from /proc as in a local lab, open files included;
elsewhere the engine names them, and open files are not counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from soak.lab.cgroup import Counters
from soak.lab.containers import Container
from soak.lab.engine import Engine
from soak.lab.enginewords import EngineError
from soak.model import Vital
from soak.proxies.base import ProcessRole, ProxyAdapter, SeenProcess, TellsProcesses


async def look_at_container(
    engine: Engine,
    container: str,
    name: str,
    at_s: float,
    adapter: ProxyAdapter | None = None,
    *,
    more: Sequence[str] = (),
) -> Vital:
    """Look at one container now, and at ``more`` that count with it; all zeroes when one does not run or the engine is away.

    ``adapter`` tells a proxy's processes.
    """
    looks: list[_Look] = []
    try:
        for one in (container, *more):
            if (look := await _look_at(engine, one)) is None:
                return nothing(at_s, name)
            looks.append(look)
    except (
        EngineError
    ):  # it ended meanwhile, or the engine is away: faults and events say so, a look does not fail
        return nothing(at_s, name)
    return _vital(looks, adapter, subject=name, at_s=at_s)


@dataclass(frozen=True, slots=True)
class _Look:
    """What was seen of one container."""

    container: Container
    counters: Counters
    processes: Sequence[SeenProcess]
    files: int | None


async def _look_at(engine: Engine, container: str) -> _Look | None:
    seen = await engine.inspect(container)
    if not seen.alive:
        return None
    counters = await engine.counters(seen)
    processes, files = await asyncio.to_thread(_seen_from_here, counters.pids)
    if not processes:
        processes = list(await engine.top(seen.id))
    return _Look(seen, counters, processes, files)


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
            seen = SeenProcess(pid, process.ppid(), tuple(process.cmdline()), process.create_time())
            processes.append(seen)
        except psutil.Error:
            continue
        try:
            files = None if files is None else files + process.num_fds()
        except psutil.NoSuchProcess:
            continue
        except psutil.AccessDenied:
            files = None
    return processes, files


def _vital(looks: Sequence[_Look], adapter: ProxyAdapter | None, *, subject: str, at_s: float) -> Vital:
    roles = _roles([process for look in looks for process in look.processes], adapter)
    files = [look.files for look in looks]
    detail: dict[str, Any] = {
        "container": looks[0].container.id[:12],
        "roles": dict(roles),
        "oom_kills": sum(look.counters.oom_kills for look in looks),
    }
    if None in files:
        detail["fds"] = "not readable"
    return Vital(
        at_s=at_s,
        subject=subject,
        rss_bytes=sum(look.counters.rss_bytes for look in looks),
        cpu_s=sum(look.counters.cpu_s for look in looks),
        fds=0 if None in files else sum(filter(None, files)),
        processes=roles.total(),
        old_processes=roles[ProcessRole.OLD_WORKER.value],
        detail=detail,
    )


def _roles(processes: Sequence[SeenProcess], adapter: ProxyAdapter | None) -> Counter[str]:
    if adapter is None:
        return Counter({ProcessRole.OTHER.value: len(processes)})
    if isinstance(adapter, TellsProcesses):
        told = adapter.roles(processes)
        return Counter(told.get(one.pid, ProcessRole.OTHER).value for one in processes)
    return Counter(adapter.role(" ".join(one.argv)).value for one in processes)
