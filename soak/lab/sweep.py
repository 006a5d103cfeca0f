"""Find every process that belongs to a run, prove it, and end it: from the live daemon, the guardian or ``soak heal``.

A process is the run's when one of these holds (all from the kernel, none from a name):

- it is a recorded identity (pid and start time of this boot), in a session that such a process leads, or its descendant;
- its working directory is the lab's, and its environment carries the run's id, or its standard input or output is the
  file that the lab gave to the proxy, or it runs the recorded binary of the proxy, or its session is a recorded one whose
  leader is dead.

Nothing else is ever touched. A lab of its own is disposable, so healing it is ending it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGTERM

from chaos.model import Evidence
from chaos.target import IdentityChangedError, Target
from soak.clock import NS, Clock, SystemClock
from soak.lab.process import RUN_VARIABLE, ProcessRow, living, process_table, signal_process, tree_of
from soak.lab.state import RecordedLab, marker_of, output_of, read_state
from soak.rundir import RunDir

_LIMIT_S = 5.0
_GRACE_S = 1.0
_LOOK_S = 0.05
_LOOKS_TO_BE_SURE = 2


def processes_of(run: RunDir) -> list[ProcessRow]:
    """Return the living processes of the run. Reads all of /proc: not for the event loop."""
    recorded = read_state(run)
    table = process_table()
    spared = _lineage(os.getpid(), table)
    found: dict[int, ProcessRow] = {}
    for identity in recorded.identities.values():
        if (root := living(identity)) is not None:
            found |= {row.pid: row for row in tree_of(root, table)}
    home = os.path.realpath(run.lab)
    for row in table.values():
        if (
            row.alive
            and row.pid not in found
            and _is_at(row.pid, home)
            and _is_marked(row, run, recorded, table)
        ):
            found |= {member.pid: member for member in _family(row, table)}
    return [row for pid, row in sorted(found.items()) if pid not in spared]


def _lineage(pid: int, table: dict[int, ProcessRow]) -> set[int]:
    """Return ourselves and our ancestors, who are never to be ended by a sweep."""
    line: set[int] = set()
    while pid in table and pid not in line:
        line.add(pid)
        pid = table[pid].ppid
    return line


def _link(pid: int, name: str) -> str | None:
    """Return where a link of /proc/PID leads; the kernel adds a word when the file has been removed since."""
    try:
        return str(Path(f"/proc/{pid}/{name}").readlink()).removesuffix(" (deleted)")
    except OSError:
        return None


def _is_at(pid: int, home: str) -> bool:
    there = _link(pid, "cwd")
    return there is not None and (there == home or there.startswith(home + os.sep))


def _is_marked(row: ProcessRow, run: RunDir, recorded: RecordedLab, table: dict[int, ProcessRow]) -> bool:
    with suppress(OSError):
        environment = Path(f"/proc/{row.pid}/environ").read_bytes()
        if f"{RUN_VARIABLE}={run.id}".encode() in environment.split(b"\0"):
            return True
    output = os.path.realpath(output_of(run))
    if _link(row.pid, "fd/0") == os.path.realpath(marker_of(run)) or output in (
        _link(row.pid, "fd/1"),
        _link(row.pid, "fd/2"),
    ):
        return True
    if _link(row.pid, "exe") in recorded.executables:
        return True
    # While a session has a member its number is not given to a new process: without its leader it is still the old one.
    began = {identity["pid"]: identity["started"] for identity in recorded.identities.values()}
    leader = table.get(row.sid)
    return row.sid in began and (leader is None or leader.started == began[row.sid])


def _family(row: ProcessRow, table: dict[int, ProcessRow]) -> Iterable[ProcessRow]:
    yield row
    for child in table.values():
        if child.ppid == row.pid and child.alive:
            yield from _family(child, table)


async def release(run: RunDir, clock: Clock | None = None) -> Evidence:
    """End every process of the run within about 5 s: SIGTERM (and SIGCONT) first, SIGKILL after a second. Idempotent.

    ``ok`` means that two looks in a row found nothing alive.
    """
    clock = clock or SystemClock()
    began = clock.monotonic_ns()
    ended: dict[int, str] = {}
    left: list[ProcessRow] = []
    empty_looks = 0
    while empty_looks < _LOOKS_TO_BE_SURE:
        left = await asyncio.to_thread(processes_of, run)
        empty_looks = 0 if left else empty_looks + 1
        elapsed_s = (clock.monotonic_ns() - began) / NS
        if left and elapsed_s > _LIMIT_S:
            break
        for row in left:
            _end(row, ended, force=elapsed_s > _GRACE_S)
        if empty_looks < _LOOKS_TO_BE_SURE:
            await clock.sleep(_LOOK_S)
    return Evidence(
        ok=not left,
        detail={
            "ended": [{"pid": pid, "by": how} for pid, how in sorted(ended.items())],
            "left": [row.pid for row in left],
        },
        reason=f"{len(left)} processes of the run are still alive after {_LIMIT_S:g} s" if left else "",
    )


def _end(row: ProcessRow, ended: dict[int, str], *, force: bool) -> None:
    """Signal one process, once each way. A suspended one is woken, or it would never act on SIGTERM."""
    number = SIGKILL if force else SIGTERM
    if ended.get(row.pid) == number.name:
        return
    ended[row.pid] = number.name
    with suppress(IdentityChangedError, PermissionError):
        signal_process(row.identity, number)
        signal_process(row.identity, SIGCONT)


class LocalHealable:
    """A local lab opened from its files. It belongs to the run alone, so healing is removing it."""

    disposable = True

    def __init__(self, run: RunDir) -> None:
        self._run = run

    async def release(self) -> Evidence:
        """End every process of the run, by identity."""
        return await release(self._run)

    def target(self) -> Target | None:
        """Return None: there is nothing to play undos against."""
        return None
