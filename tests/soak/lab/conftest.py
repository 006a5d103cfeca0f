"""A run directory, and a started local lab on the real nginx that leaves nothing behind."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from soak.lab.local import LocalLab
from soak.lab.sweep import processes_of, release
from soak.plan import Plan
from soak.rundir import RunDir
from tests.soak.lab.dockerlabs import lab_of  # noqa: F401 - a fixture, defined once for all files here

from .companionbench import bench  # noqa: F401 - same
from .running import Running, end, start
from .strangers import Strangers


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """The directory of a run that has just been created."""
    path = tmp_path / "run-2026"
    path.mkdir()
    (path / "lab").mkdir()
    return RunDir(path)


@pytest.fixture
def events() -> list[tuple[str, Mapping[str, Any]]]:
    """What the lab reported."""
    return []


@pytest.fixture
async def lab(run: RunDir, events: list[tuple[str, Mapping[str, Any]]]) -> AsyncIterator[LocalLab]:
    """A started lab with two origins; ended whatever a test did to it."""
    subject = LocalLab(run, plan(), on_event=lambda name, data: events.append((name, data)))
    await subject.start()
    try:
        yield subject
    finally:
        await subject.stop()
        await release(run)
    assert [] == processes_of(run)


@pytest.fixture
def strangers(tmp_path: Path) -> Iterator[Strangers]:
    """A proxy with two origins of somebody else, for one test."""
    home = tmp_path / "strangers"
    home.mkdir()
    theirs = Strangers(home)
    theirs.start()
    yield theirs
    theirs.end()


@pytest.fixture(scope="module")
def origin() -> Iterator[Running]:
    """A started origin, for the tests of one file."""
    running = start()
    yield running
    end(running)


def plan(**proxy: Any) -> Plan:
    """Return a plan with two origins."""
    return Plan.model_validate({"lab": {"backends": 2, "start_timeout": 20}, "proxy": proxy})


async def until(condition: Callable[[], bool], *, seconds: float = 30.0) -> None:
    """Wait for something that happens outside this process."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def script(path: Path, text: str) -> Path:
    """Write an executable script."""
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
