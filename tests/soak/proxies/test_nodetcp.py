"""node-tcp-proxy held to what it can: bytes through three ports, a rotation, a backend that goes; it reads no HTTP to do more."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import replace
from signal import SIGHUP, SIGKILL, SIGTERM

import pytest

from chaos.target import TargetError
from soak.errors import LabError
from soak.lab.local import LocalLab
from soak.lab.process import row_of
from soak.lab.sweep import processes_of
from soak.load.traffic import pattern
from soak.proxies.base import ProcessRole, ProxyModel
from soak.proxies.nodetcp import ADAPTER
from soak.rundir import RunDir
from tests.soak.lab.client import Socket, connect, fetch, parse, request_text
from tests.soak.lab.test_local import ask

from .conftest import StartLab, binary_of, model_of

TEXT = 1


@pytest.fixture
def model(tmp_path) -> ProxyModel:
    """A model in a directory whose name needs quoting."""
    return model_of(ADAPTER, tmp_path)


async def origins_of(lab: LocalLab, count: int, *, tls: bool = False, pipe: bool = False) -> Counter[str]:
    """Ask on fresh connections; returns how often each origin answered, "" for a connection that was lost."""
    seen: Counter[str] = Counter()
    for _ in range(count):
        try:
            got = await fetch(lab, "/bytes/10", tls=tls, pipe=pipe)
        except (OSError, IndexError):  # closed without a word, or before the handshake
            seen[""] += 1
        else:
            assert (200, pattern(10)) == (got.status, got.body)
            seen[got.headers["x-soak-origin"]] += 1
    return seen


def test_what_it_is_told_by():
    """Titles; and it declares no marker, so a reload is nothing that could be verified."""
    assert ProcessRole.MASTER is ADAPTER.role("soak tcp main")
    assert ProcessRole.WORKER is ADAPTER.role("soak tcp worker")
    assert ProcessRole.OTHER is ADAPTER.role("soak rocky main")
    assert (SIGHUP, SIGTERM) == (ADAPTER.reload_signal(), ADAPTER.stop_signal())
    assert {"reload", "cert_rotate", "websocket", "tcp"} == set(ADAPTER.capabilities)


def test_routes_are_refused(model):
    """It cannot tell hosts apart."""
    with pytest.raises(LabError, match="reads no HTTP and cannot tell 1000 hosts apart"):
        ADAPTER.render(replace(model, routes=1000))


async def test_bytes_pass_on_every_port(started: StartLab, run: RunDir):
    """Plain, after TLS that ends here, and to the origins' own TLS; a websocket is only bytes, too."""
    binary_of(ADAPTER)
    lab = await started("node-tcp")
    assert "0.0.28" == lab.proxy_version
    for tls, pipe in ((False, False), (True, False), (False, True)):
        assert pattern(1_048_576) == (await fetch(lab, "/bytes/1048576", tls=tls, pipe=pipe)).body
        assert set(lab.backend_names()) == set(await origins_of(lab, 12, tls=tls, pipe=pipe))
    async with Socket(lab, tls=True) as socket:
        assert 101 == socket.answer.status
        assert (0x81, b"hello") == await socket.echo(TEXT, b"hello")


async def test_a_rotation_is_seen_and_touches_no_connection(started: StartLab):
    """A broken configuration is refused before it, and the next good one is taken."""
    binary_of(ADAPTER)
    lab = await started("node-tcp", backends=1)
    first = lab.serial()
    reader, writer = await connect(lab, tls=True)
    refused = await lab.apply_broken_config()
    assert (True, "refused") == (refused.ok, refused.detail["said"])
    assert first == (await ask(lab))[0]
    for generation in (2, 3):
        done = await lab.install_certificate(generation)
        assert done["serial"] not in {first, done["old_serial"]}
        assert [done["serial"]] * 6 == [(await ask(lab))[0] for _ in range(6)]
        assert done["serial"] == lab.serial()
    writer.write(request_text("GET", "/bytes/10", "soak.test", {"Connection": "close"}, b""))
    assert pattern(10) == parse(await reader.read()).body
    writer.close()


@pytest.mark.parametrize("how", ["stop", "pause"])
async def test_a_backend_goes_and_comes_back_without_help(started: StartLab, how: str):
    """After the checks have noticed, nobody meets it; once it answers again, it is used."""
    binary_of(ADAPTER)
    lab = await started("node-tcp", backends=2)
    status = await lab.backend_status("b1")
    if how == "stop":
        await lab.backend_stop("b1", status.identity, force=False)
    else:
        await lab.backend_pause("b1", status.identity)
    await asyncio.sleep(2)
    assert {"b2"} == set(await origins_of(lab, 8))
    if how == "stop":
        await lab.backend_start("b1")
    else:
        await lab.backend_resume("b1", status.identity)
    async with asyncio.timeout(30):
        while "b1" not in await origins_of(lab, 4):
            await asyncio.sleep(0.05)


async def test_extra_is_javascript_that_changes_options_and_wrong_one_is_refused(started: StartLab):
    """The hook of node-tcp-proxy sees the bytes of an answer."""
    binary_of(ADAPTER)
    hook = "proxy.downstream = (context, data) => Buffer.from(String(data).replace('X-Soak-Origin', 'X-Soak-Orogin'))"
    lab = await started("node-tcp", backends=1, extra=hook)
    assert "b1" == (await fetch(lab, "/bytes/10")).headers["x-soak-orogin"]
    await lab.stop()
    with pytest.raises(LabError, match=r"extra\.js:1: no_such_thing on"):
        await started("node-tcp", extra="no_such_thing on")


async def test_its_end_is_told_and_nothing_is_left(started: StartLab, run: RunDir):
    """Killed: its workers end, too."""
    binary_of(ADAPTER)
    lab = await started("node-tcp", backends=1)
    assert {"master": 1, "worker": 2} == (await lab.vitals(1.0))[0].detail["roles"]
    identity = await lab.proxy_identity()
    os.kill(identity["pid"], SIGKILL)
    while (row := row_of(identity["pid"])) is not None and row.alive:
        await asyncio.sleep(0.01)
    with pytest.raises(TargetError, match="the proxy has ended"):
        await lab.proxy_identity()
    assert (await lab.stop()).ok
    assert [] == processes_of(run)
