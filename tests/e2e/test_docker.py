"""Whole runs in containers, by the command line, against a real engine: they pass, and whoever dies leaves nothing."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from soak.errors import ControlError
from tests.e2e.runs import LiveRun, gone, started, wait_for
from tests.engine.dockerd import Dockerd
from tests.engine.fixtures import Images

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("docker")]

LIMITS = """
traffic: {response_timeout: 3s}
objectives: {rate_held: 0.9, stale_reuse: 0.02}
self: {max_lag_p99: 2s, max_loop_gap: 3s, max_unwell: 0.3, max_others: 1}
"""


@pytest.fixture
def plan(dockerd: Dockerd, images: Images) -> str:
    """A lab of stand-in images."""
    where = {"host": dockerd.host, "proxy_image": images.proxy("nginx"), "origin_image": images.origin()}
    return (
        f"\nlab: {json.dumps({'kind': 'docker', 'backends': 2, 'start_timeout': '40s', 'docker': where})}\n"
        + LIMITS
    )


def left_in(dockerd: Dockerd) -> dict[str, str]:
    """Return everything of soak's that an engine has: names of containers with their state, and networks."""
    client = dockerd.client()
    try:
        found = {row["Names"][0]: row["State"] for row in client.containers(all=True)}
        found |= {row["Name"]: "network" for row in client.networks() if row["Name"].startswith("soak")}
        return found
    finally:
        client.close()


@pytest.mark.timeout(180)
def test_a_run_with_chaos_passes_and_leaves_nothing(tmp_path, plan, dockerd):
    """A reload and a backend off the network: verified by traffic, and the verdict is a pass."""
    chaos = """
    length: 24s
    rate: 200
    chaos:
      gap: 1s
      series:
        - {fault: reload, every: 30s, first: 2s}
        - {fault: backend-partition, every: 30s, first: 8s, hold: 3s, targets: [b2]}
    """
    with started(tmp_path, chaos, "--json", calm=plan) as live:
        out, err = live.process.communicate(timeout=150)
    assert live.process.returncode == 0, out + err
    report = json.loads(out)
    assert ("pass", "docker") == (report["verdict"], report["run"]["lab"])
    found = {one["kind"]: one["outcome"] for one in report["faults"]}
    assert {"reload": "verified", "backend-partition": "verified"} == found
    vitals: Mapping[str, Any] = report["vitals"]
    assert vitals["rss_bytes"]["first"] > 1e6
    assert vitals["fds"]["first"] > 0
    assert {} == left_in(dockerd)


@pytest.mark.timeout(180)
def test_heal_removes_all_when_daemon_and_guardian_were_killed(tmp_path, plan, dockerd):
    """A container is paused, ``lab.json`` is torn, nobody is alive: by its labels everything is found and removed."""
    with started(tmp_path, "length: 120s\nrate: 100", calm=plan) as live:
        _until_running(live)
        live.client.inject("backend-hang", target="b1", hold_s=60.0, wait=False)
        live.until_step("active", 30)
        family = live.family()
        (guardian,) = live.guardians()
        guardian.send_signal(signal.SIGKILL)
        live.process.send_signal(signal.SIGKILL)
        live.process.communicate(timeout=30)
        gone(family, 30)
        left = left_in(dockerd)
        assert sorted(["running", "running", "paused", "network"]) == sorted(left.values()), left
        assert "containers and a network" in live.soak("runs").stdout + live.soak("check").stdout
        live.run.lab_state.write_bytes(live.run.lab_state.read_bytes()[:40])
        healed = live.soak("heal", live.run.id)
    assert healed.returncode == 0, healed.stdout + healed.stderr
    assert {} == left_in(dockerd)
    assert "nothing" in live.soak("heal", live.run.id).stdout


@pytest.mark.timeout(180)
def test_the_guardian_removes_all_when_the_daemon_was_killed(tmp_path, plan, dockerd):
    """In the middle of a partition, without a command from anybody."""
    with started(tmp_path, "length: 120s\nrate: 100", calm=plan) as live:
        _until_running(live)
        live.client.inject("backend-partition", target="b1", hold_s=60.0, wait=False)
        live.until_step("active", 30)
        family = live.family()
        live.process.send_signal(signal.SIGKILL)
        live.process.communicate(timeout=30)
        gone(family, 30)
    wait_for(lambda: not left_in(dockerd), 30, "the guardian's work")


@pytest.mark.timeout(180)
def test_an_engine_that_is_restarted_is_told_and_blamed(tmp_path, plan, dockerd):
    """It takes proxy and origins along: the run goes on to its end, says so, blames no proxy, and leaves nothing."""
    with started(tmp_path, "length: 20s\nrate: 100", "--json", calm=plan) as live:
        _until_running(live)
        dockerd.end()
        wait_for(lambda: "engine.away" in live.run.log.read_text(), 30, "the engine's absence being noticed")
        dockerd.start()
        out, err = live.process.communicate(timeout=150)
    report = json.loads(out)
    assert (3, "invalid") == (live.process.returncode, report["verdict"]), err
    assert "the container engine went away" in " ".join(report["reasons"])
    assert "took the proxy along" in " ".join(report["reasons"])
    assert {} == left_in(dockerd)


def _until_running(live: LiveRun) -> None:
    def running() -> bool:
        assert live.process.poll() is None, live.words()
        with suppress(ControlError):  # a socket is there a moment before somebody listens
            return live.run.socket.exists() and live.client.status().sent > 0
        return False

    wait_for(running, 60, "the run holding its rate")
