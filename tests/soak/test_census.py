"""The pulse: beats on time, and a late beat is a stall of the daemon, with its length."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from soak.census import PULSE_S, VITALS_EVERY_S, pulse, watch_vitals
from soak.clock import RunClock
from soak.model import Unwell, Vital
from tests.fakes import FakeClock


async def run_for(clock: FakeClock, seconds: float, step: float) -> None:
    done = 0.0
    while done < seconds:
        await clock.advance(step)
        done += step


async def test_a_pulse_beats_and_shows_twice_a_second():
    """No stall while it is on time."""
    clock = FakeClock()
    beats: list[str] = []
    stalls: list[Unwell] = []
    task = asyncio.ensure_future(
        pulse(RunClock(clock, 0), lambda: beats.append("beat"), lambda: beats.append("show"), stalls.append)
    )
    await run_for(clock, 2.0, PULSE_S)
    task.cancel()
    assert beats[:4] == ["beat", "show", "beat", "show"]
    assert stalls == []


async def test_a_daemon_that_stood_still_says_for_how_long():
    """A jump of 20 s between two beats is 20 s unwell, by the monotonic clock."""

    class Jumping(FakeClock):
        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(0)
            self.jumps = getattr(self, "jumps", 0) + 1
            if self.jumps > 1:
                await asyncio.Event().wait()
            self.ahead += int((seconds + 20.0) * 1e9)

        ahead = 0

        def monotonic_ns(self) -> int:
            return super().monotonic_ns() + self.ahead

    stalls: list[Unwell] = []
    task = asyncio.ensure_future(pulse(RunClock(Jumping(), 0), lambda: None, lambda: None, stalls.append))
    for _ in range(10):
        await asyncio.sleep(0)
    task.cancel()
    assert [(0.0, 20.5)] == [(s.from_s, s.to_s) for s in stalls]
    assert "20.0 s" in stalls[0].reason


async def test_vitals_are_looked_at_every_five_seconds_without_drift():
    """Looks start on multiples of five seconds however long each takes."""
    clock = FakeClock()
    looks: list[float] = []

    async def look(at_s: float) -> Sequence[Vital]:
        looks.append(at_s)
        await clock.sleep(0.7)
        return []

    task = asyncio.ensure_future(watch_vitals(RunClock(clock, 0), look, lambda _: None))
    await run_for(clock, 16.0, 0.1)
    task.cancel()
    assert [0.0, VITALS_EVERY_S, 2 * VITALS_EVERY_S, 3 * VITALS_EVERY_S] == [round(s, 6) for s in looks]
