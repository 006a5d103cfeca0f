"""The doors of a run: both open or none, told to other tools, and the socket outlives the pages."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from chaos.runner import Runner
from soak.clock import RunClock
from soak.errors import RunStateError, SoakError
from soak.live import Facts
from soak.plan import Plan
from soak.rundir import RunDir
from soak.rundoors import RunDoors
from soak.web.client import ControlClient
from tests.fakes import FakeClock
from tests.soak.test_doors import FakeRunner, status


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    return run


def facts(url: str) -> Facts:
    return Facts("r", 1, "t", "1", "https://x", url)


def noting(urls: list[str]) -> Callable[[str], Facts]:
    """Return a description that keeps the address which it is given."""

    def describe(url: str) -> Facts:
        urls.append(url)
        return facts(url)

    return describe


def doors(run: RunDir, ended: asyncio.Future[int], port: int = 0) -> RunDoors:
    return RunDoors(
        Plan(http_port=port),
        run,
        RunClock(FakeClock(), 5),
        runner=cast("Runner", FakeRunner()),
        faults=["reload"],
        metrics=lambda: (b"soak_up 1\n", "text/plain"),
        status=status,
        problems=lambda: ["the run is dirty"],
        request_stop=lambda _reason: None,
        ended=ended,
    )


def fetch(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


async def test_both_doors_are_open_and_other_tools_find_them(run):
    """Metrics, problems and the socket answer; live.json names the address and the start of the run."""
    opened = doors(run, asyncio.get_running_loop().create_future())
    described: list[str] = []
    await opened.open(noting(described))
    try:
        live = json.loads(run.live.read_text())
        assert (described, 5) == ([live["http_url"]], live["t0_ns"])
        assert (200, b"soak_up 1\n") == await asyncio.to_thread(fetch, f"{described[0]}/metrics")
        code, health = await asyncio.to_thread(fetch, f"{described[0]}/healthz")
        assert (503, ["the run is dirty"]) == (code, health["problems"])
        assert status().run_id == (await asyncio.to_thread(ControlClient(run).status)).run_id
    finally:
        await opened.close_pages()
        await opened.close()
    assert not run.socket.exists()


async def test_who_waits_for_the_exit_code_waits_at_the_socket(run):
    """Until the run is judged, which is after the pages have closed."""
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    opened = doors(run, ended)
    await opened.open(facts)
    waiting = asyncio.ensure_future(asyncio.to_thread(ControlClient(run).stop, wait=True))
    async with asyncio.timeout(30):
        while not opened._control._clients:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    await opened.close_pages()
    assert not waiting.done()
    ended.set_result(3)
    await opened.close()

    assert 3 == await waiting


async def test_a_socket_that_is_taken_closes_the_pages_again(run):
    """No door is half open, and closing what never opened is nothing."""
    first = doors(run, asyncio.get_running_loop().create_future())
    await first.open(facts)
    second = doors(run, asyncio.get_running_loop().create_future())
    urls: list[str] = []
    with pytest.raises(RunStateError, match="already listens"):
        await second.open(noting(urls))
    await second.close()
    port = int(urls[0].rpartition(":")[2])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert status().run_id == (await asyncio.to_thread(ControlClient(run).status)).run_id
    await first.close_pages()
    await first.close()


async def test_a_port_that_is_taken_is_named(run):
    """And no socket is left."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SoakError, match=str(port)):
            await doors(run, asyncio.get_running_loop().create_future(), port).open(facts)
    assert not run.socket.exists()
