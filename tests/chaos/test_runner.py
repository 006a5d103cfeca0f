"""Wishes in, records out: followers, skips, the guard, and the end of the run. When a wish may begin is test_admission.py."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest

from chaos.journal import open_undos
from chaos.model import FaultOutcome, FaultRecord, FaultRequest, Source
from chaos.target import BackendState, TargetError
from tests.chaos.harness import Rig


async def test_a_follower_gets_the_lifecycle_of_its_own_fault_only(rig: Rig):
    """``soak inject`` prints injected, active, reverted, recovered of what it asked for."""
    mine: list[FaultRecord] = []
    task = rig.runner.submit(rig.wish("backend-down", 5.0, "b1"), follow=mine.append)
    other = rig.start("reload")
    await rig.clock.drive(task)
    await rig.clock.drive(other)
    assert {r.kind for r in mine} == {"backend-down"}
    known = [
        sum(s is not None for s in (r.injected_s, r.active_s, r.reverted_s, r.recovered_s)) for r in mine
    ]
    assert known == [1, 2, 3, 4, 4]
    assert [r.finished for r in mine] == [False, False, False, False, True]


async def test_events_name_the_fault_and_its_instants(rig: Rig):
    """Each event carries id, kind, target, source and what is known so far."""
    await rig.run("backend-down", 5.0, "b2")
    names = [name for name in rig.event_names() if name.startswith("fault.")]
    assert names == ["fault.injected", "fault.active", "fault.reverted", "fault.recovered", "fault.finished"]
    finished = rig.events[-1][1]
    assert {
        "fault": 1,
        "kind": "backend-down",
        "target": "b2",
        "source": "inject",
    }.items() <= finished.items()
    assert finished["outcome"] == "verified"
    assert finished["reverted_s"] == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("kind", "target", "reason"),
    [
        ("backend-dwon", None, "there is no fault 'backend-dwon'; did you mean 'backend-down'?"),
        ("backend-down", "paris", "backend-down has no target 'paris'; known: b1, b2, b3"),
        ("reload", "prxy", "reload has no target 'prxy'; did you mean 'proxy'?"),
    ],
)
async def test_what_is_not_known_is_skipped_with_the_nearest_name(
    rig: Rig, kind: str, target: str | None, reason: str
):
    """A typo is told with what was probably meant."""
    record = await rig.run(kind, target=target)
    assert (record.outcome, record.reason) == (FaultOutcome.SKIPPED, reason)


async def test_an_injection_without_a_length_holds_the_default(rig: Rig):
    """``soak inject backend-down`` without ``--for`` holds 30 s; a transition never holds."""
    record = await rig.run("backend-down", 0.0)
    assert record.reverted_s == pytest.approx(30.0)


async def test_a_scheduled_fault_is_journaled_with_its_source(rig: Rig):
    """The journal tells the schedule and hand-made injections apart."""
    request = FaultRequest("backend-down", Source.SCHEDULE, 0.0, 5.0, "b1")
    task = rig.runner.submit(request)
    await rig.clock.advance(1)
    assert [(i.source, i.hold_s) for i in open_undos(rig.path)] == [(Source.SCHEDULE, 5.0)]
    await rig.clock.drive(task)


async def test_a_misfire_is_a_record(rig: Rig):
    """What the scheduler could not start in time is recorded with its reason and an id of its own."""
    request = FaultRequest("reload", Source.SCHEDULE, 300.0)
    record = rig.runner.record_skipped(request, "it was due at 300 s and the daemon stood still until 340 s")
    assert (record.id, record.outcome, record.planned_s) == (1, FaultOutcome.SKIPPED, 300.0)
    assert rig.records == [record]
    assert rig.event_names() == ["fault.skipped"]


async def test_stop_ends_holds_and_returns_when_all_is_healed(rig: Rig):
    """A stop in the middle of a hold reverts at once, waits for recovery, and skips what waited."""
    active = rig.start("backend-down", 1000.0, "b1")
    waiting = rig.start("reload")
    await rig.clock.advance(3)
    await rig.clock.drive(rig.runner.stop())
    assert active.result().outcome is FaultOutcome.VERIFIED
    assert active.result().reverted_s == pytest.approx(3.0)
    assert active.result().recovered_s is not None
    assert (waiting.result().outcome, waiting.result().reason) == (
        FaultOutcome.SKIPPED,
        "the run is stopping",
    )
    assert (await rig.run("reload")).reason == "the run is stopping"


async def test_a_hurried_stop_cuts_the_watch_but_not_the_heal(rig: Rig):
    """A second Ctrl-C skips waiting for recovery; the backend runs again all the same."""
    active = rig.start("backend-down", 1000.0, "b1")
    await rig.clock.advance(3)
    stop = asyncio.ensure_future(rig.runner.stop())
    await rig.clock.advance(0.5)
    before_s = rig.clock.now()
    await rig.clock.drive(rig.runner.stop(hurry=True))
    await rig.clock.drive(stop)
    assert rig.clock.now() == before_s
    assert rig.target.states["b1"] is BackendState.RUNNING
    assert active.result().evidence["recovery"]["reason"] == "the end of the run cut the watch short"
    assert open_undos(rig.path) == ()


async def test_a_hurried_stop_does_not_wait_for_a_backend_to_return_to_rotation(rig: Rig):
    """While hurrying, a clean process is enough."""
    rig.observer.out_of_rotation.add("b1")
    active = rig.start("backend-down", 1000.0, "b1")
    await rig.clock.advance(3)
    await rig.clock.drive(rig.runner.stop(hurry=True))
    assert active.result().evidence["clean"]["traffic"] == "not observed"
    assert rig.clock.now() == pytest.approx(3.0)


async def test_a_stop_before_anything_was_touched_leaves_it_untouched(rig: Rig):
    """A fault that was only being prepared is skipped."""

    async def slow() -> None:
        await rig.clock.sleep(1.0)

    rig.target.plan("proxy_identity", slow)
    task = rig.start("noop")
    await rig.clock.advance(0.5)
    await rig.clock.drive(rig.runner.stop())
    assert task.result().outcome is FaultOutcome.SKIPPED
    assert task.result().reason == "the run was told to heal before anything was touched"
    assert rig.steps() == []


async def test_the_guard_heals_all_and_stops_chaos(rig: Rig):
    """When the proxy fails outside every fault, active faults are reverted and no other begins."""
    active = rig.start("backend-down", 1000.0, "b1")
    await rig.clock.advance(2)
    for _ in range(3):
        rig.runner.feed_guard(1000, 600)
    await rig.clock.advance(5)
    assert rig.target.states["b1"] is BackendState.RUNNING
    assert active.done()
    refused = await rig.run("reload")
    assert refused.outcome is FaultOutcome.SKIPPED
    assert refused.reason.startswith("60% of requests failed outside every fault")
    assert rig.runner.guarded in refused.reason
    assert rig.event_names().count("guard.tripped") == 1


async def test_a_dirty_fault_ends_the_others(rig: Rig):
    """When one revert is given up, what else is active is healed at once."""
    rig.target.plan("backend_start", *[TargetError("address already in use")] * 3)
    first = rig.start("backend-down", 5.0, "b1", overlap=True)
    second = rig.start("backend-hang", 1000.0, "b2", overlap=True)
    await rig.clock.drive(first)
    assert (await rig.clock.drive(second)).outcome is FaultOutcome.VERIFIED
    assert rig.clock.now() < 30
    assert "run.dirty" in rig.event_names()


async def test_generations_are_never_used_twice(rig: Rig):
    """A generation that was refused or restored is not offered again, so that its sight cannot be mistaken."""
    rig.target.reload_ignored = True
    await rig.run("reload")
    rig.target.reload_ignored = False
    await rig.run("reload")
    assert [c for c in rig.target.calls if c.startswith("apply")] == [
        "apply_generation 2",
        "apply_generation 3",
    ]


async def test_active_shows_what_is_under_way(rig: Rig):
    """The live view reads the records of active faults."""
    task = rig.start("backend-down", 5.0, "b1")
    await rig.clock.advance(1)
    assert [(r.id, r.kind, r.active_s is not None) for r in rig.runner.active] == [(1, "backend-down", True)]
    await rig.clock.drive(task)
    assert rig.runner.active == ()


async def test_a_crash_of_a_submitted_fault_is_told(rig: Rig):
    """A task that nobody awaits does not die in silence."""

    def full(_: object) -> None:
        raise OSError("disk full")

    rig.runner._sink = full
    task = rig.start("reload")
    with pytest.raises(ExceptionGroup):
        await rig.clock.drive(task)
    assert "fault.crashed" in rig.event_names()


async def test_a_day_of_faults_leaves_nothing_behind_in_memory(rig: Rig):
    """A fault every few minutes for a day, and wishes that are skipped: what is kept of each ends with it."""

    async def faults(count: int) -> None:
        for n in range(count):
            await rig.run("backend-down" if n % 3 else "reload", 1.0)
            await rig.run("backend-down", 1.0, target=f"paris-{n}")
            kept: tuple[list[Any], ...] = (rig.records, rig.events, rig.scopes.log, rig.recovery.edges)
            for one in (*kept, rig.target.calls):
                one.clear()

    tracemalloc.start()
    try:
        await faults(30)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        await faults(100)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert rig.runner.active == ()
    assert grown < 100 * 300, (
        f"{grown} bytes after 100 faults: a record with its evidence has more than 1,000"
    )
