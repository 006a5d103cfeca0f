"""A whole run against a proxy and origins of somebody else: judged as any other, and given back, also by a guardian."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from soak.lab.process import row_of
from tests.e2e.runs import gone, started, wait_for
from tests.soak.lab.strangers import Strangers

pytestmark = pytest.mark.e2e


@pytest.fixture
def strangers(tmp_path: Path) -> Iterator[Strangers]:
    """A proxy with two origins."""
    home = tmp_path / "strangers"
    home.mkdir()
    theirs = Strangers(home)
    theirs.start()
    yield theirs
    theirs.end()


LIMITS = """
    objectives: {rate_held: 0.9, stale_reuse: 0.02}
    self: {max_lag_p99: 2s, max_loop_gap: 3s, max_unwell: 0.3, max_others: 1}
"""
CALM = f"{LIMITS}    traffic: {{response_timeout: 3s}}\n"


def plan(strangers: Strangers, text: str) -> str:
    return text + yaml.safe_dump({"lab": strangers.lab})


@pytest.mark.timeout(120)
def test_a_run_against_what_somebody_else_runs(tmp_path: Path, strangers: Strangers):
    """Every kind of fault is verified; what the origins counted is judged; afterwards everything is as before."""
    before, pids = strangers.files(), {name: strangers.pid(name) for name in ("proxy", "b1", "b2")}
    text = plan(strangers, "length: 90s\nrate: 100\nchaos: {gap: 0s}\n")
    with started(tmp_path / "home", text, calm=CALM) as live:
        live.until_running()
        for fault, *flags in (
            ("backend-down", "--target", "b1", "--for", "1s"),
            ("backend-hang", "--target", "b2", "--for", "1s"),
            ("reload",),
            ("cert-rotate",),
            ("reload-bad",),
        ):
            done = live.soak("inject", fault, *flags)
            assert 0 == done.returncode, (fault, done.stdout + done.stderr)
        live.soak("stop")
        live.words()
    report = live.report()
    assert {"verified"} == {fault["outcome"] for fault in report["faults"]}
    assert "attach" == report["run"]["lab"]
    assert before == strangers.files()
    now = {name: strangers.pid(name) for name in pids}
    assert pids | {"b1": now["b1"]} == now
    assert now["b1"] != pids["b1"]
    judged = {one["name"] for one in report["objectives"]}
    assert "duplicates" in judged, report


@pytest.mark.timeout(120)
def test_a_byte_pipe_to_what_somebody_else_runs_carries_load(tmp_path: Path):
    """TLS from the load engine to origins that were there before the run, across a reload and a rotation."""
    theirs = Strangers(tmp_path, pipe=True)
    classes = [{"shape": "tls-reused", "share": 0.5}, {"shape": "l4", "share": 0.5}]
    theirs.start()
    try:
        text = plan(theirs, "length: 90s\nrate: 50\n") + yaml.safe_dump({"traffic": {"classes": classes}})
        with started(tmp_path / "home", text, calm=LIMITS) as live:
            live.until_running()
            for fault in ("reload", "cert-rotate"):
                done = live.soak("inject", fault)
                assert 0 == done.returncode, done.stdout + done.stderr
            live.soak("stop")
            live.words()
    finally:
        theirs.end()
    load = live.report()["load"]["classes"]["l4"]
    assert load["ok"] > 20
    assert {"ok"} == {outcome for outcome, count in load["outcomes"].items() if count}, load


@pytest.mark.timeout(120)
def test_what_cannot_be_given_back_makes_the_run_dirty(tmp_path: Path, strangers: Strangers):
    """A certificate in whose place somebody put a directory: exit code 4, said by name, and the verdict is kept."""
    with started(tmp_path / "home", plan(strangers, "length: 60s\nrate: 100\n"), calm=CALM) as live:
        live.until_running()
        key = strangers.directory / "site.key"
        key.unlink()
        (key / "of somebody").mkdir(parents=True)
        stopped = live.soak("stop", "--exit-code")
        live.words()
    assert 4 == live.process.returncode, stopped.stdout + stopped.stderr
    assert 4 == stopped.returncode, stopped.stdout + stopped.stderr
    assert "dirty: something could not be put back as it was" in stopped.stdout
    assert live.report()["dirty"]
    assert '"lab.not_removed"' in live.run.log.read_text()


@pytest.mark.timeout(120)
def test_a_daemon_that_is_killed_while_a_backend_is_suspended(tmp_path: Path, strangers: Strangers):
    """The guardian resumes the very process and gives the files back; nobody is ended, and heal finds nothing to do."""
    before, pids = strangers.files(), {name: strangers.pid(name) for name in ("proxy", "b1", "b2")}
    with started(tmp_path / "home", plan(strangers, "length: 60s\nrate: 100\n"), calm=CALM) as live:
        live.until_running()
        live.client.inject("backend-hang", target="b1", hold_s=30.0, wait=False)
        live.until_step("active")
        row = row_of(pids["b1"])
        assert row is not None
        assert row.suspended
        assert before != strangers.files()
        family = live.family()
        live.process.send_signal(signal.SIGKILL)
        live.process.communicate(timeout=30)
        gone(family, 30)
    row = row_of(pids["b1"])
    assert row is not None
    assert not row.suspended
    assert pids == {name: strangers.pid(name) for name in pids}
    assert before == strangers.files()
    healed = live.soak("heal", live.run.id)
    assert 0 == healed.returncode, healed.stdout + healed.stderr
    assert f"{live.run.id}: the stale socket is removed\n" == healed.stdout


def test_what_does_not_run_is_said_before_anything_begins(tmp_path: Path):
    """One line each, exit code 2, no traceback, and no run is left."""
    (tmp_path / "strangers").mkdir()
    absent = Strangers(tmp_path / "strangers")
    absent.lab["start_timeout"] = 0.5
    text = plan(absent, "length: 60s\nrate: 100\n")
    with started(tmp_path / "home", text, calm=CALM) as live:
        words = live.words()
    assert 2 == live.process.returncode, words
    assert "Traceback" not in words
    assert "proxy does not run: the pid file" in words
    wait_for(lambda: not live.run.socket.exists(), 30, "the socket going")
