"""What nobody asked for is told once: ends, removals, OOM kills, an engine that is away and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from soak.lab.containers import Container
from soak.lab.dockerwatch import PERIOD_S, DockerWatch
from soak.lab.enginewords import ContainerGoneError, EngineAwayError
from soak.tasks import cancel, spawn
from tests.fakes import FakeClock, settle

ALIVE = Container("c1", "soak-b1", "soakd:1", "running", {}, started="t1")
DEAD = replace(ALIVE, state="exited", exit_code=137)


class FakeEngine:
    """An engine with what a test puts into it; an exception is raised."""

    host = "unix:///s"

    def __init__(self) -> None:
        self.found: dict[str, Container | Exception] = {}

    async def inspect(self, container: str) -> Container:
        found = self.found[container]
        if isinstance(found, Exception):
            raise found
        return found

    async def logs(self, container: str, *, tail: int) -> str:
        return f"last {tail} lines of {container}"


class Rig:
    """A watch over ``proxy`` (c0) and ``b1`` (c1)."""

    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.engine.found = {"c0": replace(ALIVE, id="c0"), "c1": ALIVE}
        self.away: set[str] = set()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.clock = FakeClock()
        tell: Callable[[str, Any], None] = lambda name, data: self.events.append((name, dict(data)))  # noqa: E731
        self.watch = DockerWatch(
            self.engine,  # type: ignore[arg-type]  # what the watch asks of an engine
            self.clock,
            containers=lambda: {"proxy": "c0", "b1": "c1"},
            away=lambda: self.away,
            on_event=tell,
        )

    async def names(self, looks: int = 1) -> list[str]:
        for _ in range(looks):
            await self.watch.look()
        return [name for name, _ in self.events]


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_an_end_is_told_once_with_its_words_and_again_after_a_restart(rig: Rig):
    """The same dead process is no news; another one is."""
    assert [] == await rig.names()
    rig.engine.found["c1"] = DEAD
    assert ["origin.died"] == await rig.names(looks=3)
    assert {
        "name": "b1",
        "container": "c1",
        "exit": 137,
        "oom": False,
        "how": "SIGKILL",
        "words": "last 20 lines of c1",
    } == rig.events[0][1]
    rig.engine.found["c1"] = replace(ALIVE, started="t2")
    await rig.watch.look()
    rig.engine.found["c1"] = replace(DEAD, started="t2", exit_code=1, oom_killed=True)
    assert ["origin.died", "origin.died"] == await rig.names()
    assert "killed for want of memory (OOM)" == rig.events[1][1]["how"]


async def test_what_a_fault_ended_is_no_news(rig: Rig):
    """Until it is back and ends by itself."""
    rig.away.add("b1")
    rig.engine.found["c1"] = DEAD
    assert [] == await rig.names()
    rig.away.clear()
    assert ["origin.died"] == await rig.names()


async def test_a_removed_container_is_told_once(rig: Rig):
    """Of the proxy, too."""
    rig.engine.found["c0"] = ContainerGoneError("gone")
    assert ["proxy.removed"] == await rig.names(looks=2)
    assert "somebody removed it" == rig.events[0][1]["how"]


async def test_an_engine_that_is_away_and_back_is_told_once_each(rig: Rig):
    """An engine that restarts takes its containers along: then they are told, too."""
    away: Any = EngineAwayError("no container engine answers")
    rig.engine.found = {"c0": away, "c1": away}
    assert ["engine.away"] == await rig.names(looks=3)
    rig.engine.found = {"c0": replace(ALIVE, id="c0"), "c1": DEAD}
    assert ["engine.away", "origin.died", "engine.back"] == await rig.names(looks=2)


def test_an_oom_kill_of_a_worker_is_told_by_the_counter(rig: Rig):
    """The container lives on. A counter that begins anew with a restart is no kill."""
    for kills in (0, 1, 1, 3, 0, 1):
        rig.watch.count_oom_kills("proxy", kills)
    assert [("proxy.oom", 1), ("proxy.oom", 2), ("proxy.oom", 1)] == [(n, d["kills"]) for n, d in rig.events]


async def test_it_looks_once_a_second_until_it_is_cancelled(rig: Rig):
    """By the clock that it was given."""
    task = spawn(rig.watch.run(), name="watch")
    await settle()
    rig.engine.found["c1"] = DEAD
    await rig.clock.advance(PERIOD_S + 0.1)
    assert ["origin.died"] == [name for name, _ in rig.events]
    await cancel(task)
