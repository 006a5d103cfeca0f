"""The recovery watch: returns when traffic has calmed, or with what is known when the time is up."""

from __future__ import annotations

import asyncio

from soak.clock import RunClock
from soak.measure.facts import SecondFacts
from soak.watch import TrafficRecoveryWatch
from tests.fakes import FakeClock


def second(n: int, failed: int = 0, due: float | None = None) -> SecondFacts:
    return SecondFacts(n, 100, 100, failed, 0.001, last_failure_due_s=due, steady=n < 10)


async def test_it_returns_once_three_calm_seconds_followed_the_last_failure():
    """Recovered at the last failure's due instant."""
    watch = TrafficRecoveryWatch(RunClock(FakeClock(12.0), 0), remembered_s=100)
    for n in range(10):
        watch.add(second(n))
    wait = asyncio.ensure_future(watch.recovered(1, [10.0], 30.0))
    watch.add(second(10, 5, 10.8))
    for n in (11, 12):
        watch.add(second(n))
        await asyncio.sleep(0)
        assert not wait.done()
    watch.add(second(13))
    found = await wait
    assert (10.8, 0.8) == (found.recovered_s, round(found.recovery_s or 0, 6))
    assert "upper_s" in found.detail


async def test_traffic_that_never_calms_is_not_recovered():
    """None, with the edges' own lengths in the detail."""
    watch = TrafficRecoveryWatch(RunClock(FakeClock(50.0), 0), remembered_s=100)
    for n in range(16):
        watch.add(second(n, 5 if n >= 10 else 0, n + 0.5 if n >= 10 else None))
    found = await watch.recovered(1, [10.0], 1.0)
    assert found.recovered_s is None
    assert found.detail["edges"][0]["bad_seconds"] == 6
