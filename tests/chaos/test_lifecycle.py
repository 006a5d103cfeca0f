"""One instance through its life: order, timeouts, cancellation at every instant, and reverts that fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chaos.journal import JournalError, open_undos
from chaos.model import FaultOutcome, FaultRecord
from chaos.target import BackendState, TargetError
from tests.chaos.harness import Rig

ALL_RUNNING = {BackendState.RUNNING}


async def test_traffic_is_stamped_before_the_target_is_looked_at_and_the_intent_written_before_it_is_touched(
    rig: Rig,
):
    """Scope, prepare, intent on disk, inject: in this order."""
    seen: dict[str, object] = {}

    async def at_stop() -> None:
        seen["steps"] = rig.steps()
        seen["scopes"] = list(rig.scopes.log)
        seen["open"] = [i.kind for i in open_undos(rig.path)]

    rig.target.plan("backend_stop", at_stop)
    await rig.run("backend-down")
    assert seen == {"steps": ["intent", "injecting"], "scopes": [("fault", 1)], "open": ["backend-down"]}


async def test_scopes_follow_the_fault(rig: Rig):
    """Requests are stamped fault, recovery, done; the recovery begins with the revert."""
    await rig.run("backend-down")
    assert [what for what, _ in rig.scopes.log if what != "recovery"] == ["fault", "done"]
    assert rig.scopes.log[1] == ("recovery", 1)


async def test_the_journal_tells_the_whole_life(rig: Rig):
    """Each step is in the journal, and the last one closes the intent."""
    await rig.run("backend-down")
    expected = ["intent", "injecting", "injected", "active", "reverting", "reverted", "clean"]
    assert expected == rig.steps()
    assert open_undos(rig.path) == ()


async def test_the_hold_counts_from_the_injection(rig: Rig):
    """A fault is reverted its hold after it was injected, however long its effect took to show."""
    record = await rig.run("backend-down", hold_s=10)
    assert record.injected_s is not None
    assert record.reverted_s is not None
    assert record.reverted_s - record.injected_s == pytest.approx(10.0)


async def test_recovery_is_judged_from_both_edges(rig: Rig):
    """Traffic may be disturbed by the injection and by the revert; the watch is told both."""
    record = await rig.run("backend-down", hold_s=10)
    assert rig.recovery.edges == [(record.injected_s, record.reverted_s)]
    assert record.recovery_s == 0.5


async def test_traffic_that_never_recovers_is_recorded_as_unknown(rig: Rig):
    """No recovery within the time leaves it None, with an event; the fault itself was verified."""
    rig.recovery.after_s = None
    record = await rig.run("backend-down")
    assert (record.recovered_s, record.outcome) == (None, FaultOutcome.VERIFIED)
    assert "fault.not_recovered" in rig.event_names()


async def test_a_failed_preparation_touches_nothing(rig: Rig):
    """When prepare fails nothing is injected, nothing is journaled, and the reason is told."""
    rig.target.plan("proxy_identity", TargetError("the proxy has no pid"))
    record = await rig.run("reload")
    assert (record.outcome, record.reason) == (FaultOutcome.FAILED, "prepare: the proxy has no pid")
    assert rig.steps() == []
    assert rig.scopes.log[-1] == ("done", 1)


async def test_a_failed_injection_is_reverted_all_the_same(rig: Rig):
    """An injection that raised half way may have touched something, so it is undone."""

    async def half() -> None:
        rig.target.states["b1"] = BackendState.STOPPED
        raise TargetError("it went half way")

    rig.target.plan("backend_stop", half)
    record = await rig.run("backend-down", target="b1")
    assert (record.outcome, record.reason) == (FaultOutcome.FAILED, "inject: it went half way")
    assert set(rig.target.states.values()) == ALL_RUNNING
    assert rig.steps()[-1] == "clean"


async def test_an_injection_that_stands_still_is_cut_and_reverted(rig: Rig):
    """A step has 15 s; then it is cancelled, the fault failed and undone."""
    rig.target.plan("backend_stop", asyncio.Event().wait)  # type: ignore[arg-type]  # never ends; its result is unused
    record = await rig.run("backend-down")
    assert record.reason == "inject did not finish within 15 s"
    assert rig.steps()[-1] == "clean"


async def test_load_workers_that_cannot_be_told_prevent_the_fault(rig: Rig):
    """A fault that traffic would not be stamped with is not injected."""
    rig.scopes.fails = True
    record = await rig.run("backend-down")
    assert record.outcome is FaultOutcome.FAILED
    assert record.reason == "the load workers: no load worker answers"
    assert not any(call.startswith("backend_stop") for call in rig.target.calls)
    assert "scopes.failed" in rig.event_names()


async def test_without_a_journal_nothing_is_touched(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    """When the intent cannot be written (a full disk), the fault does not begin."""

    def full(*_: object) -> None:
        raise JournalError("cannot write the journal: No space left on device")

    monkeypatch.setattr(rig.journal, "intent", full)
    record = await rig.run("backend-down")
    assert record.outcome is FaultOutcome.FAILED
    assert "No space left on device; nothing is touched without it" in record.reason
    assert not any(call.startswith("backend_stop") for call in rig.target.calls)


async def test_a_journal_that_fails_later_does_not_stop_the_undoing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    """Once the intent is on disk, steps that cannot be written are events, and the fault is undone."""

    def full(*_: object, **__: object) -> None:
        raise JournalError("cannot write the journal: No space left on device")

    monkeypatch.setattr(rig.journal, "step", full)
    record = await rig.run("backend-down")
    assert record.outcome is FaultOutcome.VERIFIED
    assert set(rig.target.states.values()) == ALL_RUNNING
    assert "journal.failed" in rig.event_names()


async def test_a_revert_that_fails_once_is_tried_again(rig: Rig):
    """One failed try is an event, not a dirty run."""
    rig.target.plan("backend_start", TargetError("address already in use"))
    record = await rig.run("backend-down")
    assert record.outcome is FaultOutcome.VERIFIED
    assert [data["reason"] for name, data in rig.events if name == "fault.revert_failed"] == [
        "revert: address already in use"
    ]


async def test_a_revert_that_claims_success_without_effect_is_tried_again(rig: Rig):
    """Not the revert's return but a look at the target decides."""

    async def dies_again() -> None:
        rig.target.states["b1"] = BackendState.STOPPED

    rig.target.plan("backend_start")
    calls = 0
    start = rig.target.backend_start

    async def starts_and_dies(name: str) -> object:
        nonlocal calls
        calls += 1
        identity = await start(name)
        if calls == 1:
            await dies_again()
        return identity

    rig.target.backend_start = starts_and_dies  # type: ignore[method-assign,assignment]  # a lab that lies once
    record = await rig.run("backend-down", target="b1")
    assert (calls, record.outcome) == (2, FaultOutcome.VERIFIED)


async def test_a_revert_that_keeps_failing_makes_the_run_dirty(rig: Rig):
    """After three tries the fault is dirty, the intent stays open, traffic stays stamped, nothing more is granted."""
    rig.target.plan("backend_start", *[TargetError("address already in use")] * 3)
    record = await rig.run("backend-down", target="b1")
    assert record.outcome is FaultOutcome.DIRTY
    assert record.reason == "revert: address already in use (3 tries)"
    assert rig.steps()[-1] == "dirty"
    assert [i.fault_id for i in open_undos(rig.path)] == [1]
    assert rig.dirty == ["#1 backend-down on b1: revert: address already in use"]
    assert ("done", 1) not in rig.scopes.log
    refused = await rig.run("reload")
    assert refused.outcome is FaultOutcome.SKIPPED
    assert refused.reason.startswith("the run is dirty: #1 backend-down on b1")


async def test_a_revert_that_stands_still_is_bounded(rig: Rig):
    """Each try has 15 s, so a lab that hangs makes the run dirty within about a minute."""
    forever = asyncio.Event().wait
    rig.target.plan("backend_start", forever, forever, forever)  # type: ignore[arg-type]  # its result is unused
    record = await rig.run("backend-down", hold_s=5)
    assert record.outcome is FaultOutcome.DIRTY
    assert record.reason == "revert did not finish within 15 s (3 tries)"
    assert rig.clock.now() < 60


CANCEL_AT = [0.0, 0.05, 0.15, 0.5, 2.0, 9.9, 10.0, 10.1, 10.4, 12.0]


@pytest.mark.parametrize("at_s", CANCEL_AT)
@pytest.mark.parametrize("kind", ["backend-down", "backend-hang", "backend-kill"])
async def test_a_fault_that_is_cancelled_at_any_instant_is_undone_first(rig: Rig, kind: str, at_s: float):
    """Cancellation, and a second and third one while it is being undone, never skip the revert."""

    async def slow() -> None:
        await rig.clock.sleep(1.0)

    rig.target.plan("backend_start", slow)
    rig.target.plan("backend_resume", slow)
    task = asyncio.ensure_future(rig.runner.run(rig.wish(kind, 10.0, "b1")))
    await rig.clock.advance(at_s)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await rig.clock.drive(task)
    assert set(rig.target.states.values()) == ALL_RUNNING
    assert open_undos(rig.path) == ()
    assert rig.records[-1].finished
    assert rig.runner.active == ()


@pytest.mark.parametrize("turns", range(40))
async def test_cancellation_at_every_turn_of_the_loop_is_safe(tmp_path: Path, turns: int):
    """Wherever the task happens to wait, cancelling it leaves no backend down and no intent open."""
    rig = Rig(tmp_path)
    task = asyncio.ensure_future(rig.runner.run(rig.wish("backend-down", 1.0, "b1")))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rig.clock.drive(task)
    assert set(rig.target.states.values()) == ALL_RUNNING
    assert open_undos(rig.path) == ()
    rig.journal.close()


@pytest.mark.parametrize("turns", range(0, 60, 3))
async def test_cancelling_every_task_as_the_end_of_the_loop_does_is_safe(tmp_path: Path, turns: int):
    """``asyncio.run`` cancels all tasks at its end, those that undo included; the undoing begins again and ends."""
    rig = Rig(tmp_path)
    task = asyncio.ensure_future(rig.runner.run(rig.wish("backend-down", 1.0, "b1")))
    me = asyncio.current_task()
    if turns >= 30:
        await rig.clock.advance(1.0)
    for _ in range(turns % 30):
        await asyncio.sleep(0)
    for other in asyncio.all_tasks():
        if other is not me:
            other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rig.clock.drive(task)
    assert set(rig.target.states.values()) == ALL_RUNNING
    assert open_undos(rig.path) == ()
    rig.journal.close()


@pytest.mark.parametrize("at_s", [0.0, 0.1, 0.25, 0.5])
async def test_a_cancelled_reload_is_restored_or_was_seen(rig: Rig, at_s: float):
    """A transition that is cancelled before its effect was seen goes back to the last good state."""
    rig.observer.delay_s = 0.4
    task = asyncio.ensure_future(rig.runner.run(rig.wish("reload")))
    await rig.clock.advance(at_s)
    seen_before = rig.runner.active[0].active_s is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rig.clock.drive(task)
    assert seen_before != ("restore_proxy" in rig.target.calls)
    assert open_undos(rig.path) == ()


async def test_a_fault_that_was_cancelled_before_its_effect_is_not_verified(rig: Rig):
    """Undone cleanly is not the same as having taken effect."""
    task = asyncio.ensure_future(rig.runner.run(rig.wish("backend-down", 10.0, "b1")))
    await rig.clock.advance(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rig.clock.drive(task)
    assert rig.records[-1].outcome is FaultOutcome.INCONCLUSIVE
    assert rig.records[-1].reason == "it was ended before its effect could be seen"


async def test_records_that_cannot_be_stored_do_not_stop_the_undoing(tmp_path: Path):
    """A sink that raises at each step is raised at the end, when the backend runs again."""
    rig = Rig(tmp_path)

    def full(_: FaultRecord) -> None:
        raise OSError("disk full")

    rig.runner._sink = full
    with pytest.raises(ExceptionGroup, match="fault #1 backend-down ended, but its records did not"):
        await rig.run("backend-down")
    assert set(rig.target.states.values()) == ALL_RUNNING
    assert open_undos(rig.path) == ()
    rig.journal.close()


async def test_a_recovery_watch_that_fails_is_evidence_and_not_an_outcome(rig: Rig):
    """The fault was verified; that its recovery is unknown, and why, is in the evidence."""

    async def broken(*_: object) -> object:
        raise RuntimeError("no windows")

    rig.recovery.recovered = broken  # type: ignore[method-assign,assignment]  # a watch that is broken
    record = await rig.run("backend-down")
    assert (record.outcome, record.recovered_s) == (FaultOutcome.VERIFIED, None)
    assert record.evidence["recovery"] == {"ok": False, "reason": "recovery watch: no windows"}
