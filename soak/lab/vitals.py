"""A census of processes by psutil: memory, CPU, open files, how many, how many of an earlier generation, and who.

Processes vanish while they are looked at (each reload ends workers); such a one simply does not count. Reading /proc takes
milliseconds, so the asynchronous door runs it off the event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psutil

from chaos.target import Identity
from soak.lab.process import living, process_table, row_of, tree_of
from soak.model import Member, Vital
from soak.proxies.base import ProcessRole, SeenProcess


@dataclass(frozen=True, slots=True)
class Subject:
    """What to look at: one process by identity; with ``tree``, also its session and all descendants."""

    name: str
    identity: Identity
    tree: bool = False
    role: Callable[[str], ProcessRole] | None = None
    """Tells roles by command line or title; without it nothing counts as old."""
    roles: Callable[[Sequence[SeenProcess]], Mapping[int, ProcessRole]] | None = None
    """Tells the roles of all processes together, for proxies whose processes look alike; instead of ``role``."""
    more: Sequence[Identity] = ()
    """Further processes that belong to it, looked at in the same way."""


@dataclass(frozen=True, slots=True)
class _Reading:
    rss_bytes: int
    cpu_s: float
    fds: int
    role: ProcessRole


def pids_of(subject: Subject) -> list[int]:
    """Return the living processes of a subject; empty when none of its identities still holds."""
    roots = [root for one in (subject.identity, *subject.more) if (root := living(one)) is not None]
    if not subject.tree or not roots:
        return [root.pid for root in roots]
    table = process_table()
    return sorted({row.pid for root in roots for row in tree_of(root, table)})


def look(subject: Subject, at_s: float) -> Vital:
    """Look at one subject now. A dead one is all zeroes. Some milliseconds: not for the event loop."""
    tell = _teller(subject, pids := pids_of(subject))
    found = {pid: r for pid in pids if (r := _read(pid, tell, with_ended=subject.tree)) is not None}
    readings = found.values()
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
        members=_members(pids, found) if subject.role or subject.roles else (),
    )


async def look_at(subjects: list[Subject], at_s: float) -> list[Vital]:
    """Look at several subjects, off the event loop."""
    return await asyncio.to_thread(lambda: [look(subject, at_s) for subject in subjects])


def executables_of(subject: Subject) -> list[str]:
    """Return the files that the subject's own processes run, without the interpreters of wrappers around them."""
    found: set[str] = set()
    tell = _teller(subject, pids := pids_of(subject))
    for pid in pids:
        try:
            process = psutil.Process(pid)
            if tell(process) is not ProcessRole.OTHER:
                found.add(process.exe())
        except psutil.Error:
            continue
    return sorted(found - {""})


def _read(
    pid: int, tell: Callable[[psutil.Process], ProcessRole], *, with_ended: bool = False
) -> _Reading | None:
    """Read one process. ``with_ended`` counts the time of its children that have ended: replaced workers take none along.

    One that has given its memory back is as good as ended, though it is no zombie yet: None, as for one that is gone.
    """
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            rss = process.memory_info().rss
            if not rss:
                return None
            cpu = process.cpu_times()
            cpu_s = cpu.user + cpu.system
            if with_ended:
                cpu_s += cpu.children_user + cpu.children_system
            return _Reading(rss, cpu_s, process.num_fds(), tell(process))
    except psutil.Error:
        return None


def _teller(subject: Subject, pids: Sequence[int]) -> Callable[[psutil.Process], ProcessRole]:
    """Return what tells the role of a process; it may raise ``psutil.Error`` for one that has ended."""
    if (roles := subject.roles) is not None:
        told = roles([seen for pid in pids if (seen := _seen(pid)) is not None])
        return lambda process: told.get(process.pid, ProcessRole.OTHER)
    if (role := subject.role) is not None:
        return lambda process: role(" ".join(process.cmdline()))
    return lambda _process: ProcessRole.OTHER


def _seen(pid: int) -> SeenProcess | None:
    try:
        process = psutil.Process(pid)
        row = row_of(pid)
        return SeenProcess(pid, process.ppid(), tuple(process.cmdline()), row.started if row else 0.0)
    except psutil.Error:
        return None


def _detail(identity: Identity, roles: Mapping[str, int]) -> dict[str, object]:
    return {"pid": identity.get("pid"), "roles": dict(roles)}


def _members(pids: Sequence[int], found: Mapping[int, _Reading]) -> list[Member]:
    """Return who lives. One that could not be read is there all the same, in no role: it is about to end, or is another user's."""
    return [
        Member(pid, row.started, (found[pid].role if pid in found else ProcessRole.OTHER).value)
        for pid in pids
        if (row := row_of(pid)) is not None and row.alive
    ]
