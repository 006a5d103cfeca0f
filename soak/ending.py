"""How a run ends: who asked for it, what went wrong, which work must not end before, and who waits for the exit code."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
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
        self._load: asyncio.Task[None] | None = None
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self.reason = "finished"
        self.exit_code: asyncio.Future[int] = self._loop.create_future()
        self.trouble: SoakError | None = None
        """The first thing that a person must mend; it is raised when all is undone."""

    @asynccontextmanager
    async def heard(self) -> AsyncIterator[None]:
        """Take SIGINT and SIGTERM as wishes to stop; SIGHUP has no meaning here, and says so."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self.request_stop, number.name)
        self._loop.add_signal_handler(signal.SIGHUP, self._on_event, "signal.ignored", {"signal": "SIGHUP"})
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._loop.remove_signal_handler(number)

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

    def crash(self, error: BaseException) -> None:
        """Say why a run that nobody stopped is over; who raised it goes on raising it."""
        if not self.stop.is_set():
            self.reason = f"the daemon failed: {error or type(error).__name__}; see {self._log_file}"

    def conclude(self, judged: int) -> None:
        """Give those who wait the exit code with which the daemon will end: the verdict's, unless there was trouble."""
        self.exit_code.set_result(judged if self.trouble is None else self.trouble.exit_code)

    # -- work that ends with the run -----------------------------------------------------------------------------------

    def background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start a task that must not end by itself; if it does, the run ends and says why."""

        def died(name: str, error: BaseException) -> None:
            log.error("task.died", task=name, exc_info=error)
            self.give_up(SoakError(f"the daemon's {name} task failed: {error!r}; see {self._log_file}"))

        self._tasks.append(spawn(work, name=name, on_death=died))

    async def end_background(self) -> None:
        """Cancel what ``background`` started, all of it, and wait for it. An error on the way out is trouble, too."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def until(self, load: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the end of the load, or for a wish to stop. The load goes on until ``drain`` and ``end_load``."""
        self._load = spawn(load(), name="load")
        await self._first(self._load, self.stop)

    async def drain(self, timeout_s: float) -> None:
        """Wait until the load has ended by itself, at most this long, and not at all in a hurry."""
        if self._load is not None:
            await self._first(self._load, self.hurry, timeout_s)

    async def end_load(self) -> None:
        """Take the last word of a load whose workers are gone. What ended it, whenever that was, is blamed."""
        if self._load is not None:
            try:
                await self._load
            except SoakError as error:
                self.blame(error)

    @staticmethod
    async def _first(work: asyncio.Task[None], wish: asyncio.Event, timeout_s: float | None = None) -> None:
        wished = spawn(wish.wait(), name="wish")
        try:
            await asyncio.wait({work, wished}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel(wished)
