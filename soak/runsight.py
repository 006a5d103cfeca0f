"""The eyes of one run: the prober, the origins' own counts, the vitals of everything, the host; and what faults ask of them.

Made once the lab is up. ``watch`` begins to look, the daemon ends it; what is seen is told to the recorder. What traffic shows
comes from the load (``soak.runload``) and is folded into the same ``observer`` and ``recovery``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from chaos.model import FaultRecord
from soak.bounds import drained_s, remembered_s, silence_s
from soak.census import watch_vitals
from soak.clock import RunClock
from soak.lab.base import Lab
from soak.lab.prober import Prober
from soak.lab.process import row_of
from soak.lab.vitals import Subject, look_at
from soak.model import OriginTotals, Sighting, Vital
from soak.observe import TrafficObserver
from soak.originwatch import OriginWatch
from soak.plan import Plan
from soak.starvation import HostWatch, read_processors
from soak.watch import TrafficRecoveryWatch
from soak.workerwatch import DIED, KNOWN, WorkerWatch, told_of

PROXY = "proxy"
Background = Callable[[Coroutine[Any, Any, None], str], None]
"""Starts work that goes on until the run ends, under a name; whoever gives it ends the work."""


class TellsSight(Protocol):
    """Whom to tell what was seen: ``soak.recorder.Recorder``."""

    def event(self, name: str, data: Mapping[str, Any] | None = None, /) -> None:
        """Something happened."""
        ...

    def sighting(self, sighting: Sighting) -> None:
        """The prober saw something."""
        ...

    def vital(self, vital: Vital) -> None:
        """How processes do."""
        ...

    def origins(self, totals: OriginTotals) -> None:
        """What the origins have counted so far."""
        ...


class RunSight:
    """``observer`` and ``recovery`` are what faults wait for."""

    def __init__(self, plan: Plan, lab: Lab, clock: RunClock, tell: TellsSight) -> None:
        self._lab = lab
        self._clock = clock
        self._tell = tell
        self._prober = Prober(
            lab.proxy_address,
            lab.ca_file,
            lab.server_name,
            clock,
            self._probed,
            lambda data: tell.event("probe.failed", data),
        )
        self.observer = TrafficObserver(clock, silence_s=silence_s(plan), hurry=self._prober.hurry)
        self.recovery = TrafficRecoveryWatch(clock, remembered_s=remembered_s(plan))
        self._workers = WorkerWatch(drained_s(plan), taken_over=plan.lab.kind == "attach")
        self._disturbing: Callable[[], Sequence[FaultRecord]] = tuple
        self._host = HostWatch(plan.self_limits.max_others, tell.event)
        self._origins = OriginWatch(
            lab.backend_names(), lab.origin_stats, clock, keep=tell.origins, on_event=tell.event
        )

    def watch(
        self,
        background: Background,
        workers: Callable[[], Mapping[int, int]],
        disturbing: Callable[[], Sequence[FaultRecord]] = tuple,
    ) -> None:
        """Begin to look. ``workers`` gives the process ids of the load workers by number, at each look.

        ``disturbing`` gives the faults that were under way since the look before: they explain which workers of the proxy are missing.
        """
        self._disturbing = disturbing
        background(
            watch_vitals(self._clock, lambda at_s: self._look(at_s, workers()), self._tell.vital), "vitals"
        )
        background(self._prober.run(), "prober")
        background(self._origins.run(), "origins")

    async def last_vitals(self, at_s: float, workers: Mapping[int, int]) -> None:
        """Look at all processes a last time. What cannot be seen any more is an event: it must not cost the run its verdict."""
        try:
            for vital in await self._look(at_s, workers):
                self._tell.vital(vital)
        except Exception as error:  # noqa: BLE001  (whatever a lab raises; a look that fails earlier ends the run)
            self._tell.event("vitals.not_seen", {"error": str(error) or type(error).__name__})

    async def last_counts(self) -> None:
        """Ask the origins a last time, once nothing is under way any more; likewise."""
        try:
            await self._origins.look()
        except Exception as error:  # noqa: BLE001  (same)
            self._tell.event("origins.not_counted", {"error": str(error) or type(error).__name__})

    def _probed(self, sighting: Sighting) -> None:
        self._tell.sighting(sighting)
        self.observer.see(sighting)

    async def _look(self, at_s: float, workers: Mapping[int, int]) -> Sequence[Vital]:
        own = [("daemon", os.getpid()), *((f"worker-{k}", pid) for k, pid in workers.items())]
        subjects = [Subject(name, row.identity) for name, pid in own if (row := row_of(pid)) is not None]
        vitals = [*await self._lab.vitals(at_s), *await look_at(subjects, at_s)]
        self._host.look(at_s, vitals, read_processors())
        for vital in vitals:
            if vital.subject == PROXY:
                await self._look_for_workers(vital)
        return vitals

    async def _look_for_workers(self, vital: Vital) -> None:
        knew = self._workers.known
        missing = self._workers.look(vital, self._disturbing())
        if self._workers.known and not knew:
            self._tell.event(KNOWN)
        if missing is not None and (told := told_of(missing, await self._lab.worker_ends())):
            self._tell.event(DIED, told)
