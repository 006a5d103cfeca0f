"""Clocks: the machine's and the run's."""

import asyncio
import time

from soak.clock import NS, RunClock, SystemClock, iso_utc


class FakeClock(SystemClock):
    def __init__(self):
        self.ns = 5 * NS
        self.slept = []

    def monotonic_ns(self):
        return self.ns

    async def sleep(self, seconds):
        self.slept.append(seconds)


async def test_run_clock_counts_from_the_start_of_the_run():
    """Negative before the start; instants of other processes convert exactly."""
    clock = FakeClock()
    run = RunClock(clock, 7 * NS)

    assert (-2.0, 0.5) == (run.now(), run.at(7 * NS + NS // 2))
    await run.sleep(3.0)
    assert [3.0] == clock.slept


def test_system_clock_reads_the_machines_clocks():
    """Monotonic time is CLOCK_MONOTONIC, which load workers share; wall time is the epoch's."""
    clock = SystemClock()

    assert time.monotonic_ns() <= clock.monotonic_ns() <= time.monotonic_ns()
    assert time.time() <= clock.wall_s() <= time.time()


async def test_sleep_of_a_negative_time_returns_and_a_long_one_can_be_cancelled():
    """A deadline that has passed is no error; a sleeper does not hold up an end."""
    clock = SystemClock()
    await asyncio.wait_for(clock.sleep(-1), 30)
    sleeper = asyncio.ensure_future(clock.sleep(1000))
    await asyncio.sleep(0)
    sleeper.cancel()

    assert [True] == [
        isinstance(e, asyncio.CancelledError) for e in await asyncio.gather(sleeper, return_exceptions=True)
    ]


def test_iso_utc():
    """Whole seconds, UTC, with a Z."""
    assert "2026-12-01T08:00:00Z" == iso_utc(1_796_112_000.75)
