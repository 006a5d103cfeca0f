"""Takes wishes for faults, asks the arbiter, runs what is granted, and heals everything when the run ends.

The one place that knows which faults are active. What happens to one of them is ``chaos.lifecycle``; whether it may
begin is ``chaos.arbiter``. Every wish ends in a record: verified or not, skipped with its reason, never silence.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Protocol

from chaos.arbiter import (
    ActiveFault,
    Arbiter,
    ChaosState,
    Decision,
    Granted,
    Refused,
    Wait,
    nearest,
    overlaps,
)
from chaos.bounded import unless, within
from chaos.fault import Fault, FaultContext, TargetKind, refused_params
from chaos.guard import AbortGuard
from chaos.journal import Journal
from chaos.lifecycle import Instance, Lifecycle, Limits
from chaos.model import FaultOutcome, FaultRecord, FaultRequest, FaultShape, Source
from chaos.target import BackendState, Clock, Observer, RecoveryWatch, Scopes, Target

Sink = Callable[[FaultRecord], object]
"""Takes a record each time it changes; the last one is ``finished``."""
EventSink = Callable[[str, Mapping[str, Any]], object]
"""Takes a dotted event with its data (JSON)."""
Waiting = Callable[[str], object]
"""Takes the reason for which a request cannot begin yet."""

STATUS_TIMEOUT_S = 5.0
"""How long one look at one backend may take before it counts as unhealthy."""


class Spawn(Protocol):
    """Starts a named task; ``soak.tasks.spawn``, or a ``TaskGroup``'s ``create_task``."""

    def __call__(self, coro: Coroutine[Any, Any, FaultRecord], *, name: str) -> asyncio.Task[FaultRecord]:
        """Start it."""
        ...


def _spawn(coro: Coroutine[Any, Any, FaultRecord], *, name: str) -> asyncio.Task[FaultRecord]:
    return asyncio.get_running_loop().create_task(coro, name=name)


class Runner:
    """Runs faults against one target.

    ``sink`` gets every record at every step, ``event`` every happening, ``on_dirty`` the reason when a revert was
    given up. All three are called on the loop and must not block.
    """

    def __init__(
        self,
        *,
        target: Target,
        observer: Observer,
        recovery: RecoveryWatch,
        scopes: Scopes,
        clock: Clock,
        journal: Journal,
        faults: Mapping[str, Fault],
        sink: Sink,
        event: EventSink,
        on_dirty: Callable[[str], object] = lambda _reason: None,
        arbiter: Arbiter | None = None,
        guard: AbortGuard | None = None,
        limits: Limits | None = None,
        spawn: Spawn = _spawn,
        first_id: int = 1,
    ) -> None:
        self.dirty = ""
        """Why the run is dirty; empty while it is not."""
        self._target = target
        self._clock = clock
        self._faults = faults
        self._sink = sink
        self._event = event
        self._on_dirty = on_dirty
        self._arbiter = arbiter or Arbiter()
        self._guard = guard
        self._limits = limits or Limits()
        self._spawn = spawn
        self._next_id = first_id
        self._generation = 0
        self._turns: Counter[str] = Counter()
        self._recovered_s: float | None = None
        self._stopping = False
        self._hurry = asyncio.Event()
        self._changed = asyncio.Event()
        self._running = 0
        self._queue: list[FaultRequest] = []
        self._active: dict[int, Instance] = {}
        self._follow: dict[int, Sink] = {}
        self._tasks: set[asyncio.Task[FaultRecord]] = set()
        ctx = FaultContext(target, observer, clock, self.next_generation, self._limits.effect_timeout_s)
        self._lifecycle = Lifecycle(
            ctx, journal, scopes, recovery, self._limits, self._report, self._became_dirty, self._hurry
        )

    @property
    def active(self) -> tuple[FaultRecord, ...]:
        """Return the faults that were granted and have not recovered yet, in order of their ids."""
        return tuple(it.record for it in self._active.values())

    @property
    def guarded(self) -> str:
        """Why the abort guard stopped chaos; empty while it did not."""
        return self._guard.tripped if self._guard is not None else ""

    @property
    def stopping(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stopping

    def next_generation(self) -> int:
        """Return a config generation that was never used in this run."""
        self._generation = max(self._generation, self._target.generation()) + 1
        return self._generation

    def submit(
        self,
        request: FaultRequest,
        follow: Sink | None = None,
        waiting: Waiting | None = None,
    ) -> asyncio.Task[FaultRecord]:
        """Run a request in a task of its own, which ``stop`` waits for. See ``run``."""
        task = self._spawn(self.run(request, follow, waiting), name=f"fault {request.kind}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def run(
        self,
        request: FaultRequest,
        follow: Sink | None = None,
        waiting: Waiting | None = None,
    ) -> FaultRecord:
        """Run one request to its end and return its final record.

        ``follow`` gets its records at each step, ``waiting`` each reason for which it cannot begin yet.

        When cancelled, whatever was touched is undone first.
        """
        self._running += 1
        try:
            fault = self._faults.get(request.kind)
            if fault is None:
                reason = f"there is no fault {request.kind!r}{nearest(request.kind, self._faults)}"
                return self.record_skipped(request, reason, follow)
            if refusal := refused_params(fault, request.params, self._target.supports):
                return self.record_skipped(request, refusal, follow)
            instance = await self._admit(_completed(request, fault), fault, follow, waiting)
            if isinstance(instance, FaultRecord):
                return instance
            try:
                await self._lifecycle.live(instance)
            finally:
                self._release(instance)
            return instance.record
        finally:
            self._running -= 1
            self._notify()

    def record_skipped(self, request: FaultRequest, reason: str, follow: Sink | None = None) -> FaultRecord:
        """Record a request that never began (refused, misfired) with its reason."""
        record = replace(
            self._new_record(request, request.target or ""), outcome=FaultOutcome.SKIPPED, reason=reason
        )
        self._event("fault.skipped", {**_named(record), "planned_s": record.planned_s, "reason": reason})
        self._sink(record)
        if follow is not None:
            follow(record)
        return record

    def feed_guard(self, requests: int, failures: int) -> None:
        """Tell of one second of traffic outside every fault; when the guard trips, all is healed and chaos stops."""
        if self._guard is not None and self._guard.feed(requests, failures):
            self._event("guard.tripped", {"reason": self._guard.tripped})
            self._heal_all()

    def rearm(self) -> None:
        """Let chaos go on after the guard tripped."""
        if self._guard is not None and self._guard.tripped:
            self._guard.rearm()
            self._event("guard.rearmed", {})
            self._notify()

    async def stop(self, *, hurry: bool = False) -> None:
        """Skip what waits, heal what is active, and return when all of it has ended.

        With ``hurry`` waits for recovery are cut as well; healing never is. May be called again with it.
        """
        self._stopping = True
        if hurry:
            self._hurry.set()
        self._heal_all()
        while self._running or self._tasks:
            changed = self._changed
            if self._running:
                await changed.wait()
            else:
                await asyncio.sleep(0)

    async def _admit(
        self,
        request: FaultRequest,
        fault: Fault,
        follow: Sink | None,
        waiting: Waiting | None,
    ) -> Instance | FaultRecord:
        """Wait for the arbiter, in order of arrival; returns the registered instance, or the record of a skip."""
        if overlaps(request):
            return await self._wait_for_grant(request, fault, follow, waiting)
        self._queue.append(request)
        try:
            return await self._wait_for_grant(request, fault, follow, waiting)
        finally:
            self._queue = [other for other in self._queue if other is not request]
            self._notify()

    async def _wait_for_grant(
        self, request: FaultRequest, fault: Fault, follow: Sink | None, waiting: Waiting | None
    ) -> Instance | FaultRecord:
        deadline_s = self._clock.now() + self._limits.max_defer_s
        told = ""
        while True:
            healthy = await self._healthy(fault)
            changed, now = self._changed, self._clock.now()
            match self._decide(request, fault, healthy):
                case Granted(target, _):
                    return self._register(request, fault, target, follow)  # no await since the decision
                case Refused(reason):
                    return self.record_skipped(request, reason, follow)
                case Wait(until_s, reason):
                    if now >= deadline_s or (until_s is not None and until_s > deadline_s):
                        late = f"it could not begin within {self._limits.max_defer_s:g} s: {reason}"
                        return self.record_skipped(request, late, follow)
                    if reason != told:
                        self._event("fault.waiting", {"kind": request.kind, "reason": reason})
                        told = reason
                        if waiting is not None:
                            waiting(reason)
                    until_s = deadline_s if until_s is None else until_s
                    await unless(changed, self._clock.sleep(until_s - now))

    def _decide(self, request: FaultRequest, fault: Fault, healthy: frozenset[str]) -> Decision:
        """Ask the arbiter; what it would grant still waits for those who came before."""
        state = self._state(request, fault, healthy)
        decision = self._arbiter.request(request, fault, self._clock.now(), self._locks(), state)
        if isinstance(decision, Granted) and not overlaps(request) and self._queue[0] is not request:
            return Wait(None, f"{self._queue[0].kind} came before and still waits")
        return decision

    def _register(self, request: FaultRequest, fault: Fault, target: str, follow: Sink | None) -> Instance:
        if request.target is None:
            self._turns[fault.name] += 1
        instance = Instance(fault, request, self._new_record(request, target))
        self._active[instance.id] = instance
        if follow is not None:
            self._follow[instance.id] = follow
        return instance

    def _release(self, instance: Instance) -> None:
        del self._active[instance.id]
        self._follow.pop(instance.id, None)
        record = instance.record
        instants = (record.recovered_s, record.reverted_s, record.active_s, record.injected_s)
        if (over_s := next((s for s in instants if s is not None), None)) is not None:
            if record.recovered_s is None:
                over_s = self._clock.now()  # it was watched until now and did not recover
            self._recovered_s = max(over_s, self._recovered_s or over_s)
        self._notify()

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

    def _state(self, request: FaultRequest, fault: Fault, healthy: frozenset[str]) -> ChaosState:
        return ChaosState(
            backends=tuple(self._target.backend_names()),
            healthy=healthy,
            missing=frozenset(need for need in fault.needs if not self._target.supports(need)),
            recovered_s=self._recovered_s,
            turn=self._turns[request.kind],
            stopped=self._stopped(),
        )

    def _stopped(self) -> str:
        if self._stopping:
            return "the run is stopping"
        if self.dirty:
            return f"the run is dirty: {self.dirty}"
        return self.guarded

    def _locks(self) -> list[ActiveFault]:
        return [
            ActiveFault(
                it.id,
                it.fault.name,
                it.record.target,
                it.fault.resources(it.record.target),
                it.fault.takes_backend_away,
            )
            for it in self._active.values()
        ]

    def _new_record(self, request: FaultRequest, target: str) -> FaultRecord:
        record = FaultRecord(self._next_id, request.kind, target, request.source, request.planned_s)
        self._next_id += 1
        return record

    def _report(self, name: str, instance: Instance, data: Mapping[str, Any]) -> None:
        """Pass a change on to all who listen; one that fails does not keep it from the others."""
        record = instance.record
        listeners: list[Callable[[], object]] = [
            lambda: self._event(name, {**_named(record), **_instants(record), **data}),
            lambda: self._sink(record),
        ]
        if (follow := self._follow.get(instance.id)) is not None:
            listeners.append(lambda: follow(record))
        trouble: list[Exception] = []
        for listener in listeners:
            try:
                listener()
            except Exception as error:  # noqa: BLE001  (raised below, once all have been told)
                trouble.append(error)
        if trouble:
            raise ExceptionGroup(f"{name} could not be recorded", trouble)

    def _ended(self, task: asyncio.Task[FaultRecord]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._event(
                "fault.crashed", {"task": task.get_name(), "reason": f"{type(error).__name__}: {error}"}
            )

    def _became_dirty(self, reason: str) -> None:
        self.dirty = self.dirty or reason
        self._heal_all()
        self._event("run.dirty", {"reason": reason})
        self._on_dirty(reason)

    def _heal_all(self) -> None:
        for instance in self._active.values():
            instance.end.set()
        self._notify()

    def _notify(self) -> None:
        """Wake all who wait for a change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _completed(request: FaultRequest, fault: Fault) -> FaultRequest:
    """Return an object of its own with what a hand-made wish left open filled in; a transition never holds."""
    hold_s = request.hold_s
    if fault.shape is FaultShape.TRANSITION:
        hold_s = 0.0
    elif request.source is Source.INJECT and hold_s <= 0:
        hold_s = fault.default_hold_s
    return replace(request, hold_s=hold_s)


def _named(record: FaultRecord) -> dict[str, Any]:
    return {"fault": record.id, "kind": record.kind, "target": record.target, "source": record.source.value}


def _instants(record: FaultRecord) -> dict[str, Any]:
    """Return what is known of the record so far, for an event."""
    values = {
        "injected_s": record.injected_s,
        "active_s": record.active_s,
        "reverted_s": record.reverted_s,
        "recovered_s": record.recovered_s,
        "recovery_s": record.recovery_s,
        "outcome": record.outcome.value if record.outcome is not None else None,
        "reason": record.reason or None,
    }
    return {key: value for key, value in values.items() if value is not None}
