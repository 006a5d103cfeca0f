"""The facts of Node.js under pm2, asked of the real thing wherever it can say; what every proxy must do is in test_conformance.py."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from signal import SIGHUP, SIGKILL, SIGTERM

import pytest

from certs.authority import Authority
from soak.errors import LabError
from soak.lab.local import LocalLab
from soak.lab.prober import ProbeError
from soak.lab.process import ProcessRow, process_table, row_of, tree_of
from soak.lab.sweep import processes_of
from soak.load.traffic import pattern
from soak.proxies.base import ProcessRole, ProxyModel
from soak.proxies.node import ADAPTER
from soak.rundir import RunDir
from tests.soak.lab.client import Socket, fetch
from tests.soak.lab.test_local import ask

from .conftest import StartLab, binary_of, model_of

EXTRA = """\
proxy.use((req, res, next) => req.url === '/mine' ? res.end('my own') : next())
proxy.server.on('proxyRes', (answer) => { answer.headers['x-mine'] = 'yes' })
"""
HOOK = """\
const fs = require('fs'), net = require('net'), dns = require('dns'), child = require('child_process')
const note = (what) => fs.appendFileSync(FILE, what + '\\n')
const { connect } = net.Socket.prototype
net.Socket.prototype.connect = function (...all) {
  const to = Array.isArray(all[0]) ? all[0][0] : all[0]
  const path = typeof to === 'string' ? to : to.path
  note(path ? 'path ' + path : 'host ' + to.host)
  return connect.apply(this, all)
}
const { lookup } = dns
dns.lookup = function (name, ...all) { note('name ' + name); return lookup.call(this, name, ...all) }
const { spawn } = child
child.spawn = function (file, ...all) { note('spawn ' + file); return spawn.call(this, file, ...all) }
"""


async def family_of(lab: LocalLab) -> list[ProcessRow]:
    """Return pm2 and its workers."""
    root = row_of((await lab.proxy_identity())["pid"])
    assert root is not None
    return tree_of(root, process_table())


@pytest.fixture
def model(tmp_path) -> ProxyModel:
    """A model in a directory whose name needs quoting."""
    return model_of(ADAPTER, tmp_path)


def check(model: ProxyModel) -> subprocess.CompletedProcess[str]:
    """Write what is rendered and let the script check it."""
    for name, text in ADAPTER.render(model).items():
        (model.directory / name).write_text(text)
    command = ADAPTER.validate_command(binary_of(ADAPTER), model.directory)
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


def test_what_is_rendered_is_accepted_without_a_word(model):
    """With a thousand routes and the user's own lines."""
    done = check(replace(model, routes=1000, extra=EXTRA))

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    assert "r1000" == json.loads((model.directory / "config.json").read_text())["routes"]["r1000.soak.test"]


def test_a_broken_one_is_refused_in_words(model):
    """By the key that is not known."""
    done = check(replace(model, broken=True))

    assert 1 == done.returncode
    assert ["soak: refused: Error: config.json: unknown key 'soak_refuse_this'"] == ADAPTER.refusals(
        done.stderr
    )


def test_wrong_lines_of_the_user_are_named(model):
    """File, line and text, in one line."""
    (refusal,) = ADAPTER.refusals(check(replace(model, extra="proxy.use(\nno such thing)")).stderr)

    assert "extra.js:2" in refusal
    assert "no such thing)" in refusal
    assert "SyntaxError" in refusal


def test_a_key_that_is_not_the_certificates_is_refused(model, tmp_path):
    """Before any worker is replaced."""
    authority = Authority.create(tmp_path / "others")
    one, other = authority.leaf("soak.test"), authority.leaf("soak.test")
    model.bundle.write_bytes(one.chain_pem + other.key_pem)

    assert "key values mismatch" in ADAPTER.refusals(check(model).stderr)[0]


def test_one_that_is_too_old_is_refused(tmp_path):
    """http-proxy-3 needs Node.js 22."""
    old = tmp_path / "node"
    old.write_text("#!/bin/sh\necho v20.19.0\n")
    old.chmod(0o755)

    with pytest.raises(LabError, match=r"is Node\.js 20\.19\.0; http-proxy-3 needs 22 or newer"):
        ADAPTER.version(old)


def test_processes_are_told_by_titles(tmp_path):
    """pm2 by its command line, workers by the title that the script sets."""
    command = " ".join(ADAPTER.start_command(tmp_path / "node", tmp_path))

    assert ProcessRole.MASTER is ADAPTER.role(command)
    assert ProcessRole.WORKER is ADAPTER.role("soak node worker")
    assert ProcessRole.OLD_WORKER is ADAPTER.role("soak node worker is closing")
    assert ProcessRole.OTHER is ADAPTER.role("node")
    assert (SIGHUP, SIGTERM) == (ADAPTER.reload_signal(), ADAPTER.stop_signal())
    assert {"reload", "cert_rotate", "marker", "h2", "websocket"} == set(ADAPTER.capabilities)


async def test_it_reaches_nobody_and_touches_no_home(
    started: StartLab, run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """pm2 asks for a new version at first and once a day, links to an account, keeps a home; unless it is told not to: it is."""
    binary_of(ADAPTER)
    noted, hook, home = tmp_path / "noted", tmp_path / "hook.js", tmp_path / "home"
    home.mkdir()
    hook.write_text(HOOK.replace("FILE", json.dumps(str(noted))))
    monkeypatch.setenv("NODE_OPTIONS", f"--require={hook}")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PM2_HOME", str(home / "pm2"))
    monkeypatch.setenv("SECRET_KEY", "of the user's account at pm2")
    monkeypatch.setenv("PUBLIC_KEY", "of the user's account at pm2")
    lab = await started("node", backends=1, extra=EXTRA)
    assert b"my own" == (await fetch(lab, "/mine")).body
    assert "yes" == (await fetch(lab, "/bytes/1")).headers["x-mine"]
    assert (await lab.apply_generation(2)).ok
    (worker, *_) = [
        row.pid for row in await family_of(lab) if row.ppid == (await lab.proxy_identity())["pid"]
    ]
    environment = Path(f"/proc/{worker}/environ").read_text().split("\0")
    assert "PM2_DISABLE_VERSION_CHECK=true" in environment
    assert [] == [line for line in environment if "account at pm2" in line]
    seen = set(noted.read_text().splitlines())

    assert {"host 127.0.0.1", "path /proc/self/cwd/proxy/pm2/rpc.sock"} <= seen
    allowed = ("host 127.0.0.1", "name 127.0.0.1", "path /proc/self/cwd/proxy/pm2/")
    assert [] == [line for line in seen if not line.startswith(allowed)]
    assert [] == list(home.iterdir())
    assert 0o700 == (run.lab / "proxy" / "pm2").stat().st_mode & 0o777


async def test_a_get_goes_on_from_a_dead_backend_and_a_post_does_not(started: StartLab):
    """Before any check has noticed: a POST is never sent twice on its own, so it is lost, with 502."""
    binary_of(ADAPTER)
    lab = await started("node", backends=2)
    status = await lab.backend_status("b1")
    await lab.backend_stop("b1", status.identity, force=True)
    posts = [await fetch(lab, "/echo", method="POST", body=b"x") for _ in range(2)]
    gets = [await fetch(lab, "/bytes/10") for _ in range(4)]

    assert {200, 502} >= {got.status for got in posts}
    assert {(200, pattern(10), "b2")} == {(g.status, g.body, g.headers["x-soak-origin"]) for g in gets}


async def test_a_reload_waits_for_the_one_before_it(started: StartLab, run: RunDir):
    """Websockets hold old workers until pm2 kills them; a second reload meanwhile is not lost, and nobody is left over."""
    binary_of(ADAPTER)
    lab = await started("node", backends=1)
    async with Socket(lab), Socket(lab, tls=True):
        assert (await lab.apply_generation(2)).ok
        assert 1 == (await lab.vitals(1.0))[0].old_processes
        assert (await lab.apply_generation(3)).ok
        await generation_of(lab, "3")
    async with asyncio.timeout(30):
        while {"master": 1, "worker": 2} != (await lab.vitals(1.0))[0].detail["roles"]:
            await asyncio.sleep(0.1)


async def generation_of(lab: LocalLab, wanted: str) -> None:
    """Wait until fresh clients see this generation four times in a row."""
    in_a_row = 0
    async with asyncio.timeout(30):
        while in_a_row < 4:
            seen = ""
            with suppress(ProbeError):
                seen = (await ask(lab))[1]
            in_a_row = in_a_row + 1 if wanted == seen else 0


async def test_workers_do_not_outlive_pm2(started: StartLab, run: RunDir):
    """Killed as by the kernel's want of memory: the workers notice and end by themselves."""
    binary_of(ADAPTER)
    lab = await started("node", backends=1)
    family = await family_of(lab)
    assert 3 == len(family)
    os.kill((await lab.proxy_identity())["pid"], SIGKILL)
    async with asyncio.timeout(30):
        while any((row := row_of(one.pid)) is not None and row.alive for one in family):
            await asyncio.sleep(0.02)

    assert {row.pid for row in processes_of(run)}.isdisjoint(one.pid for one in family)
