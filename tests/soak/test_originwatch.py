"""The watch over the origins: totals that only grow, and an event the moment something came twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from chaos.target import TargetError
from soak.clock import RunClock
from soak.model import OriginTotals
from soak.originwatch import ORIGINS_EVERY_S, OriginWatch, flat
from tests.fakes import FakeClock


class Origins:
    """Origins that count what they are told to."""

    def __init__(self) -> None:
        self.counted: dict[str, dict[str, Any]] = {"b1": {"requests": 1}, "b2": {"requests": 2}}
        self.down: set[str] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = 0

    async def ask(self, name: str) -> Mapping[str, Any]:
        self.asked += 1
        await self.gate.wait()
        if name in self.down:
            raise TargetError(f"{name} is down")
        return dict(self.counted[name])


class Desk:
    """A watch and what came of it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.origins = Origins()
        self.kept: list[OriginTotals] = []
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        self.watch = OriginWatch(
            ("b1", "b2"),
            self.origins.ask,
            RunClock(self.clock, 0),
            keep=self.kept.append,
            on_event=lambda name, data: self.events.append((name, data)),
        )


@pytest.fixture
async def desk():
    return Desk()


async def test_every_origin_is_asked_every_five_seconds(desk):
    """On an absolute beat; what is kept says when."""
    task = asyncio.ensure_future(desk.watch.run())
    for _ in range(4):
        await desk.clock.advance(ORIGINS_EVERY_S)
    task.cancel()
    assert [0.0, 5.0, 10.0, 15.0] == [t.at_s for t in desk.kept][:4]
    assert {"b1": {"requests": 1}, "b2": {"requests": 2}} == desk.kept[0].counts


async def test_an_origin_that_starts_again_adds_to_what_it_had(desk):
    """A counter that fell began at zero."""
    for requests in (7, 9, 4, 5):
        desk.origins.counted["b1"] = {"requests": requests, "cache": {"etag": {"full": requests}}}
        await desk.watch.look()
    assert {"requests": 14, "cache.etag.full": 14} == desk.kept[-1].counts["b1"]
    assert {"requests": 2} == desk.kept[-1].counts["b2"]


async def test_a_second_delivery_is_told_when_it_is_seen(desk):
    """Once for each growth: who, how many more, how many in all, since when it may have happened."""
    for duplicates in (0, 3, 3, 5):
        desk.origins.counted["b2"] = {"duplicates": duplicates}
        await desk.clock.advance(1.0)
        await desk.watch.look()
    assert [
        ("origin.duplicates", {"name": "b2", "more": 3, "total": 3, "since_s": 1.0}),
        ("origin.duplicates", {"name": "b2", "more": 2, "total": 5, "since_s": 3.0}),
    ] == desk.events


async def test_a_silent_origin_keeps_its_totals(desk):
    """That is told once for each silence; the others are still asked."""
    await desk.watch.look()
    desk.origins.down = {"b1"}
    desk.origins.counted["b2"] = {"requests": 8}
    for _ in range(2):
        await desk.watch.look()
    assert {"b1": {"requests": 1}, "b2": {"requests": 8}} == desk.kept[-1].counts
    desk.origins.down = set()
    await desk.watch.look()
    desk.origins.down = {"b1"}
    await desk.watch.look()
    assert [("origin.not_counted", {"name": "b1", "error": "b1 is down"})] * 2 == desk.events


async def test_a_look_that_began_is_ended_before_the_next(desk):
    """A cancelled watch leaves no question without its answer on an origin's pipe; the last look comes after it."""
    desk.origins.gate.clear()
    task = asyncio.ensure_future(desk.watch.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    last = asyncio.ensure_future(desk.watch.look())
    for _ in range(5):
        await asyncio.sleep(0)
    assert 2 == desk.origins.asked
    desk.origins.gate.set()
    await last
    assert (4, 2) == (desk.origins.asked, len(desk.kept))


async def test_a_watch_that_is_cancelled_ends_its_look_first(desk):
    """The look is its own task: nobody else would know of it."""
    desk.origins.gate.clear()
    before = asyncio.all_tasks()
    task = asyncio.ensure_future(desk.watch.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    desk.origins.gate.set()
    await asyncio.wait({task})
    assert task.cancelled()
    assert 1 == len(desk.kept)
    assert before == asyncio.all_tasks()


async def test_a_defect_is_not_taken_for_silence(desk):
    """What is no refusal of the lab ends the watch, and with it the run."""
    desk.origins.counted.pop("b2")
    with pytest.raises(KeyError):
        await desk.watch.look()


def test_totals_are_told_apart_from_what_is_open_now():
    """Nested counters get dotted names."""
    counted = {"requests": 3, "connections": 9, "websockets_open": 2, "cache": {"vary": {"full": 1}}}
    assert {"requests": 3, "cache.vary.full": 1} == flat(counted)
