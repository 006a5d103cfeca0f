"""Takes wishes for faults, runs what is granted, and heals everything when the run ends.

The one place that knows which faults are active. What happens to one of them is ``chaos.lifecycle``; whether and when it
may begin is ``chaos.admission``. Every wish ends in a record: verified or not, skipped with its reason, never silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Protocol

from chaos.admission import Admission, EventSink, Waiting
from chaos.arbiter import ActiveFault, Arbiter, Refused, nearest
from chaos.fault import Fault, FaultContext, refused_params
from chaos.guard import AbortGuard
from chaos.instance import Instance
from chaos.journal import Journal
from chaos.lifecycle import Lifecycle, Limits
from chaos.model import FaultOutcome, FaultRecord, FaultRequest, FaultShape, Source
from chaos.target import Clock, Observer, RecoveryWatch, Scopes, Target

Sink = Callable[[FaultRecord], object]
"""Takes a record each time it changes; the last one is ``finished``."""


class Spawn(Protocol):
    """Starts a named task; ``soak.tasks.spawn``, or a ``TaskGroup``'s ``create_task``."""

    def __call__(self, coro: Coroutine[Any, Any, FaultRecord], *, name: str) -> asyncio.Task[FaultRecord]:
        """Start it."""
        ...


def _spawn(coro: Coroutine[Any, Any, FaultRecord], *, name: str) -> asyncio.Task[FaultRecord]:
    return asyncio.get_running_loop().create_task(coro, name=name)


class Runner:
    """Runs faults against one target.

    ``sink`` gets every record at every step, ``event`` every happening. Both are called on the loop and must not block.
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
        arbiter: Arbiter | None = None,
        guard: AbortGuard | None = None,
        limits: Limits | None = None,
        spawn: Spawn = _spawn,
    ) -> None:
        self.dirty = ""
        """Why the run is dirty; empty while it is not."""
        self._target = target
        self._clock = clock
        self._faults = faults
        self._sink = sink
        self._event = event
        self._guard = guard
        self._spawn = spawn
        self._next_id = 1
        self._generation = 0
        self._stopping = False
        self._hurry = asyncio.Event()
        self._running = 0
        self._active: dict[int, Instance] = {}
        self._follow: dict[int, Sink] = {}
        self._tasks: set[asyncio.Task[FaultRecord]] = set()
        limits = limits or Limits()
        self._admission = Admission(
            target,
            clock,
            arbiter or Arbiter(),
            max_defer_s=limits.max_defer_s,
            event=event,
            active=self._locks,
            stopped=self._stopped,
        )
        ctx = FaultContext(target, observer, clock, self.next_generation, limits.effect_timeout_s)
        self._lifecycle = Lifecycle(
            ctx, journal, scopes, recovery, limits, self._report, self._became_dirty, self._hurry
        )

    @property
    def active(self) -> tuple[FaultRecord, ...]:
        """Return the faults that were granted and have not recovered yet, in order of their ids."""
        return tuple(it.record for it in self._active.values())

    @property
    def guarded(self) -> str:
        """Why the abort guard stopped chaos; empty while it did not."""
        return self._guard.tripped if self._guard is not None else ""

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
            request = _completed(request, fault)
            answer = await self._admission.ask(request, fault, waiting)
            if isinstance(answer, Refused):
                return self.record_skipped(request, answer.reason, follow)
            instance = self._register(request, fault, answer.target, follow)  # no await since it was granted
            try:
                await self._lifecycle.live(instance)
            finally:
                self._release(instance)
            return instance.record
        finally:
            self._running -= 1
            self._admission.notify()

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

    async def stop(self, *, hurry: bool = False) -> None:
        """Skip what waits, heal what is active, and return when all of it has ended.

        With ``hurry`` waits for recovery are cut as well; healing never is. May be called again with it.
        """
        self._stopping = True
        if hurry:
            self._hurry.set()
        self._heal_all()
        while self._running or self._tasks:
            changed = self._admission.changed
            if self._running:
                await changed.wait()
            else:
                await asyncio.sleep(0)

    def _register(self, request: FaultRequest, fault: Fault, target: str, follow: Sink | None) -> Instance:
        instance = Instance(fault, request, self._new_record(request, target))
        self._active[instance.id] = instance
        if follow is not None:
            self._follow[instance.id] = follow
        return instance

    def _release(self, instance: Instance) -> None:
        del self._active[instance.id]
        self._follow.pop(instance.id, None)
        record = instance.record
        if record.recovered_s is not None:
            self._admission.calm(record.recovered_s)
        elif record.injected_s is not None:
            self._admission.calm(self._clock.now())  # it was watched until now and did not recover
        self._admission.notify()

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

    def _heal_all(self) -> None:
        for instance in self._active.values():
            instance.end.set()
        self._admission.notify()


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
