"""A Varnish and its hitch that somebody else runs: both are told, both are given back, and without one the other is not whole."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.target import TargetError
from soak.clock import SystemClock
from soak.errors import LabError
from soak.lab import open_for_healing
from soak.lab.attach import AttachLab
from soak.lab.attachedcompanions import AttachedCompanions, beside_of
from soak.lab.process import living
from soak.plan import Plan
from soak.proxies.companion import Companion
from soak.proxies.varnish import ADAPTER
from soak.rundir import RunDir
from tests.soak.lab.client import fetch
from tests.soak.proxies.conftest import binary_of

from .conftest import until
from .strangers import Strangers


@pytest.fixture
def strangers(tmp_path: Path) -> Iterator[Strangers]:
    """Varnish, hitch and two origins."""
    binary_of(ADAPTER)
    (tmp_path / "theirs").mkdir()
    theirs = Strangers(tmp_path / "theirs", kind="varnish")
    try:
        theirs.start()
        yield theirs
    finally:
        theirs.end()


def attached(run: RunDir, strangers: Strangers) -> AttachLab:
    return AttachLab(run, strangers.plan, on_event=lambda _name, _data: None)


async def serial_served(lab: AttachLab) -> None:
    """Wait until a fresh client sees the certificate that is installed: a worker of before may still accept."""
    async with asyncio.timeout(30):
        while await lab._proxy._look(1.0) is not None:
            await asyncio.sleep(0.02)


async def test_both_are_taken_over_told_and_given_back(run: RunDir, strangers: Strangers):
    """A reload reaches varnishd, a certificate hitch, and at the end each serves what it was started with, as the same process."""
    before = strangers.files()
    pids = [strangers.pid(name) for name in ("proxy", "hitch")]
    lab = attached(run, strangers)
    await lab.start()
    try:
        await serial_served(lab)
        applied = await lab.apply_generation(2)
        assert applied.ok, applied.reason
        assert "hitch" not in applied.detail["answer"]
        assert (await lab.apply_broken_config()).ok
        rotated = await lab.install_certificate(3)
        assert "accepted" == rotated["reload"]["answer"]["hitch"]["said"]
        await serial_served(lab)
        [proxy, *_] = await lab.vitals(1.0)
        assert proxy.processes >= 4  # two of each
        assert 1 == proxy.detail["roles"]["master"]
    finally:
        given_back = await lab.stop()

    assert given_back.ok
    assert before == strangers.files()
    assert pids == [strangers.pid(name) for name in ("proxy", "hitch")]
    assert "0" == (await fetch(lab, "/bytes/1")).headers["x-soak-generation"]


async def test_a_stranger_gives_both_their_files_back(run: RunDir, strangers: Strangers):
    """By the run's files alone, after its daemon died."""
    before = strangers.files()
    lab = attached(run, strangers)
    await lab.start()
    said = strangers.directory.parent / "proxy-hitch.out"
    heard = said.read_text().count("Config reloaded in ")
    healable = await open_for_healing(str(run.path))
    evidence = await healable.release()

    assert evidence.ok, evidence.reason
    assert before == strangers.files()
    await until(lambda: said.read_text().count("Config reloaded in ") == heard + 1)


async def test_its_end_is_told_and_nothing_pretends_to_work(run: RunDir, strangers: Strangers):
    """Somebody killed hitch: a reload is refused, and giving back goes on with varnishd alone."""
    before = strangers.files()
    lab = attached(run, strangers)
    await lab.start()
    try:
        (hitch,) = lab._proxy._beside.members()
        os.kill(int(hitch.identity["pid"]), signal.SIGKILL)
        await until(lambda: living(hitch.identity) is None)
        evidence = await lab.apply_generation(2)
        assert not evidence.ok
        assert evidence.reason.startswith(
            "the proxy has ended: hitch: it ended or was started anew; it said:"
        )
        with pytest.raises(TargetError, match="the proxy is not whole any more: hitch"):
            await lab.proxy_identity()
        assert not await lab._proxy.look()
    finally:
        given_back = await lab.stop()
    assert given_back.ok
    assert before == strangers.files()


async def test_files_that_it_refuses_are_not_given_back_for_good(run: RunDir, strangers: Strangers):
    """Its own word says why; the copies stay for the next try."""
    lab = attached(run, strangers)
    await lab.start()
    original = next(
        path
        for path in (run.lab / "originals").glob("*.original")
        if b"PRIVATE KEY" in path.read_bytes() and b"BEGIN CERT" in path.read_bytes()
    )
    whole = original.read_bytes()
    original.write_bytes(b"no pair")
    refused = await lab.stop()
    original.write_bytes(whole)

    assert not refused.ok
    assert "its own files are back, but hitch refuses to read them: " in refused.reason
    assert (await lab.stop()).ok


async def test_one_that_does_not_run_is_missed_before_anything_is_changed(run: RunDir, strangers: Strangers):
    """With the key of the plan."""
    before = strangers.files()
    strangers.pid_file("hitch").unlink()
    plan = strangers.plan.model_dump(mode="json", by_alias=True)
    plan["lab"]["start_timeout"] = 0.3
    lab = AttachLab(run, Plan.model_validate(plan), on_event=lambda _name, _data: None)
    with pytest.raises(
        LabError,
        match=r"proxy-hitch does not run: the pid file .*hitch\.pid .*lab\.attach\.proxy\.companions\.hitch\.pid_file",
    ):
        await lab.start()
    assert before == strangers.files()


async def test_one_of_which_the_plan_says_nothing_is_refused(tmp_path: Path):
    """A plan that was made by hand, or an adapter that has one more than it says."""
    none = AttachedCompanions(tmp_path, SystemClock(), {}, host="127.0.0.1", start_timeout_s=1)
    with pytest.raises(
        LabError, match=r"not whole without tls; say where it runs in lab\.attach\.proxy\.companions"
    ):
        await none.start([Companion("tls", ["x"], 1)], first=False)
    assert () == beside_of(Plan(), {}, {})
