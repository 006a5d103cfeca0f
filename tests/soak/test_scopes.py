"""Scopes: stamped before anything is touched, numbered upwards, steady again when nothing explains anything."""

from __future__ import annotations

from soak.clock import RunClock
from soak.model import Phase, Scope
from soak.scopes import ScopeBook
from tests.fakes import FakeClock


async def test_a_fault_and_its_recovery_make_three_scopes():
    """fault -> recovery -> steady, each recorded before the workers are told."""
    told: list[tuple[str, Scope]] = []

    async def announce(scope: Scope) -> None:
        told.append(("announced", scope))

    clock = FakeClock(4.0)
    book = ScopeBook(RunClock(clock, 0), record=lambda s: told.append(("recorded", s)), announce=announce)
    await book.fault(7)
    await book.recovery(7)
    await book.done(7)
    assert [
        ("recorded", 0, Phase.STEADY, ()),
        ("recorded", 1, Phase.FAULT, (7,)),
        ("announced", 1, Phase.FAULT, (7,)),
        ("recorded", 2, Phase.RECOVERY, (7,)),
        ("announced", 2, Phase.RECOVERY, (7,)),
        ("recorded", 3, Phase.STEADY, ()),
        ("announced", 3, Phase.STEADY, ()),
    ] == [(what, s.id, s.phase, s.faults) for what, s in told]
    assert book.current.start_s == 4.0


async def test_two_faults_at_once_are_both_in_the_scope_and_the_worse_phase_wins():
    """A fault beside a recovery is phase fault, and both explain what happens."""

    async def announce(scope: Scope) -> None:
        del scope

    book = ScopeBook(RunClock(FakeClock(), 0), record=lambda _: None, announce=announce)
    await book.fault(1)
    await book.recovery(1)
    await book.fault(2)
    assert (Phase.FAULT, (1, 2)) == (book.current.phase, book.current.faults)
    await book.done(2)
    assert (Phase.RECOVERY, (1,)) == (book.current.phase, book.current.faults)
