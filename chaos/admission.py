"""When a wish may begin: asks the arbiter again and again, in order of arrival, until it is granted, refused or too late.

Knows who waits, whose turn it is, and since when traffic is calm. What is active is told by whoever runs it; backends are
looked at, nothing is touched. Everybody who waits is woken by ``notify``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chaos.arbiter import (
    ActiveFault,
    Arbiter,
    ChaosState,
    Decision,
    Granted,
    Refused,
    Wait,
    overlaps,
)
from chaos.bounded import unless, within
from chaos.fault import Fault, TargetKind
from chaos.model import FaultRequest, Source
from chaos.target import BackendState, Clock, Target

EventSink = Callable[[str, Mapping[str, Any]], object]
"""Takes a dotted event with its data (JSON)."""
Waiting = Callable[[str], object]
"""Takes the reason for which a request cannot begin yet."""

STATUS_TIMEOUT_S = 5.0
"""How long one look at one backend may take before it counts as unhealthy."""
MAX_WAITING = 32
"""Wishes made by hand that may wait at a time: each looks at the backends again whenever something changes."""


class Admission:
    """The queue before the arbiter. ``active`` says what is under way, ``stopped`` why nothing may begin any more."""

    def __init__(
        self,
        target: Target,
        clock: Clock,
        arbiter: Arbiter,
        *,
        max_defer_s: float,
        event: EventSink,
        active: Callable[[], Sequence[ActiveFault]],
        stopped: Callable[[], str],
    ) -> None:
        self._target = target
        self._clock = clock
        self._arbiter = arbiter
        self._max_defer_s = max_defer_s
        self._event = event
        self._active = active
        self._stopped = stopped
        self._turns: Counter[str] = Counter()
        self._calm_since_s: float | None = None
        self._queue: list[FaultRequest] = []
        self._waiting = 0
        self._changed = asyncio.Event()

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next change. Take it before looking at what may change: then none is missed."""
        return self._changed

    def notify(self) -> None:
        """Wake all who wait for a change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def calm(self, since_s: float) -> None:
        """Note that traffic has recovered from a fault, or was watched in vain until now; the gap counts from here."""
        self._calm_since_s = max(since_s, self._calm_since_s or since_s)

    async def ask(self, request: FaultRequest, fault: Fault, waiting: Waiting | None) -> Granted | Refused:
        """Wait for the arbiter's last word. What it grants must be told as active before the next ``await``."""
        if request.source is Source.INJECT and self._waiting >= MAX_WAITING:
            return Refused(f"{self._waiting} wishes wait already; ask again when some of them have ended")
        self._waiting += 1
        try:
            return await self._in_order(request, fault, waiting)
        finally:
            self._waiting -= 1

    async def _in_order(
        self, request: FaultRequest, fault: Fault, waiting: Waiting | None
    ) -> Granted | Refused:
        if overlaps(request):
            return await self._until_decided(request, fault, waiting)
        self._queue.append(request)
        try:
            return await self._until_decided(request, fault, waiting)
        finally:
            self._queue = [other for other in self._queue if other is not request]
            self.notify()

    async def _until_decided(
        self, request: FaultRequest, fault: Fault, waiting: Waiting | None
    ) -> Granted | Refused:
        deadline_s = self._clock.now() + self._max_defer_s
        told = ""
        while True:
            healthy = await self._healthy(fault)
            changed, now = self._changed, self._clock.now()
            match self._decide(request, fault, healthy):
                case Granted() as granted:
                    if request.target is None:
                        self._turns[fault.name] += 1
                    return granted
                case Refused() as refused:
                    return refused
                case Wait(until_s=until_s, reason=reason):
                    if now >= deadline_s or (until_s is not None and until_s > deadline_s):
                        return Refused(f"it could not begin within {self._max_defer_s:g} s: {reason}")
                    if reason != told:
                        self._event("fault.waiting", {"kind": request.kind, "reason": reason})
                        told = reason
                        if waiting is not None:
                            waiting(reason)
                    until_s = deadline_s if until_s is None else until_s
                    await unless(changed, self._clock.sleep(until_s - now))

    def _decide(self, request: FaultRequest, fault: Fault, healthy: frozenset[str]) -> Decision:
        """Ask the arbiter; what it would grant still waits for those who came before."""
        state = self._state(fault, healthy)
        decision = self._arbiter.request(request, fault, self._clock.now(), self._active(), state)
        if isinstance(decision, Granted) and not overlaps(request) and self._queue[0] is not request:
            return Wait(None, f"{self._queue[0].kind} came before and still waits")
        return decision

    async def _healthy(self, fault: Fault) -> frozenset[str]:
        """Look at every backend when the fault is about backends; which of them run and answer."""
        if fault.target_kind is not TargetKind.BACKEND or self._stopped():
            return frozenset()

        async def look(name: str) -> str | None:
            try:
                status = await within(self._clock, STATUS_TIMEOUT_S, self._target.backend_status(name))
            except Exception as error:  # noqa: BLE001  (whatever a lab raises: what cannot be seen is not healthy)
                self._event("backend.unseen", {"target": name, "reason": str(error) or type(error).__name__})
                return None
            return name if status.state is BackendState.RUNNING else None

        looks = await asyncio.gather(*(look(name) for name in self._target.backend_names()))
        return frozenset(name for name in looks if name is not None)

    def _state(self, fault: Fault, healthy: frozenset[str]) -> ChaosState:
        return ChaosState(
            backends=tuple(self._target.backend_names()),
            healthy=healthy,
            missing=frozenset(need for need in fault.needs if not self._target.supports(need)),
            recovered_s=self._calm_since_s,
            turn=self._turns[fault.name],
            stopped=self._stopped(),
        )
