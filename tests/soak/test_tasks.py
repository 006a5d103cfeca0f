"""Named tasks with an owner."""

import asyncio
import gc

import pytest

from soak import tasks
from soak.tasks import cancel, spawn


async def test_task_has_its_name_and_is_held_until_it_ends():
    """A task that nobody keeps is not collected mid-flight, and is let go once it has ended."""
    gate = asyncio.Event()
    done: list[str] = []

    async def work():
        await gate.wait()
        done.extend(t.get_name() for t in [asyncio.current_task()] if t is not None)

    spawn(work(), name="worker")
    await asyncio.sleep(0)
    gc.collect()
    held = len(tasks._alive)
    gate.set()
    await asyncio.sleep(0.01)

    assert (["worker"], 1) == (done, held - len(tasks._alive))


async def test_the_death_of_a_task_is_told_to_whoever_wants_to_know():
    """With its name and its error, once. One that returns or is cancelled has not died."""
    told: list[tuple[str, str]] = []

    async def dies():
        raise ValueError("boom")

    async def returns():
        return

    tasks_ = [
        spawn(work, name=name, on_death=lambda name, error: told.append((name, repr(error))))
        for name, work in (("dies", dies()), ("returns", returns()), ("waits", asyncio.sleep(1000)))
    ]
    await asyncio.sleep(0)
    await cancel(tasks_[2])
    await asyncio.sleep(0)

    assert [("dies", "ValueError('boom')")] == told


async def test_cancel_waits_for_the_end():
    """What a task does on its way out has been done when cancel returns. No task, or one that has ended, is fine."""
    log = []

    async def work():
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0.01)
            log.append("tidied")

    task = spawn(work(), name="worker")
    await asyncio.sleep(0)
    await cancel(task)
    await cancel(task)
    await cancel(None)

    assert ["tidied"] == log


async def test_cancel_raises_the_tasks_own_error():
    """An error on the way out is not swallowed."""

    async def work():
        try:
            await asyncio.sleep(1000)
        finally:
            raise OSError("disk full")

    task = spawn(work(), name="worker")
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="disk full"):
        await cancel(task)


async def test_canceller_that_is_cancelled_itself_stays_cancelled():
    """The cancellation of the waiter is not mistaken for that of the task."""

    async def stubborn():
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0.02)

    task = spawn(stubborn(), name="stubborn")
    await asyncio.sleep(0)
    waiter = spawn(cancel(task), name="waiter")
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.wait({waiter})

    assert waiter.cancelled()


async def test_who_was_cancelled_before_can_still_tidy_up():
    """On the way out of a cancellation, the end of the task is not taken for another one of one's own."""
    tidied = []

    async def owner():
        task = spawn(asyncio.sleep(1000), name="tending")
        try:
            await asyncio.sleep(1000)
        finally:
            await cancel(task)
            tidied.append(task.cancelled())

    waiter = spawn(owner(), name="owner")
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.wait({waiter})

    assert [True] == tidied
    assert waiter.cancelled()
