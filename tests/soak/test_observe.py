"""The observer: sightings fold, waits end when they must, and instants are the earliest of both witnesses."""

from __future__ import annotations

import asyncio

from soak.clock import RunClock
from soak.model import Sighting, SightKind, SightVia
from soak.observe import TrafficObserver
from tests.fakes import FakeClock


def observer(clock: FakeClock | None = None, **more) -> TrafficObserver:
    return TrafficObserver(RunClock(clock or FakeClock(), 0), **more)


def traffic(kind: SightKind, value: str, first_s: float, last_s: float, count: int = 1) -> Sighting:
    return Sighting(kind, value, SightVia.TRAFFIC, first_s, last_s, count)


def probe(kind: SightKind, value: str, at_s: float) -> Sighting:
    return Sighting(kind, value, SightVia.PROBE, at_s, at_s, 1)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_sightings_of_one_value_fold_to_first_and_last():
    """Whoever sees a value, its first and last instants are the extremes of all sights."""
    o = observer()
    o.see(traffic(SightKind.GENERATION, "2", 5.2, 5.9))
    o.see(traffic(SightKind.GENERATION, "2", 6.0, 6.9))
    o.see(probe(SightKind.GENERATION, "2", 5.1))
    assert o.first_seen(SightKind.GENERATION, "2") == 5.1
    assert o.last_seen("generation", "2") == 6.9
    assert o.last_seen("generation", "3") is None


async def test_a_generation_seen_by_the_prober_waits_for_traffics_word_about_that_second():
    """Traffic's report comes a second late but may know an earlier answer; its instant wins."""
    o = observer()
    wait = asyncio.ensure_future(o.generation_seen(2, 5.0))
    await settle()
    o.see(probe(SightKind.GENERATION, "2", 5.6))
    await settle()
    assert not wait.done()
    o.see(traffic(SightKind.GENERATION, "2", 5.3, 5.9))
    o.covered(6.0)
    assert await wait == 5.3


async def test_a_generation_that_never_comes_is_none_after_the_time():
    """No sight, no instant."""
    assert await observer().generation_seen(2, 0.01) is None


async def test_a_serial_counts_only_when_a_fresh_handshake_of_the_prober_showed_it():
    """Traffic alone does not verify a rotation; the prober does, and is asked to hurry."""
    hurried: list[float] = []
    o = observer(hurry=hurried.append)
    o.see(traffic(SightKind.SERIAL, "ab", 3.0, 3.0))
    o.covered(9.0)
    assert await o.serial_seen("ab", 0.01) is None
    o.see(probe(SightKind.SERIAL, "ab", 4.0))
    assert await o.serial_seen("ab", 0.01) == 3.0
    assert hurried == [0.01, 0.01]


async def test_an_origin_is_silent_once_traffic_covers_a_moment_without_it():
    """Silence needs coverage: no report is not silence."""
    clock = FakeClock(10.0)
    o = observer(clock, silence_s=1.0)
    o.see(traffic(SightKind.ORIGIN, "b1", 1.0, 10.4, 50))
    wait = asyncio.ensure_future(o.origin_silent("b1", 5.0))
    await settle()
    o.covered(11.0)
    await settle()
    assert not wait.done()
    o.covered(12.0)
    assert await wait == 10.4


async def test_an_origin_that_goes_on_answering_is_never_silent():
    """Each new answer starts the silence anew."""
    clock = FakeClock(10.0)
    o = observer(clock, silence_s=1.0)
    wait = asyncio.ensure_future(o.origin_silent("b1", 0.05))
    for second in range(10, 14):
        o.see(traffic(SightKind.ORIGIN, "b1", second, second + 0.9))
        o.covered(second + 1.0)
        await settle()
    assert await wait is None


async def test_an_origin_never_seen_is_silent_since_the_question():
    """A backend out of rotation counts from when one asked."""
    o = observer(FakeClock(10.0), silence_s=1.0)
    o.covered(11.5)
    assert await o.origin_silent("b9", 0.01) == 10.0


async def test_an_origin_is_back_with_its_first_answer_after_the_instant():
    """Answers from before do not count."""
    o = observer()
    o.see(traffic(SightKind.ORIGIN, "b1", 1.0, 20.0))
    wait = asyncio.ensure_future(o.origin_seen("b1", 20.0, 1.0))
    await settle()
    assert not wait.done()
    o.see(traffic(SightKind.ORIGIN, "b1", 21.2, 21.9))
    assert await wait == 21.9


async def test_memory_is_bounded_however_many_values_a_proxy_invents():
    """The oldest values are forgotten."""
    o = observer()
    for n in range(2500):
        o.see(traffic(SightKind.GENERATION, f"g{n}", 0.0, float(n)))
    assert o.last_seen("generation", "g2499") == 2499.0
    assert o.last_seen("generation", "g0") is None
