"""Drives the fault timeline with APScheduler, but by the monotonic clock.

APScheduler keeps its appointments in wall-clock time. A wall clock that is stepped (NTP, an operator, a resumed virtual
machine) would bunch the faults of the next hour together or put them off for an hour. So the truth of an appointment
is its instant on the monotonic clock, in seconds since the start of the run; APScheduler's date jobs are only the
alarm clocks. A watch compares both clocks once a second and just when the next item is due; when they have moved
apart, all alarms are set anew, and a step is recorded as ``clock.stepped``. An alarm that rings early is set again; one
that APScheduler calls missed is believed only if the monotonic clock agrees.

The only module that imports apscheduler. It decides when, never what: items are opaque.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, Protocol, TypeVar

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.date import DateTrigger

from soak.clock import NS, Clock, RunClock
from soak.log import get_logger
from soak.tasks import cancel, spawn

GRACE_S = 10.0
"""An item later than this is not begun any more: it is a misfire."""
STEP_S = 0.5
"""A change of wall minus monotonic time larger than this, between two looks, is a step and an event."""
SLEW_S = 0.05
"""Alarms are set anew, silently, when the clocks have drifted apart by more than this."""
LOOK_EVERY_S = 1.0
WINDOW = 32
"""How many alarms are set at a time; the rest of a month's timeline waits in a plain list."""
_EARLY_S = 0.002
_RESCUE_AFTER_S = 0.5

log = get_logger("soak.scheduler")


class Planned(Protocol):
    """What the scheduler must know of an item."""

    @property
    def planned_s(self) -> float:
        """Seconds since the start of the run."""
        ...


T = TypeVar("T", bound=Planned)


@dataclass(frozen=True, slots=True)
class Step:
    """What one look at both clocks showed. Seconds; positive when the wall clock jumped forward."""

    size_s: float
    """Change of wall minus monotonic time since the last look."""
    drift_s: float
    """Change since the alarms were last set."""

    @property
    def is_step(self) -> bool:
        """Whether this was a jump rather than a slew."""
        return abs(self.size_s) > STEP_S

    @property
    def needs_anchor(self) -> bool:
        """Whether the alarms must be set anew."""
        return abs(self.drift_s) > SLEW_S


class StepWatch:
    """Compares wall time with monotonic time. Pure: takes instants, returns what changed."""

    def __init__(self, wall_s: float, monotonic_s: float) -> None:
        self._last = self._anchor = wall_s - monotonic_s

    def look(self, wall_s: float, monotonic_s: float) -> Step:
        """Compare with the last look and with the anchor."""
        offset = wall_s - monotonic_s
        step = Step(size_s=offset - self._last, drift_s=offset - self._anchor)
        self._last = offset
        return step

    def anchored(self) -> None:
        """The alarms were set by the offset of the last look."""
        self._anchor = self._last

    def wall_of(self, monotonic_s: float) -> float:
        """Return the wall time at which the monotonic clock will show this, by the anchor."""
        return self._anchor + monotonic_s


def both_clocks(clock: Clock) -> tuple[float, float]:
    """Return wall and monotonic seconds of the same instant: read again when we were stopped between the two."""
    for _ in range(5):
        before = clock.monotonic_ns()
        wall_s = clock.wall_s()
        after = clock.monotonic_ns()
        if after - before < NS // 200:
            break
    return wall_s, (before + after) / 2 / NS


class FaultScheduler(Generic[T]):
    """Calls ``on_due`` once for each planned item, at its monotonic instant and in order, or ``on_misfire`` once.

    ``on_due`` runs in a task of its own that ``stop`` does not touch: whoever runs a fault also ends it. It is given
    the item; an error in it is logged and reported as ``schedule.failed``. ``on_misfire`` is given the item and how late
    it was, in seconds. ``on_event`` is given a dotted name and JSON data.
    """

    def __init__(
        self,
        planned: Sequence[T],
        *,
        clock: Clock,
        run_clock: RunClock,
        on_due: Callable[[T], Awaitable[object]],
        on_misfire: Callable[[T, float], object],
        on_event: Callable[[str, Mapping[str, Any]], object],
        grace_s: float = GRACE_S,
    ) -> None:
        self._items = sorted(planned, key=lambda item: item.planned_s)
        self._clock, self._run_clock = clock, run_clock
        self._on_due, self._on_misfire, self._on_event = on_due, on_misfire, on_event
        self._grace_s = grace_s
        self._next = 0  # first item that has no alarm yet
        self._armed: dict[int, str] = {}  # index of an item whose hour has not come -> id of its alarm
        self._alarms = 0
        self._missing: set[int] = set()  # overdue items that had no alarm at the last look
        self._watch = StepWatch(*both_clocks(clock))
        self._running: set[asyncio.Task[None]] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._apscheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"misfire_grace_time": max(1, int(grace_s)), "coalesce": True}
        )

    def start(self) -> None:
        """Begin; needs a running event loop. Items that are already due ring at once."""
        self._apscheduler.add_listener(
            self._job_event, EVENT_JOB_MISSED | EVENT_JOB_ERROR | EVENT_JOB_MAX_INSTANCES
        )
        self._apscheduler.start()
        self._fill()
        self._watcher = spawn(self._watch_clocks(), name="scheduler-clock-watch")

    async def stop(self) -> None:
        """Ring no more. What ``on_due`` already began goes on; see ``drain``. Idempotent."""
        await cancel(self._watcher)
        if self._apscheduler.running:
            self._apscheduler.shutdown(wait=False)
            await asyncio.sleep(0)  # APScheduler shuts down in a callback of the loop

    async def drain(self) -> None:
        """Wait for the end of everything that ``on_due`` began."""
        while self._running:
            await asyncio.wait(set(self._running))

    @property
    def upcoming(self) -> Sequence[T]:
        """Items whose hour has not come, soonest first."""
        waiting = [self._items[i] for i in sorted(self._armed)]
        return (*waiting, *self._items[self._next :])

    @property
    def next(self) -> T | None:
        """The item that is due next."""
        index = min(self._armed, default=self._next)
        return self._items[index] if index < len(self._items) else None

    def _fill(self) -> None:
        while self._next < len(self._items) and len(self._armed) < WINDOW:
            self._arm(self._next)
            self._next += 1

    def _arm(self, index: int) -> None:
        """Set the alarm of an item, in place of the one it had. Each alarm has an id of its own."""
        self._remove_alarm(self._armed.get(index))
        self._alarms += 1
        alarm = f"{index:08d}.{self._alarms:08d}"  # APScheduler orders jobs of one instant by id
        self._armed[index] = alarm
        due_s = self._run_clock.t0_ns / NS + self._items[index].planned_s
        self._apscheduler.add_job(
            self._ring,
            DateTrigger(datetime.fromtimestamp(self._watch.wall_of(due_s), UTC), UTC),
            args=(index,),
            id=alarm,
        )

    def _remove_alarm(self, alarm: str | None) -> None:
        if alarm is not None:
            try:
                self._apscheduler.remove_job(alarm)
            except JobLookupError:  # it rings just now
                log.debug("schedule.alarm_gone", alarm=alarm)

    async def _ring(self, index: int) -> None:
        """APScheduler's job. Trusts the monotonic clock alone; a second ring for the same item does nothing."""
        if index not in self._armed:
            return
        item = self._items[index]
        late_s = self._run_clock.now() - item.planned_s
        if late_s < -_EARLY_S:
            self._look(anchor=True)
            return
        del self._armed[index]
        self._fill()
        if late_s > self._grace_s:
            self._misfired(item, late_s)
        else:
            task = spawn(self._run(item), name=f"due-{index}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _run(self, item: T) -> None:
        try:
            await self._on_due(item)
        except Exception as error:  # one broken item must not end the timeline; it is an event
            log.exception("schedule.failed", planned_s=item.planned_s)
            self._on_event("schedule.failed", {"planned_s": item.planned_s, "error": repr(error)})

    def _misfired(self, item: T, late_s: float) -> None:
        self._on_event("schedule.misfired", {"planned_s": item.planned_s, "late_s": round(late_s, 3)})
        self._on_misfire(item, late_s)

    def _job_event(self, event: Any) -> None:
        """Judge what APScheduler says of a job by the monotonic clock."""
        index = int(event.job_id.partition(".")[0])
        if event.code == EVENT_JOB_ERROR:
            self._on_event("schedule.failed", {"job": event.job_id, "error": repr(event.exception)})
        elif event.code == EVENT_JOB_MAX_INSTANCES:
            self._on_event("schedule.overlapped", {"job": event.job_id})
        if self._armed.get(index) != event.job_id:
            return  # another alarm of the item is set, or its hour has come
        late_s = self._run_clock.now() - self._items[index].planned_s
        if event.code == EVENT_JOB_MISSED and late_s > self._grace_s:
            del self._armed[index]
            self._fill()
            self._misfired(self._items[index], late_s)
        else:
            self._look(anchor=True)

    def _look(self, *, anchor: bool = False) -> None:
        """Compare the clocks; set all alarms anew when they have moved apart, or when told to."""
        step = self._watch.look(*both_clocks(self._clock))
        if step.is_step:
            log.warning("clock.stepped", step_s=round(step.size_s, 3))
            self._on_event("clock.stepped", {"step_s": round(step.size_s, 3)})
        if step.needs_anchor or anchor:
            self._watch.anchored()
            for index in sorted(self._armed):
                self._arm(index)

    def _alarm_ids(self) -> set[str]:
        return {job.id for job in self._apscheduler.get_jobs()}

    def _rescue(self) -> None:
        """Set the alarm of an overdue item again when APScheduler has lost it (it drops a job it cannot submit).

        One look does not show that: after a stall of the process APScheduler has taken the alarm off, and the item rings
        in the next turn of the loop.
        """
        before, self._missing = self._missing, set()
        overdue = [
            i for i in self._armed if self._run_clock.now() - self._items[i].planned_s > _RESCUE_AFTER_S
        ]
        if not overdue:
            return
        alarms = self._alarm_ids()
        for index in sorted(overdue):
            if self._armed[index] in alarms:
                continue
            if index in before:
                self._on_event("schedule.rescued", {"planned_s": self._items[index].planned_s})
                self._arm(index)
            else:
                self._missing.add(index)

    async def _watch_clocks(self) -> None:
        while True:
            due = self.next
            wait_s = LOOK_EVERY_S
            if due is not None:
                until_due_s = due.planned_s - self._run_clock.now()
                if until_due_s > 0:
                    wait_s = min(wait_s, until_due_s + _EARLY_S)
            await self._clock.sleep(wait_s)
            try:
                self._look()
                self._rescue()
            except Exception:  # a watch that ended would lose faults at the next step
                log.exception("schedule.watch_failed")
