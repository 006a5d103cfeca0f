"""How a run ends: wishes, blame, and work that must not end before."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from soak.ending import Ending
from soak.errors import EXIT_INVALID, SoakError


@pytest.fixture
def events() -> list[tuple[str, Mapping[str, Any]]]:
    return []


@pytest.fixture
async def ending(events) -> Ending:
    return Ending(Path("soak.log"), lambda name, data: events.append((name, data)))


async def test_a_wish_to_stop_is_heard_once_and_hurried_by_the_second(ending, events):
    """The reason is the first one's; the second one skips the waiting."""
    ending.request_stop("SIGINT")
    assert (True, False) == (ending.stop.is_set(), ending.hurry.is_set())
    ending.request_stop("SIGTERM")
    assert (True, "SIGINT") == (ending.hurry.is_set(), ending.reason)
    assert [("run.stopping", {"reason": "SIGINT"}), ("run.hurried", {"reason": "SIGTERM"})] == events


async def test_the_first_error_is_the_one_that_is_told(ending):
    """What follows from it is noise; a run that gives up cannot be judged."""
    first = SoakError("the store is full")
    ending.give_up(first)
    ending.give_up(SoakError("the workers went away"))
    assert first is ending.trouble
    assert EXIT_INVALID == first.exit_code
    assert "the store is full" == ending.reason


async def test_a_thread_may_give_up_too(ending):
    """The event loop hears of it."""
    await asyncio.to_thread(ending.give_up_from_thread, SoakError("no space left"))
    await asyncio.wait_for(ending.stop.wait(), 30)
    assert "no space left" == str(ending.trouble)


async def test_background_work_that_dies_ends_the_run(ending):
    """Silence would be a run that nobody watches."""

    async def dies() -> None:
        raise ValueError("boom")

    ending.background(dies(), "vitals")
    await asyncio.wait_for(ending.stop.wait(), 30)
    assert "the daemon's vitals task failed: ValueError('boom'); see soak.log" == str(ending.trouble)


async def test_background_work_is_ended_with_the_run(ending):
    """Cancelled and waited for; that is no trouble."""
    ended = asyncio.Event()

    async def works() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    ending.background(works(), "prober")
    await asyncio.sleep(0)
    await ending.end_background()
    assert ended.is_set()
    assert ending.trouble is None


async def test_waiting_ends_with_the_load(ending):
    """Nobody asked to stop."""

    async def load() -> None:
        return

    await ending.until(load)
    assert (False, None) == (ending.stop.is_set(), ending.trouble)


async def test_what_ended_the_load_is_blamed(ending):
    """The error is raised later, when all is undone."""

    async def load() -> None:
        raise SoakError("worker 0 died three times")

    await ending.until(load)
    await ending.drain(5)
    await ending.end_load()
    assert "worker 0 died three times" == str(ending.trouble)


async def test_what_ends_the_load_while_it_drains_is_blamed_too(ending):
    """Somebody asked to stop, and then the workers went away: nobody could have counted what was in flight."""
    more = asyncio.Event()

    async def load() -> None:
        await more.wait()
        raise SoakError("load workers died 21 times")

    asyncio.get_running_loop().call_soon(ending.request_stop, "soak stop")
    await ending.until(load)
    more.set()
    await ending.drain(5)
    await ending.end_load()
    assert "load workers died 21 times" == str(ending.trouble)


async def test_waiting_ends_with_a_wish_and_leaves_the_load_alone(ending):
    """The load is drained afterwards, not cancelled here."""
    more = asyncio.Event()
    finished = asyncio.Event()

    async def load() -> None:
        await more.wait()
        finished.set()

    asyncio.get_running_loop().call_soon(ending.request_stop, "soak stop")
    await ending.until(load)
    assert not finished.is_set()
    more.set()
    await ending.drain(5)
    assert finished.is_set()


@pytest.mark.parametrize("hurried", [True, False])
async def test_draining_has_an_end(ending, hurried):
    """At most so long, not at all in a hurry; the load itself is not touched, and no waiter is left."""
    asyncio.get_running_loop().call_soon(ending.request_stop, "SIGINT")
    await ending.until(asyncio.Event().wait)
    if hurried:
        ending.request_stop("SIGINT")
    async with asyncio.timeout(30):
        await ending.drain(60 if hurried else 0.05)
    (load,) = (task for task in asyncio.all_tasks() if task is not asyncio.current_task())
    assert "load" == load.get_name()
    load.cancel()


async def test_a_load_that_never_began_needs_no_end(ending):
    """As when the workers could not be given their slices."""
    await ending.drain(5)
    await ending.end_load()
    assert ending.trouble is None


async def test_whoever_is_cancelled_while_it_waits_leaves_no_waiter(ending):
    """Only the load goes on, until its workers are ended."""
    waiting = asyncio.ensure_future(ending.until(asyncio.Event().wait))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert ["load"] == [task.get_name() for task in left]
    left[0].cancel()


async def test_all_background_work_is_ended_whatever_one_of_them_does(ending):
    """One that fails on its way out is trouble, and does not keep the next one running."""
    ended = asyncio.Event()

    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("disk full")

    async def works() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    ending.background(fails(), "vitals")
    ending.background(works(), "prober")
    await asyncio.sleep(0)
    await ending.end_background()
    await asyncio.sleep(0)
    assert ended.is_set()
    assert "the daemon's vitals task failed: OSError('disk full'); see soak.log" == str(ending.trouble)


async def test_signals_are_wishes(ending, events):
    """The first stops, the second hurries, SIGHUP is told and passed over; afterwards none of them is ours."""
    async with ending.heard():
        for number, heard in ((signal.SIGHUP, 1), (signal.SIGTERM, 2), (signal.SIGINT, 3)):
            os.kill(os.getpid(), number)
            async with asyncio.timeout(30):
                while len(events) < heard:
                    await asyncio.sleep(0.001)
    assert ["signal.ignored", "run.stopping", "run.hurried"] == [name for name, _ in events]
    assert ("SIGTERM", True) == (ending.reason, ending.hurry.is_set())
    assert signal.SIG_DFL is signal.getsignal(signal.SIGTERM)


async def test_a_crash_is_not_told_as_a_finished_run(ending):
    """Unless somebody had asked to stop before: that is why it is over."""
    ending.crash(ValueError("boom"))
    assert "the daemon failed: boom; see soak.log" == ending.reason
    ending.request_stop("soak stop")
    ending.crash(ValueError("boom"))
    assert "soak stop" == ending.reason


@pytest.mark.parametrize(("trouble", "expected"), [(None, 1), (SoakError("no space left"), EXIT_INVALID)])
async def test_waiters_get_the_exit_code_that_the_daemon_ends_with(ending, trouble, expected):
    """A verdict of a run that broke down is none."""
    if trouble is not None:
        ending.give_up(trouble)
    ending.conclude(1)
    assert expected == await ending.exit_code
