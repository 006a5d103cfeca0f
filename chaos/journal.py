"""The write-ahead journal of faults: what was intended, with all it takes to undo it, and how far it came.

JSON lines, append-only, each append on disk before it returns. An intent is written after ``prepare`` and before
anything is touched; an intent is *open* until a closing step follows. A last line that was torn by a crash is
tolerated, since nothing was done on its behalf. Damage elsewhere is reported, and the rest is still read: a healer
must do what it can. Must not know how an undo is played.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chaos.model import FaultShape, Source, Undo
from chaos.regular import read_regular

JOURNAL_NAME = "journal.jsonl"
"""Name of the journal in a run's directory."""


class JournalError(Exception):
    """The journal cannot be written."""


class Step(StrEnum):
    """How far a fault came."""

    INJECTING = "injecting"
    INJECTED = "injected"
    ACTIVE = "active"
    REVERTING = "reverting"
    REVERTED = "reverted"
    CLEAN = "clean"
    """Closes the intent: there is nothing to undo."""
    FAILED = "failed"
    DIRTY = "dirty"
    """The revert was given up; the intent stays open for a healer."""
    HEALED = "healed"
    """Closes the intent: a healer undid it."""

    @property
    def closes(self) -> bool:
        """Whether nothing is left to undo after this step."""
        return self in (Step.CLEAN, Step.HEALED)


@dataclass(frozen=True, slots=True)
class Intent:
    """What is about to be done, and how to undo it. Instants are seconds since run start."""

    fault_id: int
    kind: str
    shape: FaultShape
    undo: Undo
    source: Source
    planned_s: float
    hold_s: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. ``at_s`` is seconds since run start, None when the writer could not know."""

    seq: int
    at_s: float | None
    fault_id: int
    intent: Intent | None = None
    step: Step | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contents:
    """All that could be read of a journal."""

    entries: tuple[Entry, ...] = ()
    t0_ns: int | None = None
    """CLOCK_MONOTONIC at run start, if the journal says it."""
    torn: bool = False
    """The last line is incomplete: the writer died while writing it."""
    damage: tuple[str, ...] = ()
    """What could not be read, a sentence each."""
    good_bytes: int = 0
    """Length of the part up to the end of the last good line."""

    def open_intents(self) -> tuple[Intent, ...]:
        """Return the intents that no step closed, newest first."""
        open_: dict[int, Intent] = {}
        for entry in self.entries:
            if entry.intent is not None:
                open_[entry.fault_id] = entry.intent
            elif entry.step is not None and entry.step.closes:
                open_.pop(entry.fault_id, None)
        return tuple(reversed(open_.values()))


def open_undos(path: Path) -> tuple[Intent, ...]:
    """Return the intents in this journal that were not closed, newest first; none when there is no journal."""
    return read_journal(path).open_intents()


def read_journal(path: Path) -> Contents:
    """Read what can be read. A journal that does not exist is empty. Raises ``OSError`` when it cannot be read."""
    try:
        raw = read_regular(path)
    except FileNotFoundError:
        return Contents()
    return parse_journal(raw)


def parse_journal(raw: bytes) -> Contents:
    """Parse the bytes of a journal."""
    lines = [part + b"\n" for part in raw.split(b"\n")]
    if lines[-1] == b"\n":
        lines.pop()
    else:
        lines[-1] = lines[-1][:-1]
    entries: list[Entry] = []
    damage: list[str] = []
    t0_ns: int | None = None
    expected, torn = 0, False
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
            seq = int(value["seq"])
            if value["entry"] == "run":
                t0_ns = value["t0_ns"]
            else:
                entries.append(_from_wire(seq, value))
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                torn = True
            else:
                damage.append(f"journal line {number} cannot be read ({type(error).__name__}: {error})")
                expected += 1
            continue
        if seq != expected:
            damage.append(f"journal line {number} has number {seq} where {expected} was due")
        expected = seq + 1
    end = len(raw) - len(lines[-1]) if torn else len(raw)
    return Contents(tuple(entries), t0_ns, torn, tuple(damage), end)


class Journal:
    """The writer. One process writes at a time: the daemon, or after its death a healer."""

    def __init__(self, path: Path, *, t0_ns: int | None = None) -> None:
        """Open or create ``path``; a torn last line is cut off. Raises ``JournalError``."""
        self.path = path
        contents = read_journal(path)
        self._seq = contents.entries[-1].seq + 1 if contents.entries else int(contents.t0_ns is not None)
        self.t0_ns = contents.t0_ns if contents.t0_ns is not None else t0_ns
        try:
            created = not path.exists()
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._mend(contents)
            if created:
                _sync_directory(path.parent)
        except OSError as error:
            raise JournalError(f"cannot open the journal {path}: {error.strerror}") from error
        if self._seq == 0 and t0_ns is not None:
            self._append({"entry": "run", "t0_ns": t0_ns})

    def _mend(self, contents: Contents) -> None:
        """Leave the file ending in a whole line."""
        if contents.torn:
            os.ftruncate(self._fd, contents.good_bytes)
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            _write_all(self._fd, b"\n")
        os.fsync(self._fd)

    def intent(self, intent: Intent, at_s: float | None) -> None:
        """Write what is about to be done. It is on disk on return. Raises ``JournalError``."""
        wire = {
            "entry": "intent",
            "at_s": at_s,
            "fault": intent.fault_id,
            "kind": intent.kind,
            "shape": intent.shape.value,
            "undo": asdict(intent.undo),
            "source": intent.source.value,
            "planned_s": intent.planned_s,
            "hold_s": intent.hold_s,
        }
        self._append(wire)

    def step(self, fault_id: int, step: Step, at_s: float | None, **data: Any) -> None:
        """Write how far a fault came. It is on disk on return. Raises ``JournalError``."""
        self._append({"entry": "step", "at_s": at_s, "fault": fault_id, "step": step.value, "data": data})

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, value: Mapping[str, Any]) -> None:
        line = json.dumps({"seq": self._seq, **value}, separators=(",", ":"), default=_plain).encode() + b"\n"
        try:
            start = os.fstat(self._fd).st_size
            try:
                _write_all(self._fd, line)
                os.fsync(self._fd)
            except OSError:
                os.ftruncate(self._fd, start)  # half a line would make the next one unreadable
                raise
        except OSError as error:
            raise JournalError(f"cannot write the journal {self.path}: {error.strerror}") from error
        self._seq += 1


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _plain(value: object) -> object:
    """Turn a mapping that is no dict into one; json knows only dicts."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} is not JSON; evidence and undos must be")


def _from_wire(seq: int, value: Mapping[str, Any]) -> Entry:
    at_s, fault_id = value["at_s"], int(value["fault"])
    if value["entry"] == "intent":
        intent = Intent(
            fault_id=fault_id,
            kind=value["kind"],
            shape=FaultShape(value["shape"]),
            undo=Undo(**value["undo"]),
            source=Source(value["source"]),
            planned_s=value["planned_s"],
            hold_s=value["hold_s"],
        )
        return Entry(seq, at_s, fault_id, intent=intent)
    return Entry(seq, at_s, fault_id, step=Step(value["step"]), data=value["data"])
