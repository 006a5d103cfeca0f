"""Finding what a plan attaches to; the containers' half is in test_attachedcontainer.py, the whole in test_attach.py."""

from __future__ import annotations

import os
import signal

import pytest

from soak.clock import SystemClock
from soak.errors import LabError
from soak.lab.attachments import attachments_of, topology_of, until_all_run
from soak.lab.process import row_of
from soak.plan import Plan
from soak.rundir import RunDir

from .conftest import until
from .strangers import Strangers

CONTAINERS = {
    "run": "mine",
    "proxy": {
        "directory": "/p",
        "host": "proxy",
        "http_port": 80,
        "https_port": 443,
        "ports": {"admin": 9901},
    },
    "backends": [{"host": "10.0.0.1", "port": 8000}],
}


def test_the_plan_says_where_everything_listens():
    """Names and ports as they stand there."""
    where = Plan.model_validate({"lab": {"kind": "attach", "attach": CONTAINERS}}).lab.attach
    assert where is not None
    topology = topology_of(where)
    assert ("proxy", 80, 443) == (topology.proxy.host, topology.proxy.http_port, topology.proxy.https_port)
    assert [("b1", "10.0.0.1", 8000)] == [(b.name, b.host, b.port) for b in topology.backends]
    assert {"admin": 9901} == topology.ports


async def test_without_an_engine_containers_cannot_be_found(run: RunDir, monkeypatch: pytest.MonkeyPatch):
    """One sentence names the socket and what to set."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    where = Plan.model_validate({"lab": {"kind": "attach", "attach": CONTAINERS}}).lab.attach
    assert where is not None
    with pytest.raises(
        LabError, match=r"no container engine answers at unix:///no/such\.sock; .*DOCKER_HOST"
    ):
        await attachments_of(run, where, SystemClock())


async def test_every_one_that_is_missing_is_named(run: RunDir, strangers: Strangers):
    """A suspended one and a dead one, each with a line of its own."""
    where = strangers.plan.lab.attach
    assert where is not None
    found = await attachments_of(run, where, SystemClock())
    assert {"proxy", "b1", "b2"} == set(await until_all_run(found, SystemClock(), 5.0))
    hung, dead = strangers.pid("b1"), strangers.pid("b2")
    os.kill(hung, signal.SIGSTOP)
    os.kill(dead, signal.SIGKILL)
    await until(lambda: (row := row_of(hung)) is not None and row.suspended)
    with pytest.raises(LabError) as caught:
        await until_all_run(found, SystemClock(), 0.3)
    first, second = str(caught.value).splitlines()
    assert "b1 is suspended; let it go on before a run begins" == first
    assert second.startswith("b2 does not run: the pid file ")
    assert second.endswith("start it, or set lab.attach.backends[1].pid_file")


async def test_a_proxy_that_does_not_listen_is_named(run: RunDir, strangers: Strangers):
    """It is still starting, and a signal might end it; or it listens elsewhere."""
    attach = strangers.lab["attach"]
    section = strangers.lab | {"attach": attach | {"proxy": attach["proxy"] | {"http_port": 9}}}
    where = Plan.model_validate({"lab": section}).lab.attach
    assert where is not None
    found = await attachments_of(run, where, SystemClock())
    with pytest.raises(
        LabError, match=r"the proxy runs and does not listen on 127\.0\.0\.1:9; was it started with what"
    ):
        await until_all_run(found, SystemClock(), 0.3)


async def test_a_backend_without_the_tls_of_a_byte_pipe_is_named(run: RunDir, strangers: Strangers):
    """It runs and answers, and was started without the port that the plan says."""
    attach = strangers.lab["attach"]
    proxy = attach["proxy"] | {"tcp_port": 9}
    backends = [one | {"tls_port": 9} for one in attach["backends"]]
    section = strangers.lab | {"attach": attach | {"proxy": proxy, "backends": backends}}
    where = Plan.model_validate({"lab": section}).lab.attach
    assert where is not None
    with pytest.raises(LabError) as caught:
        await until_all_run(await attachments_of(run, where, SystemClock()), SystemClock(), 0.1)
    for name, line in zip(("b1", "b2"), str(caught.value).splitlines(), strict=True):
        assert line.startswith(
            f"{name} does not speak TLS on 127.0.0.1:9 with {strangers.directory}/origin.pem ("
        )
