"""The fault scheduler: each item once, at its monotonic instant, in order, whatever the wall clock does."""

import asyncio
import datetime as dt
import time
from dataclasses import dataclass
from typing import Any

import pytest
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES, JobExecutionEvent, JobSubmissionEvent

from soak.clock import NS, RunClock, SystemClock
from soak.scheduler import FaultScheduler, StepWatch, both_clocks


@dataclass(frozen=True)
class Item:
    planned_s: float
    name: str = ""


class SteppableClock(SystemClock):
    """The machine's clocks, with a wall clock that can be stepped and a monotonic clock that can be advanced."""

    def __init__(self):
        self.wall_step_s = 0.0
        self.advanced_s = 0.0

    def wall_s(self):
        return super().wall_s() + self.wall_step_s

    def monotonic_ns(self):
        return super().monotonic_ns() + round(self.advanced_s * NS)

    def stopped(self, seconds):
        """The process was stopped for a while: both clocks went on."""
        self.advanced_s += seconds
        self.wall_step_s += seconds


@pytest.fixture
def clock(monkeypatch):
    """A clock whose wall time is also what APScheduler reads."""
    clock = SteppableClock()

    class SteppedDatetime(dt.datetime):
        @classmethod
        def now(cls, tz=None):
            return dt.datetime.fromtimestamp(clock.wall_s(), tz)

    monkeypatch.setattr("apscheduler.schedulers.base.datetime", SteppedDatetime)
    monkeypatch.setattr("apscheduler.executors.base.datetime", SteppedDatetime)
    return clock


class Recorder:
    """Runs a scheduler and keeps what it did, and how late this process was meanwhile for reasons of the machine."""

    def __init__(self, clock, planned, **options):
        self.run_clock = RunClock(clock, clock.monotonic_ns())
        self.fired: list[tuple[Item, float]] = []
        self.misfired: list[tuple[Item, float]] = []
        self.events: list[tuple[str, Any]] = []
        self.stood_still_s = 0.0
        self.scheduler = FaultScheduler(
            planned,
            clock=clock,
            run_clock=self.run_clock,
            on_due=self.on_due,
            on_misfire=lambda item, late_s: self.misfired.append((item, late_s)),
            on_event=lambda name, data: self.events.append((name, data)),
            **options,
        )

    async def on_due(self, item):
        self.fired.append((item, self.run_clock.now()))

    async def beat(self):
        """Sum up by how much sleeps of 10 ms were longer."""
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(0.01)
            self.stood_still_s += max(0.0, time.monotonic() - before_s - 0.01)

    async def __aenter__(self):
        self.metronome = asyncio.ensure_future(self.beat())
        self.scheduler.start()
        return self

    async def __aexit__(self, *exc):
        await asyncio.sleep(0.011)  # a beat whose end is due has ended
        self.metronome.cancel()
        await self.scheduler.stop()
        await self.scheduler.drain()

    async def until(self, count):
        async with asyncio.timeout(30):
            while len(self.fired) + len(self.misfired) < count:
                await asyncio.sleep(0.01)

    async def until_told(self, event, count):
        async with asyncio.timeout(30):
            while len(self.names(event)) < count:
                await asyncio.sleep(0.01)

    def names(self, event):
        return [data for name, data in self.events if name == event]


def assert_each_once_on_time(recorder, planned, late_s=1.0):
    assert list(planned) == [item for item, _ in recorder.fired]
    assert [] == recorder.misfired
    for item, at_s in recorder.fired:
        latest_s = item.planned_s + late_s + recorder.stood_still_s
        assert item.planned_s - 0.01 <= at_s <= latest_s, (item, at_s)


# --- the pure part -------------------------------------------------------------------------------------------------


def test_clocks_that_run_together_are_no_step():
    """As long as wall and monotonic time pass alike, nothing is seen."""
    watch = StepWatch(1000.0, 5.0)
    step = watch.look(1060.0, 65.0)

    assert (False, False) == (step.is_step, step.needs_anchor)
    assert 1095.0 == watch.wall_of(100.0)


@pytest.mark.parametrize("size_s", [3600.0, -3600.0, 2.0, -0.6])
def test_jump_of_the_wall_clock_is_a_step_of_its_size(size_s):
    """A jump between two looks is a step, once, with its sign."""
    watch = StepWatch(1000.0, 5.0)
    step = watch.look(1001.0 + size_s, 6.0)
    watch.anchored()
    after = watch.look(1002.0 + size_s, 7.0)

    assert (True, True) == (step.is_step, step.needs_anchor)
    assert size_s == pytest.approx(step.size_s)
    assert (False, False) == (after.is_step, after.needs_anchor)
    assert 1095.0 + size_s == pytest.approx(watch.wall_of(100.0))


def test_slewed_clock_is_anchored_again_but_is_no_step():
    """NTP's gentle corrections add up; alarms follow them without an event."""
    watch = StepWatch(1000.0, 0.0)
    seen = [watch.look(1000.0 + i * 1.01, float(i)) for i in range(1, 8)]

    assert not any(step.is_step for step in seen)
    assert [False] * 5 + [True] * 2 == [step.needs_anchor for step in seen]


def test_clocks_are_read_again_when_the_process_was_stopped_between_them():
    """A pair of readings that lie seconds apart would look like a step of the wall clock."""

    class StutteringClock(SystemClock):
        def __init__(self):
            self.mono = iter([0, 20 * NS, 20 * NS, 20 * NS + 100])
            self.wall = iter([1020.0, 1020.0])

        def monotonic_ns(self):
            return next(self.mono)

        def wall_s(self):
            return next(self.wall)

    wall_s, monotonic_s = both_clocks(StutteringClock())

    assert 1000.0 == pytest.approx(wall_s - monotonic_s)


# --- with the real APScheduler -------------------------------------------------------------------------------------


async def test_items_ring_once_in_order_at_their_instants(clock):
    """Also when they are given unsorted and when two share an instant."""
    planned = [Item(0.2, "a"), Item(0.2, "b"), Item(0.35, "c"), Item(0.5, "d")]
    async with Recorder(clock, reversed(planned)) as recorder:
        await recorder.until(4)

    assert_each_once_on_time(recorder, [planned[1], planned[0], planned[2], planned[3]])
    assert [] == recorder.events


@pytest.mark.parametrize("step_s", [3600.0, -3600.0, 2.0, -2.0])
async def test_step_of_the_wall_clock_neither_bunches_nor_loses_faults(clock, step_s):
    """The wall clock jumps while alarms are set: each still rings once, at its monotonic instant, and the step is told."""
    planned = [Item(s / 8, str(s)) for s in range(1, 11)]
    async with Recorder(clock, planned) as recorder:
        await recorder.until(2)
        clock.wall_step_s += step_s
        await recorder.until(10)
        await recorder.until_told("clock.stepped", 1)

    assert_each_once_on_time(recorder, planned)
    assert [step_s] == [pytest.approx(d["step_s"], abs=0.1) for d in recorder.names("clock.stepped")]


@pytest.mark.parametrize("step_s", [3600.0, -3600.0, 2.0])
async def test_step_that_apscheduler_sees_first_is_put_right(clock, step_s, monkeypatch):
    """Even when the alarms ring by the stepped clock before the watch looks, no item is early, missed or doubled."""
    monkeypatch.setattr("soak.scheduler.LOOK_EVERY_S", 0.4)
    planned = [Item(0.5 + s / 10, str(s)) for s in range(8)]
    async with Recorder(clock, planned) as recorder:
        await asyncio.sleep(0.1)
        clock.wall_step_s += step_s
        recorder.scheduler._apscheduler.wakeup()
        await recorder.until(8)
        await recorder.until_told("clock.stepped", 1)

    assert_each_once_on_time(recorder, planned)
    assert 1 == len(recorder.names("clock.stepped"))


async def test_there_and_back_again(clock):
    """Two steps that cancel each other out are two events and no harm."""
    planned = [Item(s / 8, str(s)) for s in range(1, 9)]
    async with Recorder(clock, planned) as recorder:
        await recorder.until(1)
        clock.wall_step_s += 3600
        await recorder.until(4)
        await recorder.until_told("clock.stepped", 1)
        clock.wall_step_s -= 3600
        await recorder.until(8)
        await recorder.until_told("clock.stepped", 2)

    assert_each_once_on_time(recorder, planned)
    assert [3600, -3600] == [round(d["step_s"]) for d in recorder.names("clock.stepped")]


async def test_slew_too_small_to_be_a_step_does_not_make_items_early(clock):
    """A wall clock that is 40 ms ahead rings the alarm early; it is set again, and no event is made of it."""
    planned = [Item(0.3), Item(0.6)]
    async with Recorder(clock, planned) as recorder:
        clock.wall_step_s += 0.04
        await recorder.until(2)

    assert_each_once_on_time(recorder, planned)
    assert [] == recorder.events


async def test_daemon_that_was_stopped_tells_each_misfire_once(clock):
    """Items more than the grace late are misfires with their lateness; those within it are begun late; later ones on time."""
    planned = [Item(9.0, "lost"), Item(19.0, "late"), Item(21.0, "on time")]
    async with Recorder(clock, planned) as recorder:
        await asyncio.sleep(0.1)
        clock.stopped(20.0)
        recorder.scheduler._apscheduler.wakeup()
        await recorder.until(3)
        await asyncio.sleep(0.05)

    ((lost, late_s),) = recorder.misfired
    assert "lost" == lost.name
    assert 11.0 <= late_s <= 11.5 + recorder.stood_still_s
    assert ["late", "on time"] == [item.name for item, _ in recorder.fired]
    assert 1 == len(recorder.names("schedule.misfired"))
    assert [] == recorder.names("clock.stepped"), "both clocks went on: that is no step"


async def test_misfire_is_found_by_the_monotonic_clock_when_the_wall_clock_hides_it(clock):
    """Stopped for 20 s, and the wall clock set back meanwhile: APScheduler thinks it is on time; it is not."""
    async with Recorder(clock, [Item(0.3, "lost")]) as recorder:
        clock.advanced_s += 20.0
        await recorder.until(1)

    assert ["lost"] == [item.name for item, _ in recorder.misfired]
    assert [] == recorder.fired


async def test_item_that_was_due_before_the_start_rings_at_once(clock):
    """A start that took a moment does not lose the first item."""
    recorder = Recorder(clock, [Item(0.0, "first")])
    await asyncio.sleep(0.05)
    async with recorder:
        await recorder.until(1)

    assert ["first"] == [item.name for item, _ in recorder.fired]


async def test_long_timeline_is_armed_in_a_sliding_window(clock, monkeypatch):
    """Only a few alarms are set at a time, and none is left out."""
    monkeypatch.setattr("soak.scheduler.WINDOW", 4)
    planned = [Item(0.1 + i / 100, str(i)) for i in range(40)]
    recorder = Recorder(clock, planned)
    assert planned[0] == recorder.scheduler.next
    async with recorder:
        assert 4 == len(recorder.scheduler._apscheduler.get_jobs())
        assert planned == list(recorder.scheduler.upcoming)
        await recorder.until(40)

    assert_each_once_on_time(recorder, planned)
    assert (None, ()) == (recorder.scheduler.next, recorder.scheduler.upcoming)


async def test_stop_rings_no_more_but_lets_what_began_go_on(clock):
    """A fault under way is its runner's to end; items not yet due stay listed."""
    began, gate, done = asyncio.Event(), asyncio.Event(), []

    async def on_due(item):
        began.set()
        await gate.wait()
        done.append(item.name)

    recorder = Recorder(clock, [Item(0.05, "began"), Item(60.0, "never")])
    recorder.scheduler._on_due = on_due
    recorder.scheduler.start()
    await began.wait()
    await recorder.scheduler.stop()
    await recorder.scheduler.stop()
    clock.stopped(61.0)
    await asyncio.sleep(0.2)
    gate.set()
    await recorder.scheduler.drain()

    assert ["began"] == done
    assert ["never"] == [item.name for item in recorder.scheduler.upcoming]


async def test_error_of_one_item_is_an_event_and_the_next_one_rings(clock):
    """One broken item does not end the timeline."""
    recorder = Recorder(clock, [Item(0.05, "broken"), Item(0.1, "fine")])
    fired = recorder.on_due

    async def on_due(item):
        await fired(item)
        if item.name == "broken":
            raise ValueError("no such target")

    recorder.scheduler._on_due = on_due
    async with recorder:
        await recorder.until(2)

    assert ["broken", "fine"] == [item.name for item, _ in recorder.fired]
    assert ["ValueError('no such target')"] == [d["error"] for d in recorder.names("schedule.failed")]


async def test_alarm_that_apscheduler_lost_is_set_again(clock, monkeypatch):
    """APScheduler drops a job that it could not submit, without an event; the watch finds the overdue item."""
    monkeypatch.setattr("soak.scheduler.LOOK_EVERY_S", 0.1)
    async with Recorder(clock, [Item(0.05, "lost"), Item(0.1, "other")]) as recorder:
        recorder.scheduler._apscheduler.remove_job(recorder.scheduler._armed[0])
        await recorder.until(2)

    assert {"other", "lost"} == {item.name for item, _ in recorder.fired}
    assert 2 == len(recorder.fired)
    assert [0.05] == [d["planned_s"] for d in recorder.names("schedule.rescued")]


async def test_alarm_that_rings_after_a_stall_was_not_lost(clock):
    """The process stood still over the instant of an item: that rings at once, and nobody says that it had to be rescued."""
    async with Recorder(clock, [Item(0.05, "late"), Item(0.1, "later")]) as recorder:
        await asyncio.sleep(0)
        time.sleep(1.2)  # the whole process stands still
        await recorder.until(2)

    assert ["late", "later"] == [item.name for item, _ in recorder.fired]
    assert [] == recorder.events


async def test_what_apscheduler_refuses_or_breaks_is_an_event_and_rings_again(clock):
    """A job over its instance limit or with an error is told, and its alarm is set anew."""
    async with Recorder(clock, [Item(0.2, "x")]) as recorder:
        alarm = recorder.scheduler._armed[0]
        at = dt.datetime.now(dt.UTC)
        dispatch = recorder.scheduler._apscheduler._dispatch_event
        dispatch(JobSubmissionEvent(EVENT_JOB_MAX_INSTANCES, alarm, "default", [at]))
        again = recorder.scheduler._armed[0]
        dispatch(JobExecutionEvent(EVENT_JOB_ERROR, again, "default", at, exception=OSError("x")))
        await recorder.until(1)

    assert ["schedule.overlapped", "schedule.failed"] == [name for name, _ in recorder.events]
    assert_each_once_on_time(recorder, [Item(0.2, "x")])


async def test_watch_outlives_an_error_in_the_events_callback(clock, monkeypatch):
    """The clock watch goes on when somebody else's code fails in it."""
    monkeypatch.setattr("soak.scheduler.LOOK_EVERY_S", 0.05)
    recorder = Recorder(clock, [Item(0.6, "x")])
    seen = []

    def on_event(name, data):
        seen.append(name)
        raise RuntimeError("full disk")

    recorder.scheduler._on_event = on_event
    async with recorder:
        for steps in (1, 2):
            clock.wall_step_s += 3600
            async with asyncio.timeout(30):
                while len(seen) < steps:
                    await asyncio.sleep(0.01)
        await recorder.until(1)

    assert ["clock.stepped", "clock.stepped"] == seen
    assert ["x"] == [item.name for item, _ in recorder.fired]


def test_scheduler_is_built_before_the_loop_runs():
    """Construction needs no event loop and starts nothing."""
    clock = SystemClock()
    recorder = Recorder(clock, [Item(1.0)])

    assert not recorder.scheduler._apscheduler.running
    assert time.monotonic_ns() >= recorder.run_clock.t0_ns
