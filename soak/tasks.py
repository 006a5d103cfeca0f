"""Named tasks with an owner. ``asyncio.create_task`` is banned elsewhere: a task nobody holds can vanish mid-flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
OnDeath = Callable[[str, BaseException], None]
"""Called on the event loop with the name of a task and the error that ended it."""
_alive: set[asyncio.Task[Any]] = set()


def spawn(coro: Coroutine[Any, Any, T], *, name: str, on_death: OnDeath | None = None) -> asyncio.Task[T]:
    """Start a named task and keep a reference until it ends. The caller still owns it: await or cancel it.

    Give ``on_death`` where nobody waits for the task's result: an error that ends it is told, where it would be silence.
    """

    def ended(task: asyncio.Task[T]) -> None:
        _alive.discard(task)
        if on_death is not None and not task.cancelled() and (error := task.exception()) is not None:
            on_death(name, error)

    task = asyncio.create_task(coro, name=name)
    _alive.add(task)
    task.add_done_callback(ended)
    return task


async def cancel(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task and wait for its end. Its own error, other than the cancellation, is raised.

    One that has ended before is left alone, with its error: that is for whoever waited for it, or added a callback.
    May be used where the caller was cancelled itself before, as when it cleans up: only a cancellation that comes while
    it waits here ends the waiting.
    """
    if task is None or task.done():
        return
    task.cancel()
    await asyncio.wait({task})  # unlike awaiting the task, it raises no cancellation but our own
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
