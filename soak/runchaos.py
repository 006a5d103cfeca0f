"""The chaos of one run: the timeline and its scheduler, the runner with its journal, and how all of it ends.

Made once the start of the run is fixed, for the journal counts from it. ``begin`` starts the timeline; ``heal`` ends it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from chaos.arbiter import Arbiter
from chaos.faults.catalog import registry
from chaos.guard import AbortGuard
from chaos.journal import Journal
from chaos.model import FaultRecord
from chaos.runner import Runner
from chaos.target import Observer, RecoveryWatch, Scopes
from chaos.timeline import PlannedFault
from soak.bounds import fault_limits
from soak.clock import Clock, RunClock
from soak.lab.base import Lab
from soak.plan import Plan
from soak.planrules import timeline_of
from soak.recorder import Served
from soak.scheduler import FaultScheduler
from soak.tasks import cancel, spawn

_MOST_OVER = 64
"""More do not end between two looks at the proxy."""


class TellsChaos(Protocol):
    """Whom to tell what happens: ``soak.recorder.Recorder``."""

    def event(self, name: str, data: Mapping[str, Any] | None = None, /) -> None:
        """Something happened."""
        ...

    def fault(self, record: FaultRecord, served: Served) -> None:
        """A fault reached another step of its life."""
        ...


class RunChaos:
    """``runner`` is who runs faults, whoever asks for them; ``next`` the planned one that is due next."""

    def __init__(
        self,
        plan: Plan,
        lab: Lab,
        clock: Clock,
        run_clock: RunClock,
        *,
        journal: Path,
        observer: Observer,
        recovery: RecoveryWatch,
        scopes: Scopes,
        tell: TellsChaos,
    ) -> None:
        self._lab, self._tell = lab, tell
        self._over: deque[FaultRecord] = deque(maxlen=_MOST_OVER)
        self._journal = Journal(journal, t0_ns=run_clock.t0_ns)
        self.runner = Runner(
            target=lab,
            observer=observer,
            recovery=recovery,
            scopes=scopes,
            clock=run_clock,
            journal=self._journal,
            faults=registry(),
            sink=self._sink,
            event=tell.event,
            arbiter=Arbiter(plan.chaos.gap),
            guard=AbortGuard(plan.chaos.abort_failure_ratio),
            limits=fault_limits(plan),
            spawn=spawn,
        )
        timeline = timeline_of(plan)
        self._skipped = timeline.skipped
        self._scheduler = FaultScheduler[PlannedFault](
            timeline.planned,
            clock=clock,
            run_clock=run_clock,
            on_due=self._due,
            on_misfire=self._misfired,
            on_event=tell.event,
        )

    @property
    def next(self) -> PlannedFault | None:
        """The planned fault that is due next."""
        return self._scheduler.next

    def disturbing(self) -> Sequence[FaultRecord]:
        """Return the faults that were under way at any time since this was last asked: before they touch anything until they are over."""
        found = [*self._over, *self.runner.active]
        self._over.clear()
        return found

    def begin(self) -> None:
        """Start the timeline. What it has no room for is a record from the beginning."""
        for skipped in self._skipped:
            self.runner.record_skipped(skipped.request, skipped.reason)
        self._scheduler.start()

    async def heal(self, hurry: asyncio.Event) -> None:
        """Begin no more, undo what is under way, and wait until traffic has recovered; not for that once ``hurry`` is set."""
        await self._scheduler.stop()
        healing = spawn(self.runner.stop(), name="heal")
        hurried = spawn(hurry.wait(), name="hurry")
        try:
            await asyncio.wait({healing, hurried}, return_when=asyncio.FIRST_COMPLETED)
            if not healing.done():
                await self.runner.stop(hurry=True)
            await healing
        finally:
            await cancel(hurried)
            await cancel(healing)  # the faults themselves end by themselves, whoever stops waiting for them
        await self._scheduler.drain()

    def close(self) -> None:
        """Close the journal. Idempotent."""
        self._journal.close()

    def _sink(self, record: FaultRecord) -> None:
        if record.finished and record.injected_s is not None:
            self._over.append(record)
        self._tell.fault(record, self._lab)

    async def _due(self, planned: PlannedFault) -> FaultRecord:
        return await self.runner.submit(planned.request)

    def _misfired(self, planned: PlannedFault, late_s: float) -> None:
        reason = f"it was {late_s:.1f} s late, the daemon did not run in time; it was not made up for"
        self.runner.record_skipped(planned.request, reason)
