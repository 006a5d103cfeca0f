"""Processes by identity: what /proc shows, signals that cannot hit a stranger, and children that leave last words.

A pid alone proves nothing: it is reused. An identity is a pid with the start time that the kernel keeps for it, counted
since boot, so that a step of the wall clock does not change it (psutil's ``create_time`` follows the wall clock).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from chaos.target import Identity, IdentityChangedError
from soak.errors import LabError
from soak.tasks import spawn

RUN_VARIABLE = "SOAK_RUN"
"""Environment variable that marks every process of a lab with its run's id."""
_TICKS = os.sysconf("SC_CLK_TCK")
_TAIL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One line of the process table. ``started`` is seconds since boot; ``state`` is the kernel's letter."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    state: str
    started: float

    @property
    def alive(self) -> bool:
        """Not yet ended (a zombie has ended; only its parent has not noticed)."""
        return self.state not in "ZX"

    @property
    def suspended(self) -> bool:
        """Stopped by SIGSTOP or held by a tracer."""
        return self.state in "Tt"

    @property
    def identity(self) -> Identity:
        """Proof of being the same process."""
        return {"pid": self.pid, "started": self.started}


def row_of(pid: int) -> ProcessRow | None:
    """Read one process; None when there is none."""
    try:
        # no Path: it interns its parts, and a day of new pids would make that table grow
        with open(f"/proc/{pid}/stat", errors="replace") as file:  # noqa: PTH123
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before it may hold blanks and parentheses
    ppid, pgid, sid = (int(field) for field in fields[1:4])
    return ProcessRow(pid, ppid, pgid, sid, fields[0], int(fields[19]) / _TICKS)


def process_table() -> dict[int, ProcessRow]:
    """Read all processes, by pid. Some milliseconds: not for the event loop."""
    rows = (row_of(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 -- see row_of
    return {row.pid: row for row in rows if row is not None}


def living(identity: Identity) -> ProcessRow | None:
    """Return the process that this identity proves, when it still lives."""
    pid = identity.get("pid")
    row = row_of(pid) if isinstance(pid, int) else None
    if row is None or not row.alive or row.started != identity.get("started"):
        return None
    return row


def signal_process(identity: Identity, number: signal.Signals) -> None:
    """Send a signal to exactly this process. Raises ``IdentityChangedError`` when it is gone or another one.

    The descriptor pins the process between the check and the signal, so a reused pid cannot be hit.
    """
    gone = IdentityChangedError(
        f"the process {dict(identity)} is gone or its pid belongs to another one; {number.name} was not sent"
    )
    pid = identity.get("pid")
    if not isinstance(pid, int):
        raise gone
    try:
        pinned = os.pidfd_open(pid)
    except ProcessLookupError:
        raise gone from None
    try:
        if living(identity) is None:
            raise gone
        signal.pidfd_send_signal(pinned, number)
    except ProcessLookupError:
        raise gone from None
    finally:
        os.close(pinned)


def tree_of(root: ProcessRow, table: Mapping[int, ProcessRow]) -> list[ProcessRow]:
    """Return the root, everything in the session it leads, and all their descendants, that live."""
    members = {root.pid}
    if root.sid == root.pid:
        members |= {row.pid for row in table.values() if row.sid == root.sid}
    children: dict[int, list[int]] = {}
    for row in table.values():
        children.setdefault(row.ppid, []).append(row.pid)
    todo = list(members)
    while todo:
        new = [pid for pid in children.get(todo.pop(), ()) if pid not in members]
        members.update(new)
        todo.extend(new)
    return [table[pid] for pid in sorted(members) if pid in table and table[pid].alive]


def tail(path: Path, *, lines: int = 12) -> str:
    """Return the last lines of a text file; empty when there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.strip().splitlines()[-lines:])


def exit_words(code: int | None) -> str:
    """Say how a process ended: ``exit status 1``, ``SIGKILL``."""
    if code is None:
        return "still running"
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


class Child:
    """A process of the lab that this daemon started: its identity, and whether its end was asked for."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, row: ProcessRow, log: Path) -> None:
        self.name = name
        self.process = process
        self.identity: Identity = row.identity
        self.log = log
        self.expected_to_end = False

    @property
    def alive(self) -> bool:
        """Whether the very process that was started still lives."""
        return living(self.identity) is not None

    async def signal(self, number: signal.Signals) -> None:
        """Send it a signal. Raises ``IdentityChangedError`` when it is gone."""
        signal_process(self.identity, number)

    async def settled(self) -> None:
        """Wait, when it has ended, until the loop has collected it too: until then nobody can say how it ended."""
        if not self.alive:
            await self.process.wait()

    def how(self) -> str:
        """Say how it ended: ``exit status 1``, ``SIGKILL``, ``still running``; ``it ended`` before it is collected."""
        code = self.process.returncode
        return "it ended" if code is None and not self.alive else exit_words(code)

    def end(self) -> dict[str, Any]:
        """Return what the event of its end says of it, but for its words."""
        return {
            "name": self.name,
            "pid": self.process.pid,
            "exit": self.process.returncode,
            "how": self.how(),
        }

    def words(self, *logs: Path) -> str:
        """Return how it ended and what it said last, in its log or in these, for a person."""
        said = "\n".join(filter(None, map(tail, dict.fromkeys(logs or (self.log,)))))
        return f"{self.how()}; it said:\n{said}" if said else f"{self.how()}; it said nothing"


async def start_child(
    name: str,
    argv: Sequence[str],
    *,
    directory: Path,
    run_id: str,
    log: Path,
    stdin: int | IO[bytes],
    stdout: int | None,
    on_end: Callable[[Child], None],
) -> Child:
    """Start a process in its own session, in the lab's directory, marked with the run.

    ``stdout`` None sends it to ``log``, where stderr always goes. ``on_end`` is called once it has ended. Must be called
    on the main thread: the kernel ties a child's parent-death signal to the thread that started it.
    Raises ``LabError`` when it cannot be started or ended at once.
    """
    with log.open("ab") as said:
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=directory,
                env={**os.environ, RUN_VARIABLE: run_id},
                stdin=stdin,
                stdout=said if stdout is None else stdout,
                stderr=said,
                close_fds=True,
                start_new_session=True,
            )
        except OSError as error:
            raise LabError(
                f"{name} could not be started with {argv[0]!r}: {error.strerror or error}"
            ) from error
    row = row_of(process.pid)
    if row is None:
        code = await process.wait()
        raise LabError(f"{name} did not come up: it ended: {exit_words(code)}; it said:\n{tail(log)}")
    child = Child(name, process, row, log)

    async def watch() -> None:
        await process.wait()
        on_end(child)

    spawn(watch(), name=f"watch-{name}")
    return child
