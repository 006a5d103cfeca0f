"""The doors of one run: the read-only pages, the control socket, and the file that tells other tools where they are.

The pages close with the run. The socket stays open until it is judged: whoever waits for the exit code waits there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from chaos.runner import Runner
from soak.clock import RunClock
from soak.described import write_live
from soak.doors import Doors
from soak.live import Facts
from soak.plan import Plan
from soak.rundir import RunDir
from soak.status import Status
from soak.web.control import ControlServer
from soak.web.pages import Pages


class RunDoors:
    """Everything by which a live run can be asked or told something."""

    def __init__(
        self,
        plan: Plan,
        run: RunDir,
        clock: RunClock,
        *,
        runner: Runner,
        faults: Collection[str],
        metrics: Callable[[], tuple[bytes, str]],
        status: Callable[[], Status],
        problems: Callable[[], Sequence[str]],
        request_stop: Callable[[str], None],
        ended: asyncio.Future[int],
    ) -> None:
        self._run = run
        self._clock = clock
        self._pages = Pages(
            port=plan.http_port,
            host=plan.http_host,
            names=plan.http_names,
            metrics=metrics,
            status=status,
            problems=problems,
        )
        doors = Doors(runner, clock, faults=faults, status=status, request_stop=request_stop, ended=ended)
        self._control = ControlServer(run.socket, doors)

    async def open(self, describe: Callable[[str], Facts]) -> None:
        """Open the pages, then the socket. ``describe`` is given the pages' URL, and says in between what the run is.

        Raises ``SoakError`` for a port or a socket that somebody else has; then no door is open.
        """
        await self._pages.start()
        try:
            facts = describe(self._pages.url)
            await self._control.start()
            write_live(self._run.live, facts, self._clock.t0_ns)
        except BaseException:
            await self.close_pages()
            raise

    async def close_pages(self) -> None:
        """Close the pages."""
        await self._pages.close()

    async def close(self) -> None:
        """Close the socket, after those who are being answered got their answer. Idempotent."""
        await self._control.close()
