"""A census of processes by psutil: memory, CPU, open files, how many, and how many of an earlier generation.

Processes vanish while they are looked at (each reload ends workers); such a one simply does not count. Reading /proc takes
milliseconds, so the asynchronous door runs it off the event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psutil

from chaos.target import Identity
from soak.lab.process import living, process_table, tree_of
from soak.model import Vital
from soak.proxies.base import ProcessRole


@dataclass(frozen=True, slots=True)
class Subject:
    """What to look at: one process by identity; with ``tree``, also its session and all descendants."""

    name: str
    identity: Identity
    tree: bool = False
    role: Callable[[str], ProcessRole] | None = None
    """Tells roles by command line or title; without it nothing counts as old."""


@dataclass(frozen=True, slots=True)
class _Reading:
    rss_bytes: int
    cpu_s: float
    fds: int
    role: ProcessRole


def pids_of(subject: Subject) -> list[int]:
    """Return the living processes of a subject; empty when its identity no longer holds."""
    root = living(subject.identity)
    if root is None:
        return []
    return [row.pid for row in tree_of(root, process_table())] if subject.tree else [root.pid]


def look(subject: Subject, at_s: float) -> Vital:
    """Look at one subject now. A dead one is all zeroes. Some milliseconds: not for the event loop."""
    readings = [r for pid in pids_of(subject) if (r := _read(pid, subject.role)) is not None]
    roles = Counter(reading.role.value for reading in readings)
    return Vital(
        at_s=at_s,
        subject=subject.name,
        rss_bytes=sum(r.rss_bytes for r in readings),
        cpu_s=sum(r.cpu_s for r in readings),
        fds=sum(r.fds for r in readings),
        processes=len(readings),
        old_processes=roles[ProcessRole.OLD_WORKER.value],
        detail=_detail(subject.identity, roles),
    )


async def look_at(subjects: list[Subject], at_s: float) -> list[Vital]:
    """Look at several subjects, off the event loop."""
    return await asyncio.to_thread(lambda: [look(subject, at_s) for subject in subjects])


def executables_of(subject: Subject) -> list[str]:
    """Return the files that the subject's own processes run, without the interpreters of wrappers around them."""
    found: set[str] = set()
    for pid in pids_of(subject):
        try:
            process = psutil.Process(pid)
            role = _role(process, subject.role)
            if role is not ProcessRole.OTHER:
                found.add(process.exe())
        except psutil.Error:
            continue
    return sorted(found - {""})


def _read(pid: int, role: Callable[[str], ProcessRole] | None) -> _Reading | None:
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            cpu = process.cpu_times()
            return _Reading(
                process.memory_info().rss, cpu.user + cpu.system, process.num_fds(), _role(process, role)
            )
    except psutil.Error:
        return None


def _role(process: psutil.Process, role: Callable[[str], ProcessRole] | None) -> ProcessRole:
    return ProcessRole.OTHER if role is None else role(" ".join(process.cmdline()))


def _detail(identity: Identity, roles: Mapping[str, int]) -> dict[str, object]:
    return {"pid": identity.get("pid"), "roles": dict(roles)}
