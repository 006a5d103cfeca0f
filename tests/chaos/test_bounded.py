"""Waits that end, and work that cancellation cannot stop half way."""

from __future__ import annotations

import asyncio

import pytest

from chaos import bounded
from chaos.bounded import shielded, unless, within
from tests.fakes import FakeClock, settle


async def value(clock: FakeClock, after_s: float) -> str:
    await clock.sleep(after_s)
    return "done"


async def test_within_returns_what_is_done_in_time():
    """The result comes through, and no sleeper is left."""
    clock = FakeClock()
    assert await clock.drive(within(clock, 5, value(clock, 1))) == "done"
    assert clock.sleepers == 0


async def test_within_cuts_what_takes_too_long():
    """The work is cancelled, not left running."""
    clock = FakeClock()
    with pytest.raises(TimeoutError):
        await clock.drive(within(clock, 5, value(clock, 6)))
    assert (clock.now(), clock.sleepers) == (5, 0)


async def test_within_passes_errors_on():
    """An error of the work is its own."""
    clock = FakeClock()

    async def breaks() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await clock.drive(within(clock, 5, breaks()))


async def test_a_cancelled_wait_takes_its_work_with_it():
    """Neither the work nor the timer outlive the waiter."""
    clock = FakeClock()
    task = asyncio.ensure_future(within(clock, 5, value(clock, 6)))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.sleepers == 0


async def test_work_that_ignores_its_cancellation_does_not_hold_the_waiter(monkeypatch: pytest.MonkeyPatch):
    """A stubborn task is left behind after a while, still referenced, and its error is nobody's."""
    monkeypatch.setattr(bounded, "_STUBBORN_S", 0.01)
    clock, release = FakeClock(), asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await release.wait()
            raise ValueError("late") from None

    task = asyncio.ensure_future(within(clock, 1, stubborn()))
    await clock.advance(2)
    with pytest.raises(TimeoutError):
        await task
    assert len(bounded._left) == 1
    release.set()
    await settle()
    assert len(bounded._left) == 0


async def test_unless_returns_none_when_the_event_comes_first():
    """The work is cut by the event."""
    clock, event = FakeClock(), asyncio.Event()
    task = asyncio.ensure_future(unless(event, value(clock, 5)))
    await clock.advance(1)
    event.set()
    assert await task is None
    assert clock.sleepers == 0


async def test_unless_returns_the_result_otherwise():
    """Without the event it is as if it were not there."""
    clock = FakeClock()
    assert await clock.drive(unless(asyncio.Event(), value(clock, 5))) == "done"


async def test_shielded_work_ends_before_the_cancellation_is_raised():
    """However often the caller is cancelled."""
    clock, ended = FakeClock(), []

    async def work() -> None:
        await clock.sleep(5)
        ended.append(clock.now())

    task = asyncio.ensure_future(shielded(work, name="work"))
    for _ in range(3):
        await settle()
        task.cancel()
    await settle()
    assert not task.done()
    with pytest.raises(asyncio.CancelledError):
        await clock.drive(task)
    assert ended == [5]


async def test_shielded_work_whose_own_task_is_cancelled_begins_again():
    """The end of an event loop cancels every task; the work is idempotent and starts over."""
    clock, begun = FakeClock(), []

    async def work() -> str:
        begun.append(clock.now())
        await clock.sleep(5)
        return "done"

    task = asyncio.ensure_future(shielded(work, name="work"))
    await clock.advance(1)
    next(t for t in asyncio.all_tasks() if t.get_name() == "work").cancel()
    assert await clock.drive(task) == "done"
    assert begun == [0, 1]


async def test_an_error_of_shielded_work_is_raised_rather_than_the_cancellation():
    """What went wrong is more than that somebody wanted to stop."""

    async def work() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    task = asyncio.ensure_future(shielded(work, name="work"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(ValueError, match="no"):
        await task
