"""The chaos of a run on a fake lab and a fake clock: the timeline runs, and however the run ends, all is healed first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from chaos.faults.catalog import registry
from chaos.journal import JournalError, Step, open_undos
from chaos.model import FaultOutcome, FaultRequest, Source
from chaos.target import BackendState
from soak.clock import RunClock
from soak.lab.base import Lab
from soak.plan import Plan
from soak.runchaos import RunChaos
from tests.fakes import FakeClock, FakeObserver, FakeRecovery, FakeScopes, FakeTarget
from tests.soak.fakelab import Told

PLAN = Plan.model_validate(
    {
        "length": "10m",
        "chaos": {"series": [{"fault": "backend-down", "every": "2m", "hold": "30s"}]},
    }
)


class Desk:
    """Chaos and what came of it. APScheduler's own alarms are wall-clock appointments, so due items are rung by hand."""

    def __init__(self, tmp_path, plan: Plan = PLAN) -> None:
        self.clock = FakeClock()
        self.target = FakeTarget(self.clock)
        self.told = Told()
        self.journal = tmp_path / "journal.jsonl"
        self.hurry = asyncio.Event()
        self.chaos = RunChaos(
            plan,
            cast("Lab", self.target),
            self.clock,
            RunClock(self.clock, self.clock.monotonic_ns()),
            journal=self.journal,
            observer=FakeObserver(self.target, self.clock),
            recovery=FakeRecovery(self.clock),
            scopes=FakeScopes(),
            tell=self.told,
        )

    def down(self, hold_s: float = 1000.0) -> None:
        self.chaos.runner.submit(FaultRequest("backend-down", Source.INJECT, 0.0, hold_s, "b1"))


@pytest.fixture
async def desk(tmp_path) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.chaos.close()


async def test_the_timeline_is_the_plans(desk):
    """The next fault is known from the beginning; kinds are those that there are."""
    planned = desk.chaos.next

    assert "backend-down" == planned.request.kind
    assert planned.request.kind in registry()
    assert desk.journal.exists()


async def test_what_the_run_has_no_room_for_is_a_record_from_the_beginning(tmp_path):
    """A fault that could not end before the run does is skipped with the reason, not forgotten."""
    series = {"fault": "backend-down", "every": "9s", "hold": "3s"}
    desk = Desk(tmp_path, Plan.model_validate({"length": 20, "chaos": {"series": [series]}}))
    desk.chaos.begin()
    await desk.clock.drive(desk.chaos.heal(desk.hurry))
    desk.chaos.close()
    (record, *_) = desk.told.faults

    assert (FaultOutcome.SKIPPED, "backend-down") == (record.outcome, record.kind)
    assert "too late" in record.reason


async def test_what_is_due_is_run_and_told(desk):
    """A record at every step, the last one finished."""
    record = await desk.clock.drive(desk.chaos._due(desk.chaos.next))

    assert (FaultOutcome.VERIFIED, Source.SCHEDULE) == (record.outcome, record.source)
    assert record == desk.told.faults[-1]
    assert "fault.finished" in desk.told.names


async def test_a_misfire_is_a_record_with_its_reason(desk):
    """Never silence."""
    desk.chaos._misfired(desk.chaos.next, 12.34)
    (record,) = desk.told.faults

    assert FaultOutcome.SKIPPED is record.outcome
    assert "it was 12.3 s late, the daemon did not run in time; it was not made up for" == record.reason


async def test_the_end_heals_and_waits_for_traffic(desk):
    """What was active is undone at once, its recovery is known, and nothing may begin any more."""
    desk.chaos.begin()
    desk.down()
    await desk.clock.advance(3)
    await desk.clock.drive(desk.chaos.heal(desk.hurry))
    record = desk.told.faults[-1]

    assert BackendState.RUNNING is desk.target.states["b1"]
    assert record.recovered_s is not None
    assert () == open_undos(desk.journal)
    late = await desk.chaos.runner.run(FaultRequest("reload", Source.INJECT, 4.0))
    assert "the run is stopping" == late.reason


async def test_in_a_hurry_traffic_is_not_waited_for(desk):
    """Whether the wish comes before the end or while it heals; healing itself is never skipped."""
    desk.chaos.begin()
    desk.down()
    await desk.clock.advance(3)
    healing = asyncio.ensure_future(desk.chaos.heal(desk.hurry))
    await desk.clock.advance(0.5)
    assert not healing.done()
    desk.hurry.set()
    before_s = desk.clock.now()
    await desk.clock.drive(healing)

    assert before_s == desk.clock.now()
    assert BackendState.RUNNING is desk.target.states["b1"]
    assert desk.told.faults[-1].recovered_s is None


async def test_whoever_stops_waiting_leaves_no_task_behind(desk):
    """A cancelled end takes its own tasks along; the fault goes on to be undone."""
    before = asyncio.all_tasks()
    desk.chaos.begin()
    desk.down()
    await desk.clock.advance(3)
    healing = asyncio.ensure_future(desk.chaos.heal(desk.hurry))
    await desk.clock.advance(0.1)
    healing.cancel()
    await asyncio.wait({healing})
    left = {task.get_name() for task in asyncio.all_tasks() - before}

    assert healing.cancelled()
    assert left.isdisjoint({"heal", "hurry"})
    await desk.clock.drive(desk.chaos.heal(desk.hurry))
    assert BackendState.RUNNING is desk.target.states["b1"]


async def test_it_waits_for_what_the_timeline_began(desk):
    """An item whose record could not be kept is told before the run is over, not after."""

    def full(*_: object) -> None:
        raise OSError("disk full")

    desk.chaos.begin()
    desk.told.fault = full
    item = asyncio.ensure_future(desk.chaos._scheduler._run(desk.chaos.next))
    desk.chaos._scheduler._running.add(item)
    item.add_done_callback(desk.chaos._scheduler._running.discard)
    await desk.clock.advance(1)
    await desk.clock.drive(desk.chaos.heal(desk.hurry))

    assert item.done()
    assert "schedule.failed" in desk.told.names


async def test_a_closed_journal_takes_nothing_more(desk):
    """Closed twice is closed."""
    desk.chaos.close()
    desk.chaos.close()
    with pytest.raises(JournalError):
        desk.chaos._journal.step(1, Step.CLEAN, 0.0)


async def test_what_disturbs_is_known_from_before_it_begins_until_it_was_asked_for(desk):
    """One that began and was over since the last question is in the answer once; what never began disturbed nothing."""
    desk.chaos.runner.record_skipped(FaultRequest("reload", Source.SCHEDULE, 0.0), "too late")
    assert [] == list(desk.chaos.disturbing())
    desk.down(hold_s=3.0)
    await desk.clock.advance(0)
    (begun,) = desk.chaos.disturbing()
    assert ("backend-down", "b1", None) == (begun.kind, begun.target, begun.outcome)
    await desk.clock.drive(desk.chaos.heal(desk.hurry))
    (over,) = desk.chaos.disturbing()
    assert (begun.id, True) == (over.id, over.finished)
    assert [] == list(desk.chaos.disturbing())
