"""Keeps a guardian process beside the daemon for as long as there is anything to heal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from chaos.guardian import Guardian, GuardianError, spawn_guardian
from soak import log as run_log
from soak.errors import LabError
from soak.rundir import RunDir
from soak.tasks import cancel, spawn

log = run_log.get_logger("soak.daemon")

OPEN_LAB = "soak.lab:open_for_healing"
_MAX_REPLACED = 20
"""Something that ends guardians so often would go on all day, and the run is not guarded in between."""


class Watchman:
    """Starts a guardian, replaces one that somebody ended, dismisses the last one when all is clean."""

    def __init__(
        self,
        run: RunDir,
        deadline_ns: int,
        *,
        on_event: Callable[[str, dict[str, Any]], None],
        on_lost: Callable[[str], None],
        open_lab: str | None = None,
    ) -> None:
        self._run = run
        self._deadline_ns = deadline_ns
        self._on_event = on_event
        self._on_lost = on_lost
        self._open_lab = open_lab
        self._guardian: Guardian | None = None
        self._tending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the guardian; returns once it watches. Raises ``LabError`` with its words."""
        self._guardian = await self._spawn()
        self._tending = spawn(self._tend(), name="guardian", on_death=self._died)

    async def dismiss(self) -> None:
        """Tell the guardian that nothing is left to heal, and wait for its end."""
        await cancel(self._tending)
        if self._guardian is not None:
            await self._guardian.done()

    async def _spawn(self) -> Guardian:
        try:
            return await spawn_guardian(
                run_dir=self._run.path,
                open_lab=self._open_lab or OPEN_LAB,
                deadline_ns=self._deadline_ns,
                log=self._run.guardian_log,
            )
        except GuardianError as error:
            raise LabError(str(error)) from error

    def _died(self, name: str, error: BaseException) -> None:
        log.error("task.died", task=name, exc_info=error)
        self._on_lost(f"the daemon's {name} task failed: {error!r}, so nobody watches the guardian")

    async def _tend(self) -> None:
        replaced = 0
        while self._guardian is not None:
            code = await self._guardian.ended()
            self._on_event("guardian.died", {"pid": self._guardian.pid, "exit": code})
            if monotonic_ns() >= self._deadline_ns:  # the next one would heal at once, and the one after it
                self._on_lost("the run should have been over long ago, so its guardian has healed the lab")
                return
            if replaced >= _MAX_REPLACED:
                self._on_lost(
                    f"the guardian was ended {replaced + 1} times, the last time with exit code {code}"
                )
                return
            replaced += 1
            try:
                self._guardian = await self._spawn()
            except (LabError, OSError) as error:
                self._on_lost(f"the guardian cannot be replaced: {error}")
                return
            self._on_event("guardian.replaced", {"pid": self._guardian.pid})
