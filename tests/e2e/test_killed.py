"""A daemon that is killed at any moment leaves nothing behind, and its run can still be healed and reported."""

from __future__ import annotations

import json
import signal

import pytest

from tests.e2e.runs import LiveRun, gone, started, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("each")]


def kill(live: LiveRun) -> None:
    """SIGKILL the daemon and see everything else of the run end within ten seconds."""
    family = live.family()
    assert len(family) > 1
    live.process.send_signal(signal.SIGKILL)
    live.process.communicate(timeout=30)
    gone(family, 30)


@pytest.mark.timeout(240)
def test_killed_while_the_lab_comes_up(tmp_path):
    """Before a request was sent: origins, nginx and guardian end."""
    with started(tmp_path, "length: 60s\nrate: 100") as live:
        wait_for(lambda: live.run.lab_state.exists() and len(live.family()) > 2, 30, "the lab coming up")
        kill(live)
    assert live.soak("heal", live.run.id).returncode == 0


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("fault", "hold_s", "step"),
    [
        ("backend-down", 30.0, "injecting"),
        ("backend-down", 30.0, "active"),
        ("backend-hang", 30.0, "active"),
        ("backend-kill", 1.5, "reverting"),
        ("backend-down", 1.5, "clean"),
        ("cert-rotate", None, "injecting"),
        ("reload-bad", None, "injecting"),
    ],
)
def test_killed_during_a_fault(tmp_path, fault, hold_s, step):
    """Within ten seconds nothing of the run is left; heal closes the journal, report judges what is there as invalid."""
    with started(tmp_path, "length: 60s\nrate: 200\nchaos: {gap: 0s}") as live:
        live.until_running()
        wait_for(lambda: live.client.status().elapsed_s > 2, 30, "some traffic")
        live.client.inject(fault, hold_s=hold_s, wait=False)
        live.until_step(step)
        kill(live)
    healed = live.soak("heal", live.run.id)
    assert healed.returncode == 0, healed.stdout + healed.stderr
    again = live.soak("heal", live.run.id)
    assert again.returncode == 0
    assert "nothing" in again.stdout
    report = live.report()
    assert report["verdict"] == "invalid"
    assert any("ended by itself" in reason for reason in report["reasons"]), report["reasons"]
    assert report["load"]["sent"] > 0
    refused = live.soak("status", live.run.id)
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr


@pytest.mark.timeout(240)
def test_a_killed_guardian_is_replaced_and_the_new_one_heals(tmp_path):
    """Killing the guardian first does not open a gap."""
    with started(tmp_path, "length: 60s\nrate: 100") as live:
        live.until_running()
        (guardian,) = live.guardians()
        guardian.kill()
        wait_for(lambda: [p for p in live.guardians() if p != guardian], 30, "a new guardian")
        wait_for(lambda: live.run.guardian_log.read_text().count("guardian.watching") == 2, 30, "it watching")
        kill(live)
        events = [json.loads(line)["event"] for line in live.run.log.read_text().splitlines()]
        assert "guardian.died" in events
