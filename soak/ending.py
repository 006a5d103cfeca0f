"""How a run ends: who asked for it, what went wrong, which work must not end before, and who waits for the exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from soak import log as run_log
from soak.errors import EXIT_INVALID, SoakError
from soak.tasks import cancel, spawn

log = run_log.get_logger("soak.daemon")


class Ending:
    """The end of one run. ``stop`` is set once it is wanted, ``hurry`` when it was asked for again."""

    def __init__(self, log_file: Path, on_event: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._log_file = log_file
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self.reason = "finished"
        self.exit_code: asyncio.Future[int] = self._loop.create_future()
        self.trouble: SoakError | None = None
        """The first thing that a person must mend; it is raised when all is undone."""

    def request_stop(self, reason: str) -> None:
        """End the run gracefully; asked again, do not wait for requests in flight. Healing is never skipped."""
        if self.stop.is_set():
            self.hurry.set()
            self._on_event("run.hurried", {"reason": reason})
            return
        self.reason = reason
        self.stop.set()
        self._on_event("run.stopping", {"reason": reason})

    def blame(self, error: SoakError) -> None:
        """Keep an error for the end, unless there is one already."""
        self.trouble = self.trouble or error

    def give_up(self, error: SoakError) -> None:
        """End the run: nothing that happens from now on could be judged or healed."""
        error.exit_code = EXIT_INVALID
        self.blame(error)
        self.request_stop(str(error))

    def give_up_from_thread(self, error: SoakError) -> None:
        """Do the same from another thread."""
        self._loop.call_soon_threadsafe(self.give_up, error)

    def background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start a task that must not end by itself; if it does, the run ends and says why."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("task.died", task=name, exc_info=error)
                self.give_up(SoakError(f"the daemon's {name} task failed: {error!r}; see {self._log_file}"))

        task = spawn(work, name=name)
        task.add_done_callback(ended)
        self._tasks.append(task)

    async def end_background(self) -> None:
        """Cancel what ``background`` started, and wait for it."""
        for task in self._tasks:
            await cancel(task)

    async def until(self, load: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the end of the load, or for a wish to stop. What ended the load is blamed."""
        loaded = spawn(load(), name="load")
        stopped = spawn(self.stop.wait(), name="stop")
        await asyncio.wait({loaded, stopped}, return_when=asyncio.FIRST_COMPLETED)
        await cancel(stopped)
        if loaded.done():
            try:
                await loaded
            except SoakError as error:
                self.blame(error)
