"""What the control socket may ask of a live run: show, disturb, stop. Satisfies ``soak.web.control.ControlBackend``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from chaos.fault import OVERLAP
from chaos.model import FaultRecord, FaultRequest, Source
from chaos.runner import Runner
from soak.clock import RunClock
from soak.errors import ControlError, nearest
from soak.status import Status
from soak.web.control import InjectRequest, InjectUpdates


class Doors:
    """The commands of one run. ``faults`` are the kinds that there are; ``ended`` resolves to the exit code once the run is over."""

    def __init__(
        self,
        runner: Runner,
        clock: RunClock,
        *,
        faults: Collection[str],
        status: Callable[[], Status],
        request_stop: Callable[[str], None],
        ended: asyncio.Future[int],
    ) -> None:
        self._runner = runner
        self._clock = clock
        self._faults = faults
        self._status = status
        self._request_stop = request_stop
        self._ended = ended

    def status(self) -> Status:
        """Return a snapshot."""
        return self._status()

    async def inject(self, request: InjectRequest, updates: InjectUpdates) -> FaultRecord:
        """Run a fault by hand; the arbiter decides as it does for the schedule.

        Raises ``ControlError`` for one that nobody knows: it could be recorded, but each typo would be a kind of its own,
        in the store, in the status and among the series of the metrics.
        """
        if request.fault not in self._faults:
            raise ControlError(f"there is no fault {request.fault!r}{nearest(request.fault, self._faults)}")
        wish = FaultRequest(
            kind=request.fault,
            source=Source.INJECT,
            planned_s=self._clock.now(),
            hold_s=request.hold_s or 0.0,
            target=request.target,
            params={**request.params, **({OVERLAP: True} if request.overlap else {})},
        )
        return await self._runner.submit(wish, updates.record, updates.waiting)

    async def stop(self, *, wait: bool) -> int | None:
        """End the run gracefully; with ``wait`` return its exit code."""
        self._request_stop("soak stop")
        return await asyncio.shield(self._ended) if wait else None
