"""How a run ends: wishes, blame, and work that must not end before."""

from __future__ import annotations

import asyncio
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
    await asyncio.wait_for(ending.stop.wait(), 5)
    assert "no space left" == str(ending.trouble)


async def test_background_work_that_dies_ends_the_run(ending):
    """Silence would be a run that nobody watches."""

    async def dies() -> None:
        raise ValueError("boom")

    ending.background(dies(), "vitals")
    await asyncio.wait_for(ending.stop.wait(), 5)
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
    assert "worker 0 died three times" == str(ending.trouble)


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
    await asyncio.wait_for(finished.wait(), 5)
