"""Undoes what a dead run left behind, from its journal alone. Used by the guardian and by ``soak heal``.

A lab that belongs to the run alone is removed, and with it every fault. Elsewhere each open undo is played, newest
first, and a look shows that the target is clean; then what was borrowed for the whole run is given back. Idempotent: what
was healed is closed in the journal, so a second heal finds nothing to do. Must work without a daemon, and must not give up
on one undo because another failed.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.bounded import within
from chaos.fault import BlindObserver, Disturbance, Fault, FaultContext, Finding, Transition
from chaos.journal import Contents, Intent, Journal, JournalError, Step, read_journal
from chaos.model import Evidence
from chaos.target import Clock, Healable, Target

NS = 1_000_000_000
TRIES = 3
"""How often an undo, or the removal of a lab, is tried."""
BACKOFF_S = 1.0
TRY_TIMEOUT_S = 15.0
"""How long one try may take."""
LOCK_TIMEOUT_S = 60.0
"""How long to wait for another healer of the same run."""


class MonotonicClock:
    """CLOCK_MONOTONIC in seconds, for a healer: it has no run whose start could be zero."""

    def now(self) -> float:
        """Return seconds of CLOCK_MONOTONIC."""
        return time.monotonic_ns() / NS

    async def sleep(self, seconds: float) -> None:
        """Sleep; can be cancelled."""
        await asyncio.sleep(max(0.0, seconds))


@dataclass(frozen=True, slots=True)
class UndoResult:
    """What became of one open undo."""

    fault_id: int
    kind: str
    target: str
    ok: bool
    reason: str
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HealResult:
    """What a heal did."""

    undos: tuple[UndoResult, ...] = ()
    released: Evidence | None = None
    """What the removal of a disposable lab showed, or what another one gave back; None when it was not asked."""
    problems: tuple[str, ...] = ()
    """What else went wrong: a damaged journal, one that cannot be written."""
    removed: bool = True
    """Whether the lab itself was to go; else it stays, and only what was borrowed of it goes back."""

    @property
    def healed(self) -> tuple[UndoResult, ...]:
        """What was undone."""
        return tuple(undo for undo in self.undos if undo.ok)

    @property
    def failed(self) -> tuple[UndoResult, ...]:
        """What could not be undone."""
        return tuple(undo for undo in self.undos if not undo.ok)

    @property
    def ok(self) -> bool:
        """Whether nothing is left behind. A damaged journal does not matter once the whole lab is gone."""
        released = self.released is not None and self.released.ok
        return not self.failed and released and not (self.problems and not self.removed)

    @property
    def nothing_to_do(self) -> bool:
        """Whether all was clean already."""
        did = self.released is not None and (
            self.released.detail.get("ended") or (not self.removed and self.released.reason)
        )
        return self.ok and not self.undos and not did

    def sentences(self) -> list[str]:
        """Return what was done, for people: one sentence each."""
        if self.nothing_to_do:
            return ["nothing to do: the run left nothing behind", *self.problems]
        lines = [
            f"#{u.fault_id} {u.kind} on {u.target}: {'healed' if u.ok else 'NOT healed'}, {u.reason}"
            for u in self.undos
        ]
        if self.released is not None:
            verb = "removed" if self.removed else "given back"
            what = f"the lab is {'' if self.released.ok else 'NOT '}{verb}"
            lines.append(f"{what}: {self.released.reason}" if self.released.reason else what)
        return [*lines, *self.problems]


async def heal(
    journal_path: Path, healable: Healable, registry: Mapping[str, Fault], *, clock: Clock | None = None
) -> HealResult:
    """Undo everything that this journal has open. Raises ``OSError`` when the journal exists but cannot be read."""
    clock = clock or MonotonicClock()
    async with _only_healer(journal_path, clock):
        if healable.disposable:
            return await _remove(journal_path, healable, clock)
        contents = read_journal(journal_path)
        target = healable.target()
        if target is None:
            raise ValueError("a lab that is not disposable must offer a target to heal")
        undos = [await _undo(intent, target, registry, clock) for intent in contents.open_intents()]
        problems = (*contents.damage, *_close(journal_path, contents, undos))
        return HealResult(tuple(undos), await _release(healable, clock), problems, removed=False)


async def _remove(journal_path: Path, healable: Healable, clock: Clock) -> HealResult:
    """Remove a lab of the run's own, first and whatever the journal says; then close what it has open."""
    released = await _release(healable, clock)
    contents = read_journal(journal_path)
    reason = "the lab was removed" if released.ok else f"the lab could not be removed: {released.reason}"
    undos = [
        UndoResult(
            i.fault_id, i.kind, i.undo.target, released.ok, reason, {"lab": "removed"} if released.ok else {}
        )
        for i in contents.open_intents()
    ]
    return HealResult(tuple(undos), released, (*contents.damage, *_close(journal_path, contents, undos)))


async def _release(healable: Healable, clock: Clock) -> Evidence:
    released = Evidence(ok=False)
    for attempt in range(1, TRIES + 1):
        try:
            released = await within(clock, TRY_TIMEOUT_S, healable.release())
        except TimeoutError:
            released = Evidence(ok=False, reason=f"releasing the lab took longer than {TRY_TIMEOUT_S:g} s")
        except Exception as error:  # noqa: BLE001  (a lab may raise anything; it is tried again, then reported)
            released = Evidence(ok=False, reason=f"releasing the lab: {error or type(error).__name__}")
        if released.ok:
            break
        if attempt < TRIES:
            await clock.sleep(BACKOFF_S * attempt)
    return released


async def _undo(intent: Intent, target: Target, registry: Mapping[str, Fault], clock: Clock) -> UndoResult:
    """Play one undo until a look shows that it is clean, or the tries are used up."""
    fault = registry.get(intent.kind)
    if fault is None:
        return _result(intent, Finding.dirty(f"this version knows no fault {intent.kind!r}"))
    ctx = FaultContext(target, BlindObserver(), clock, lambda: target.generation() + 1, blind=True)
    finding = Finding.dirty("never tried")
    for attempt in range(1, TRIES + 1):
        try:
            finding = await within(clock, TRY_TIMEOUT_S, _play(fault, ctx, intent))
        except TimeoutError:
            finding = Finding.dirty(f"undoing took longer than {TRY_TIMEOUT_S:g} s")
        except Exception as error:  # noqa: BLE001  (whatever one undo raises, the others must be played)
            finding = Finding.dirty(f"undoing: {error or type(error).__name__}")
        if finding.ok:
            break
        if attempt < TRIES:
            await clock.sleep(BACKOFF_S * attempt)
    return _result(intent, finding)


async def _play(fault: Fault, ctx: FaultContext, intent: Intent) -> Finding:
    if isinstance(fault, Transition):
        word = await fault.restore(ctx, intent.undo)
        return (
            Finding.verified(ctx.clock.now(), **word.detail)
            if word.ok
            else Finding.dirty(word.reason, **word.detail)
        )
    assert isinstance(fault, Disturbance)
    await fault.revert(ctx, intent.undo)
    return await fault.verify_clean(ctx, intent.undo)


def _result(intent: Intent, finding: Finding) -> UndoResult:
    reason = "a look shows it as it was" if finding.ok else finding.evidence.reason
    return UndoResult(
        intent.fault_id, intent.kind, intent.undo.target, finding.ok, reason, finding.evidence.detail
    )


def _close(journal_path: Path, contents: Contents, undos: list[UndoResult]) -> list[str]:
    """Journal what became of the open undos; returns what went wrong with that."""
    if not undos:
        return []
    at_s = None if contents.t0_ns is None else (time.monotonic_ns() - contents.t0_ns) / NS
    try:
        with Journal(journal_path) as journal:
            for undo in undos:
                step = Step.HEALED if undo.ok else Step.DIRTY
                journal.step(undo.fault_id, step, at_s, reason=undo.reason, evidence=dict(undo.detail))
    except JournalError as error:
        return [str(error)]
    return []


@asynccontextmanager
async def _only_healer(journal_path: Path, clock: Clock) -> AsyncIterator[None]:
    """Hold a lock beside the journal, so that the guardian and ``soak heal`` do not undo the same thing at once.

    A run directory that cannot be written (or a healer that never ends) must not prevent healing: undos are idempotent.
    """
    try:
        fd = os.open(journal_path.with_name("heal.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        end_s = clock.now() + LOCK_TIMEOUT_S
        while not _locked(fd) and clock.now() < end_s:
            await clock.sleep(0.1)
        yield
    finally:
        os.close(fd)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
