"""Signals reach the proxy, never a stranger; and it may end by itself."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from signal import SIGHUP, SIGKILL, SIGTERM, Signals
from typing import cast

import pytest

from chaos.target import IdentityChangedError, TargetError
from soak.clock import SystemClock
from soak.lab.process import Child, start_child
from soak.lab.receiving import Receiver, ask_to_end
from soak.proxies.base import ProxyAdapter

StartShell = Callable[[str], Awaitable[Child]]


class Named:
    """An adapter as far as these tests go: it names a pid by its file, and asks for a grace."""

    name = "gateway"
    stop_grace_s = 5.0

    def main_pid(self, directory: Path) -> int | None:
        path = directory / "pid"
        return int(path.read_text()) if path.exists() else None

    def stop_signal(self) -> Signals:
        return SIGTERM


NAMED = cast("ProxyAdapter", Named())


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[StartShell]:
    """Start a script as a lab starts its proxy; killed at the end, with its session."""
    children: list[Child] = []

    async def start(script: str) -> Child:
        child = await start_child(
            "proxy",
            ["sh", "-c", script],
            directory=tmp_path,
            run_id="r",
            log=tmp_path / "out",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=None,
            on_end=lambda _child: None,
        )
        children.append(child)
        return child

    yield start
    for child in children:
        if child.alive:
            os.killpg(child.identity["pid"], SIGKILL)
        await child.process.wait()


async def until(path: Path) -> str:
    """Wait for a file with something in it."""
    async with asyncio.timeout(30):
        while not path.exists() or not path.read_text().strip():
            await asyncio.sleep(0.01)
    return path.read_text().strip()


TRAP = f"{sys.executable} -c \"import signal,time; signal.signal(1, lambda *_: open('got','w').write('HUP')); open('pid','w').write(str(__import__('os').getpid())); time.sleep(60)\""


async def test_a_signal_goes_to_the_process_that_the_adapter_names(shell, tmp_path):
    """Not to the script around it, which HUP would end."""
    child = await shell(f"{TRAP}; true")
    inner = int(await until(tmp_path / "pid"))
    receiver = Receiver(NAMED, child, tmp_path)
    assert inner == receiver.identity()["pid"] != child.identity["pid"]
    await receiver.signal(SIGHUP)
    assert "HUP" == await until(tmp_path / "got")
    assert receiver.alive


async def test_without_a_name_it_goes_to_what_was_started(shell, tmp_path):
    """As for every adapter."""
    child = await shell("exec sleep 60")
    assert child.identity == Receiver(NAMED, child, tmp_path).identity()
    await Receiver(NAMED, child, tmp_path).signal(SIGTERM)
    await child.process.wait()
    with pytest.raises(IdentityChangedError):
        await Receiver(NAMED, child, tmp_path).signal(SIGTERM)


@pytest.mark.parametrize("pid", ["1", "4194304"])
async def test_a_stranger_gets_no_signal(shell, tmp_path, pid):
    """A pid file may be old, or lie."""
    child = await shell("exec sleep 60")
    (tmp_path / "pid").write_text(pid)
    with pytest.raises(
        TargetError, match=f"pid {pid}, which gateway names as its own, is none of the processes"
    ):
        await Receiver(NAMED, child, tmp_path).signal(SIGTERM)


async def test_a_proxy_may_end_by_itself(shell, tmp_path):
    """Its own signal first: what it does then, it has done when this returns."""
    child = await shell("trap 'echo bye >ended; exit 0' TERM; echo up >ready; while :; do sleep 0.02; done")
    await until(tmp_path / "ready")
    assert await ask_to_end(NAMED, child, tmp_path, SystemClock())
    assert "bye\n" == (tmp_path / "ended").read_text()
    assert await ask_to_end(NAMED, child, tmp_path, SystemClock())


async def test_a_proxy_that_does_not_end_in_its_grace_is_left_to_the_sweep(shell, tmp_path, monkeypatch):
    """And one whose adapter asks for nothing is not asked."""
    monkeypatch.setattr(Named, "stop_grace_s", 0.1)
    child = await shell("trap '' TERM; echo up >ready; while :; do sleep 0.02; done")
    await until(tmp_path / "ready")
    assert not await ask_to_end(NAMED, child, tmp_path, SystemClock())
    assert not await ask_to_end(cast("ProxyAdapter", object()), child, tmp_path, SystemClock())
    assert child.alive
