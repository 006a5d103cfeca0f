"""The facts of rocky, asked of the real thing wherever it can say; what every proxy must do is in test_conformance.py."""

from __future__ import annotations

import asyncio
import os
from signal import SIGHUP, SIGKILL, SIGTERM

import pytest

from soak.errors import LabError
from soak.lab.local import LocalLab
from soak.lab.prober import ProbeError
from soak.lab.process import process_table, row_of, tree_of
from soak.proxies.base import ProcessRole
from soak.proxies.rocky import ADAPTER
from soak.rundir import RunDir
from tests.soak.lab.client import connect, fetch, request_text
from tests.soak.lab.test_local import ask

from .conftest import StartLab, binary_of

EXTRA = "proxy.get('/mine').reply(418, { 'X-Mine': 'yes' }, 'my own')\n"


async def workers_of(lab: LocalLab) -> set[int]:
    """Return the processes that serve."""
    root = row_of((await lab.proxy_identity())["pid"])
    assert root is not None
    return {row.pid for row in tree_of(root, process_table())} - {root.pid}


@pytest.mark.parametrize("version", ["v16.20.0", "v24.1.0"])
def test_a_node_on_which_it_fails_is_refused(tmp_path, version):
    """It answers "socket hang up" from 16 on."""
    new = tmp_path / "node"
    new.write_text(f"#!/bin/sh\necho {version}\n")
    new.chmod(0o755)

    with pytest.raises(
        LabError, match=rf"is Node\.js {version[1:]}, on which rocky fails with 'socket hang up'"
    ):
        ADAPTER.version(new)


def test_processes_are_told_by_titles():
    """None is ever of an earlier generation: a reload replaces no process."""
    assert ProcessRole.MASTER is ADAPTER.role("soak rocky main")
    assert ProcessRole.WORKER is ADAPTER.role("soak rocky worker")
    assert ProcessRole.OTHER is ADAPTER.role("node")
    assert (SIGHUP, SIGTERM) == (ADAPTER.reload_signal(), ADAPTER.stop_signal())
    assert {"reload", "cert_rotate", "marker", "websocket"} == set(ADAPTER.capabilities)


async def test_a_reload_keeps_processes_and_connections(started: StartLab, run: RunDir):
    """A kept connection over TLS sees the new generation, also after a rotation; the user's own route answers."""
    binary_of(ADAPTER)
    lab = await started("rocky", backends=1, extra=EXTRA)
    before = await workers_of(lab)
    mine = await fetch(lab, "/mine")
    assert (418, "yes", True) == (mine.status, mine.headers["x-mine"], b"my own" in mine.body)
    reader, writer = await connect(lab, tls=True)
    generations = []
    for generation in (1, 2, 3):
        if generation == 2:
            assert (await lab.apply_generation(2)).ok
        if generation == 3:
            await lab.install_certificate(3)
        writer.write(request_text("GET", "/status/204", "soak.test", {}, b""))
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        generations.append(head.partition("x-soak-generation: ")[2].partition("\r")[0])
    writer.close()

    assert ["1", "2", "3"] == generations
    assert before == await workers_of(lab)
    log = ADAPTER.error_log(run.lab / "proxy").read_text()
    assert ["soak: reloaded: generation 2", "soak: reloaded: generation 3"] == ADAPTER.acceptances(log)
    assert [] == ADAPTER.refusals(log)


async def test_a_worker_that_dies_is_replaced_by_one_that_knows_the_last_configuration(started: StartLab):
    """Not the one with which the main process was started."""
    binary_of(ADAPTER)
    lab = await started("rocky", backends=1)
    await lab.install_certificate(2)
    before = await workers_of(lab)
    for pid in before:
        os.kill(pid, SIGKILL)
    async with asyncio.timeout(30):
        while len(now := await workers_of(lab) - before) < 2:
            await asyncio.sleep(0.05)
        while True:
            try:
                assert (lab.serial(), "2") == (await ask(lab))[:2]
                break
            except ProbeError:
                await asyncio.sleep(0.05)

    assert 2 == len(now)


async def test_nothing_is_repeated(started: StartLab):
    """What meets a dead backend before anybody knows is answered with 502, and then the backend is out."""
    binary_of(ADAPTER)
    lab = await started("rocky", backends=2)
    await lab.backend_stop("b1", (await lab.backend_status("b1")).identity, force=True)
    statuses = [(await fetch(lab, "/bytes/10")).status for _ in range(8)]

    assert {200, 502} >= set(statuses)
    assert statuses.count(502) <= 2, "each of two workers meets it once at most"
