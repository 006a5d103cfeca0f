"""A whole run against a real nginx: everything scheduled happens, is verified, and is in the report."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from typing import Any

import pytest

from tests.e2e.runs import lost, started, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("calm")]

PLAN = """
    length: 38s
    rate: 400
    seed: 7
    chaos:
      gap: 1s
      series:
        - {fault: reload, every: 20s, first: 3s}
        - {fault: backend-down, every: 30s, first: 9s, hold: 3s, targets: [b2]}
        - {fault: cert-rotate, every: 30s, first: 17s}
"""


@pytest.mark.timeout(240)
def test_a_short_run_passes_with_every_fault_verified(tmp_path, require):
    """The JSON report holds the contract's keys, both identities, and a lifecycle for each fault."""
    promtool = require("promtool")
    with started(tmp_path, PLAN, "--json") as live:
        live.until_running()
        status = live.client.status()
        exposition = urllib.request.urlopen(f"{status.http_url}/metrics", timeout=30).read()
        wait_for(lambda: live.client.status().active_faults, 30, "a fault under way")
        out, err = live.process.communicate(timeout=120)
    assert live.process.returncode == 0, err
    report = json.loads(out)
    assert report["verdict"] == "pass", report["reasons"]
    load = report["load"]
    assert load["scheduled"] == 38 * 400
    assert load["scheduled"] == load["sent"] + load["dropped"] + load["missed"]
    assert load["sent"] == load["ok"] + load["failed"] + load["in_flight"]
    assert lost(report) <= 0.001 * load["sent"]
    assert {"tls-reused", "tls-new", "post"} == set(load["classes"])
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for fault in report["faults"]:
        by_kind.setdefault(fault["kind"], []).append(fault)
    assert {"reload": 2, "backend-down": 1, "cert-rotate": 1} == {k: len(v) for k, v in by_kind.items()}
    for fault in report["faults"]:
        assert fault["outcome"] == "verified", fault
        assert fault["requests"] > 0
        assert fault["recovery_s"] is not None
        assert fault["injected_s"] >= fault["planned_s"]
    (down,) = by_kind["backend-down"]
    assert down["target"] == "b2"
    assert 3 <= down["reverted_s"] - down["injected_s"] < 9
    first, second = report["certificates"]
    assert first["serial"] != second["serial"]
    assert second["first_seen_s"] is not None
    assert second["old_last_seen_s"] is not None
    assert report["vitals"]["rss_bytes"]["first"] > 0
    assert report["self"]["cpu_us_per_request"] > 0
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=exposition, capture_output=True, timeout=30, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


@pytest.mark.timeout(240)
def test_faults_by_hand_are_told_step_by_step_and_metrics_show_them(tmp_path):
    """`soak inject` from a second shell prints the whole lifecycle of each fault; status and /metrics know of it."""
    with started(tmp_path, "length: 5m\nrate: 300\nchaos: {gap: 0s}") as live:
        live.until_running()
        for words in (
            ("backend-down", "--for", "2s"),
            ("backend-kill", "--target", "b3", "--for", "2s"),
            ("backend-hang", "--for", "2s"),
            ("reload-bad",),
            ("reload",),
            ("cert-rotate",),
            ("noop", "--for", "1s"),
        ):
            done = live.soak("inject", *words)
            assert done.returncode == 0, (words, done.stdout, done.stderr)
            told = done.stdout
            assert "injected" in told
            assert "verified" in told
            if words[0].startswith("backend"):
                assert told.index("injected") < told.index("active") < told.index("reverted")
        done = live.soak("status", "--json")
        status = json.loads(done.stdout)
        assert status["faults_done"]["backend-hang"] == {"verified": 1}
        text = urllib.request.urlopen(f"{status['http_url']}/metrics", timeout=30).read().decode()
        assert 'soak_fault_injections_total{fault="backend-kill",target="b3"} 1.0' in text
        done = live.soak("inject", "backend-dwon")
        assert done.returncode == 2
        assert "did you mean 'backend-down'" in done.stderr
        done = live.soak("inject", "backend-down", "--target", "b9")
        assert done.returncode == 2
        assert "b9" in done.stderr
        done = live.soak("stop")
        assert done.returncode == 0, done.stderr
        live.process.communicate(timeout=30)
    report = live.report()
    assert {f["source"] for f in report["faults"]} == {"inject"}
    assert report["run"]["ended"] == "soak stop"
