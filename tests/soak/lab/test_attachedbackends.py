"""Backends of somebody else as faults see them; with real ones: test_attach.py and test_attachedcontainer.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.target import BackendState, Identity, IdentityChangedError, TargetError
from soak.clock import SystemClock
from soak.lab.attached import Seen, changed
from soak.lab.attachedbackends import AttachedBackends
from soak.lab.attachedtls import certify, origin_tls_of
from soak.labplan import AttachedProxyPlan
from soak.proxies.base import BackendAddress

from .running import Running, end, start

ME = {"pid": 1}


class FakeThing:
    """A thing that does as it is told."""

    name = "b1"

    def __init__(self, *states: BackendState) -> None:
        self.states = list(states)
        self.did: list[str] = []
        self.replaced = False

    async def look(self) -> Seen:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return Seen(state, {} if state is BackendState.STOPPED else ME)

    async def begin(self) -> None:
        self.did.append("begin")

    async def resume(self, identity: Identity) -> None:
        if self.replaced:
            raise changed(self.name, identity, ME)
        self.did.append("resume")


@pytest.fixture(scope="module")
def origin() -> Iterator[Running]:
    running = start()
    yield running
    end(running)


def backends(thing: Any, port: int) -> AttachedBackends:
    return AttachedBackends(
        {"b1": thing}, [BackendAddress("b1", "127.0.0.1", port)], SystemClock(), start_timeout_s=0.3
    )


async def test_one_that_answers_although_it_does_not_run_is_another_one(origin: Running):
    """Whatever the pid file or the label says: two things cannot be told apart, so nothing is done."""
    with pytest.raises(TargetError, match="b1 does not run, but something answers by its name"):
        await backends(FakeThing(BackendState.STOPPED), origin.port).backend_status("b1")


async def test_one_that_runs_is_not_started_again(origin: Running):
    """Whoever started it."""
    thing = FakeThing(BackendState.RUNNING)
    assert ME == await backends(thing, origin.port).backend_start("b1")
    assert [] == thing.did


@pytest.mark.parametrize(
    ("state", "why"),
    [(BackendState.STOPPED, "it does not run"), (BackendState.RUNNING, "it is running and does not answer")],
)
async def test_one_that_does_not_come_back_is_said_with_the_reason(state: BackendState, why: str):
    """And where it was waited for."""
    with pytest.raises(TargetError, match=f"b1 is not back at 127.0.0.1:9 within 0.3 s: {why}"):
        await backends(FakeThing(BackendState.STOPPED, state), 9).backend_start("b1")


async def test_one_that_came_back_without_its_tls_is_not_back(origin: Running, tmp_path: Path):
    """It answers, but no byte pipe can lead to it; the reason says how to start it."""
    where = AttachedProxyPlan(directory=str(tmp_path), http_port=1, https_port=2)
    certify(origin_tls_of(where))
    address = BackendAddress("b1", "127.0.0.1", origin.port, tls_port=9)
    thing: Any = FakeThing(BackendState.RUNNING)
    subject = AttachedBackends(
        {"b1": thing}, [address], SystemClock(), start_timeout_s=0.3, tls=origin_tls_of(where)
    )
    with pytest.raises(
        TargetError, match=r"b1 is not back at .*: b1 does not speak TLS on 127\.0\.0\.1:9 with"
    ):
        await subject.backend_start("b1")


async def test_another_one_in_its_place_is_resumed_only_in_words(origin: Running):
    """It runs, so nothing is suspended; one that does not run stays a refusal."""
    for state, refused in ((BackendState.RUNNING, False), (BackendState.HUNG, True)):
        thing = FakeThing(state)
        thing.replaced = True
        subject = backends(thing, origin.port)
        if refused:
            with pytest.raises(IdentityChangedError, match="it was not touched"):
                await subject.backend_resume("b1", {"pid": 2})
        else:
            await subject.backend_resume("b1", {"pid": 2})
        assert [] == thing.did


async def test_an_unknown_name_is_refused():
    """With those that there are."""
    with pytest.raises(TargetError, match="there is no backend 'b9'; there are b1"):
        await backends(FakeThing(BackendState.RUNNING), 9).backend_status("b9")
