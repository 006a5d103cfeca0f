"""Signals end a run gracefully, and a daemon that was stopped says so instead of blaming the proxy."""

from __future__ import annotations

import json
import signal
import time

import pytest

from tests.e2e.runs import gone, started, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("each")]


def down(live):
    """Take a backend away for long, and wait until it is gone."""
    live.until_running()
    live.client.inject("backend-down", target="b1", hold_s=60.0, wait=False)
    live.until_step("active")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_heals_drains_and_reports(tmp_path, number):
    """The backend is brought back, the report is printed, the exit code is the verdict's."""
    with started(tmp_path, "length: 5m\nrate: 200\nchaos: {gap: 0s}", "--json") as live:
        down(live)
        family = live.family()
        live.process.send_signal(signal.SIGHUP)
        live.process.send_signal(number)
        out, err = live.process.communicate(timeout=60)
        gone(family)
    report = json.loads(out)
    assert live.process.returncode == report["exit_code"], err
    (fault,) = report["faults"]
    assert fault["reverted_s"] is not None
    assert report["load"]["in_flight"] == 0
    assert report["run"]["ended"] == number.name
    events = [json.loads(line) for line in live.run.log.read_text().splitlines()]
    assert {"signal": "SIGHUP"} in [
        {"signal": e.get("signal")} for e in events if e["event"] == "signal.ignored"
    ]


@pytest.mark.timeout(240)
def test_a_second_signal_skips_the_drain_but_not_the_heal(tmp_path):
    """Two Ctrl-C: the backend still comes back."""
    with started(tmp_path, "length: 5m\nrate: 200\nchaos: {gap: 0s}", "--json") as live:
        down(live)
        live.process.send_signal(signal.SIGINT)
        wait_for(lambda: "run.stopping" in live.run.log.read_text(), 30, "the first being heard")
        live.process.send_signal(signal.SIGINT)
        out, _ = live.process.communicate(timeout=60)
    (fault,) = json.loads(out)["faults"]
    assert fault["reverted_s"] is not None
    steps = [e.get("step") for e in live.journal()]
    assert "clean" in steps


@pytest.mark.timeout(240)
def test_a_daemon_that_was_stopped_says_so_and_does_not_blame_nginx(tmp_path):
    """SIGSTOP of the daemon: slots are missed, the stretch is set apart, the verdict is invalid."""
    with started(tmp_path, "length: 24s\nrate: 200", "--json") as live:
        live.until_running()
        live.process.send_signal(signal.SIGSTOP)
        time.sleep(9)
        live.process.send_signal(signal.SIGCONT)
        out, err = live.process.communicate(timeout=90)
    report = json.loads(out)
    assert (report["verdict"], live.process.returncode) == ("invalid", 3), (report["reasons"], err)
    assert report["load"]["missed"] > 200
    assert "stopped or starved" in json.dumps(report["unwell"])
    assert report["load"]["scheduled"] == 24 * 200


@pytest.mark.timeout(240)
def test_a_run_that_is_live_cannot_be_started_twice(tmp_path):
    """The second start names the first and touches nothing."""
    with started(tmp_path, "length: 60s\nrate: 100") as live:
        live.until_running()
        second = live.soak("start", str(tmp_path / "soak.yaml"), "--dir", str(live.run.path))
        assert second.returncode == 2
        assert str(live.process.pid) in second.stderr
        assert live.client.status().state == "running"
