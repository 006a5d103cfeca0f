"""Reloads by a call: what an adapter answers, raises, or never says. By a signal: test_proxy.py, with the real nginx."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from soak.errors import LabError
from soak.lab.errorlog import ErrorLog
from soak.lab.process import Child, start_child
from soak.lab.reloading import by_call
from soak.proxies.base import ReloadContext, Reloaded


class Caller:
    """An adapter that does as it is told."""

    def __init__(self, act: Callable[[], Awaitable[Reloaded]]) -> None:
        self._act = act

    async def reload(self, context: ReloadContext) -> Reloaded:
        """Act."""
        return await self._act()


@pytest.fixture
async def child(tmp_path: Path):
    """A process that lives until the test ends."""
    started = await start_child(
        "proxy",
        ["sleep", "60"],
        directory=tmp_path,
        run_id="x",
        log=tmp_path / "proxy.out",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=None,
        on_end=lambda _child: None,
    )
    yield started
    await end(started)


async def end(child: Child) -> None:
    """Kill it and wait."""
    if child.process.returncode is None:
        child.process.kill()
    await child.process.wait()


async def call(child: Child, act: Callable[[], Awaitable[Reloaded]], *, timeout_s: float = 5.0):
    """Ask such an adapter."""
    context = ReloadContext(child.log.parent, child.process.pid, {}, timeout_s)
    return await by_call(Caller(act), context, child, ErrorLog(child.log))


async def test_an_answer_is_a_verdict(child: Child):
    """Accepted or refused in the proxy's words, with what the log said meanwhile."""

    async def accept() -> Reloaded:
        child.log.write_text("taken\n")
        return Reloaded(accepted=True, detail={"took_ms": 3})

    async def refuse() -> Reloaded:
        return Reloaded(accepted=False, reason="line 3 is wrong")

    assert {"said": "accepted", "refusals": [], "log": ["taken"], "answer": {"took_ms": 3}} == (
        await call(child, accept)
    ).detail
    assert {"said": "refused", "refusals": ["line 3 is wrong"], "log": []} == (
        await call(child, refuse)
    ).detail


@pytest.mark.parametrize("error", [ConnectionRefusedError("refused"), LabError("refused")])
async def test_a_proxy_that_cannot_be_asked_did_not_reload(child: Child, error: Exception):
    """The reason is kept."""

    async def fail() -> Reloaded:
        raise error

    assert ("proxy could not be asked for a reload: refused",) == tuple(
        words.removeprefix("the ") for words in (await call(child, fail)).refusals
    )


async def test_a_call_that_hangs_has_a_deadline(child: Child):
    """Silence is no refusal: traffic judges."""

    async def hang() -> Reloaded:
        await asyncio.Event().wait()
        raise AssertionError

    said = await call(child, hang, timeout_s=0.05)

    assert ("nothing", 0.05) == (said.verdict, said.answer["timeout_s"])


async def test_a_proxy_that_has_ended_is_told(child: Child):
    """Before the call, during one that fails, and during one that hangs."""

    async def die() -> Reloaded:
        await end(child)
        raise ConnectionResetError

    assert "gone" == (await call(child, die)).verdict
    assert "gone" == (await call(child, die)).verdict


async def test_one_that_dies_while_it_is_asked_is_told_at_the_deadline(child: Child):
    """The call itself never came back."""

    async def die() -> Reloaded:
        await end(child)
        await asyncio.Event().wait()
        raise AssertionError

    assert "gone" == (await call(child, die, timeout_s=0.5)).verdict
