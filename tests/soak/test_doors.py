"""What the control socket may ask: a wish becomes a request to the runner, a stop waits for the exit code."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from chaos.model import FaultOutcome, FaultRecord, FaultRequest, Source
from chaos.runner import Runner
from soak.clock import RunClock
from soak.doors import Doors
from soak.errors import ControlError
from soak.live import Facts, LiveState
from soak.measure.ledger import Ledger
from soak.model import Phase
from soak.plan import Plan
from soak.status import Status
from soak.web.control import InjectRequest
from tests.fakes import FakeClock


class FakeRunner:
    """Grants everything at once, after saying that it waits."""

    def __init__(self) -> None:
        self.asked: list[FaultRequest] = []

    async def submit(self, request: FaultRequest, follow: Any, waiting: Any) -> FaultRecord:
        self.asked.append(request)
        waiting("the gap")
        record = FaultRecord(
            1,
            request.kind,
            request.target or "b1",
            request.source,
            request.planned_s,
            outcome=FaultOutcome.VERIFIED,
        )
        follow(record)
        return record


class Told:
    """Collects what an injecting client is told."""

    def __init__(self) -> None:
        self.lines: list[object] = []

    def record(self, record: FaultRecord) -> None:
        self.lines.append(record.kind)

    def waiting(self, reason: str) -> None:
        self.lines.append(f"waiting: {reason}")


def status() -> Status:
    live = LiveState(Plan(), Ledger())
    facts = Facts("r", 1, "t", "1", "https://x", "http://y")
    return live.status(facts, now_s=1.0, phase=Phase.STEADY, next_fault=None, guarded=False)


def doors(runner: FakeRunner, stops: list[str], ended: asyncio.Future[int]) -> Doors:
    clock = RunClock(FakeClock(12.0), 0)
    return Doors(
        cast("Runner", runner),
        clock,
        faults=["backend-down", "reload"],
        status=status,
        request_stop=stops.append,
        ended=ended,
    )


async def test_a_wish_is_stamped_with_its_moment_and_told_step_by_step():
    """Planned now, by hand, with the target and hold that were asked for."""
    runner, told = FakeRunner(), Told()
    door = doors(runner, [], asyncio.get_running_loop().create_future())
    record = await door.inject(InjectRequest("backend-down", "b2", 5.0, overlap=True), told)
    assert record.outcome is FaultOutcome.VERIFIED
    assert [FaultRequest("backend-down", Source.INJECT, 12.0, 5.0, "b2", {"overlap": True})] == runner.asked
    assert ["waiting: the gap", "backend-down"] == told.lines
    await door.inject(InjectRequest("reload", params={"kind": "full"}), told)
    assert {"kind": "full"} == runner.asked[-1].params


async def test_a_fault_that_nobody_knows_is_refused_at_the_door():
    """With the nearest name; the runner, and with it the store and the metrics, never hear of it."""
    runner, told = FakeRunner(), Told()
    door = doors(runner, [], asyncio.get_running_loop().create_future())
    with pytest.raises(ControlError, match="there is no fault 'relaod'; did you mean 'reload'"):
        await door.inject(InjectRequest("relaod"), told)
    assert ([], []) == (runner.asked, told.lines)


async def test_a_stop_that_waits_returns_the_exit_code_and_one_that_does_not_returns_at_once():
    """Both ask for the same graceful end; a waiter that goes away does not take the result with it."""
    stops: list[str] = []
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    door = doors(FakeRunner(), stops, ended)
    assert await door.stop(wait=False) is None
    gone = asyncio.ensure_future(door.stop(wait=True))
    stays = asyncio.ensure_future(door.stop(wait=True))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    ended.set_result(1)
    assert await stays == 1
    assert ["soak stop"] * 3 == stops


async def test_a_status_is_the_runs_own():
    """Passed through."""
    assert doors(FakeRunner(), [], asyncio.get_running_loop().create_future()).status() == status()
