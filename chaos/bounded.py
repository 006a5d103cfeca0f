"""Waits that end: within a time, unless something happens, and work that a cancellation cannot stop half way.

Every function here owns the tasks that it makes and ends them before it returns. Time comes from the ``Clock`` that
the caller was given, so tests decide when it passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from chaos.target import Clock

T = TypeVar("T")

_STUBBORN_S = 2.0
"""How long a cancelled task may take to end before it is left behind (it is still referenced)."""
_RESTARTS = 5
"""How often work is begun again when its own task is cancelled, as ``asyncio.run`` does to all tasks at the end."""
_left: set[asyncio.Task[Any]] = set()


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Await ``work``, at most ``seconds``; then it is cancelled and ``TimeoutError`` raised."""
    done, task = await _race(work, clock.sleep(seconds))
    if not done:
        raise TimeoutError
    return task.result()


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Await ``work``; when ``event`` is set first, cancel it and return None."""
    done, task = await _race(work, event.wait())
    return task.result() if done else None


async def shielded(make: Callable[[], Coroutine[Any, Any, T]], *, name: str) -> T:
    """Await ``make()`` to its end, however often the caller is cancelled; only then raise ``CancelledError``.

    When the work's own task is cancelled it is begun again, so it must be idempotent.
    """
    interrupted = False
    for _ in range(_RESTARTS):
        task = asyncio.get_running_loop().create_task(make(), name=name)
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                interrupted = True
        if not task.cancelled():
            break
    result = task.result()
    if interrupted:
        raise asyncio.CancelledError
    return result


async def _race(
    work: Coroutine[Any, Any, T], rival: Coroutine[Any, Any, Any]
) -> tuple[bool, asyncio.Task[T]]:
    """Run both until one ends; returns whether ``work`` did, and its task. Nothing is left running."""
    loop = asyncio.get_running_loop()
    task, other = loop.create_task(work), loop.create_task(rival)
    try:
        await asyncio.wait({task, other}, return_when=asyncio.FIRST_COMPLETED)
        return task.done(), task
    finally:
        await _end(task, other)


async def _end(*tasks: asyncio.Task[Any]) -> None:
    running = {task for task in tasks if not task.done()}
    for task in running:
        _left.add(task)
        task.add_done_callback(_forget)
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=_STUBBORN_S)


def _forget(task: asyncio.Task[Any]) -> None:
    """Drop the reference; an error that a cancelled task ends with is nobody's any more, but must be retrieved."""
    _left.discard(task)
    if not task.cancelled():
        task.exception()
