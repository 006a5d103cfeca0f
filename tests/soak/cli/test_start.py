"""``soak start``: the real thing for a few seconds, in the foreground and detached, and how it fails."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from soak.errors import LabError
from soak.plan import Plan
from soak.rundir import RunDir
from soak.runs import find_run, live_runs, lock_holder
from tests.soak.synthetic import SyntheticRun

SHORT = "length: 6s\nrate: 50\nobjectives: {steady_failures: 50, success: 0.5}\nself: {max_unwell: 1, max_others: 1}\n"


def fake_daemon(monkeypatch, act):
    """Put ``act(plan, run, view)`` in place of the run itself; the daemon has its own tests."""
    monkeypatch.setattr("soak.daemon.run_foreground", act)


def test_the_report_follows_the_run_and_the_exit_code_is_the_daemons(soak, home, monkeypatch):
    """The report on stdout, progress on stderr, and the plan as run is saved."""
    seen: list[tuple[Plan, RunDir]] = []

    def act(plan, run, view):
        seen.append((plan, run))
        SyntheticRun().write(run.db)
        return 3

    fake_daemon(monkeypatch, act)
    result = soak("start", "--preset", "quick", "--rate", "10")
    ((plan, run),) = seen
    assert 3 == result.exit_code
    assert result.stdout.startswith("PASS  nginx")
    assert f"run {run.id}: 10 req/s for 2m, files in {run.path}" in result.stderr
    assert "rate: 10.0" in run.plan.read_text()
    assert 10.0 == plan.rate


def test_json_leaves_nothing_but_json_on_stdout(soak, home, monkeypatch):
    """For other programs."""
    fake_daemon(monkeypatch, lambda _plan, run, _view: (SyntheticRun().write(run.db), 0)[1])
    result = soak("start", "--json", "--preset", "quick", "--rate", "10")
    assert "pass" == json.loads(result.stdout)["verdict"]


def test_a_warning_is_told_and_the_run_begins(soak, home, monkeypatch):
    """It is no blocker."""
    monkeypatch.setattr("soak.check.MIN_MEMORY", 2**60)
    fake_daemon(monkeypatch, lambda _plan, run, _view: (SyntheticRun().write(run.db), 0)[1])
    result = soak("start", "--preset", "quick", "--rate", "10")
    assert 0 == result.exit_code
    assert "warning: " in result.stderr
    assert "the kernel may end it" in result.stderr


def test_a_lab_that_does_not_come_up_says_why_and_where_its_files_are(soak, home, monkeypatch):
    """Its own words first."""

    def act(_plan, _run, _view):
        raise LabError("nginx ended with 1: [emerg] unknown directive 'gzipp'")

    fake_daemon(monkeypatch, act)
    result = soak("start", "--preset", "quick", "--rate", "10")
    assert (2, "") == (result.exit_code, result.stdout)
    assert [
        "soak: nginx ended with 1: [emerg] unknown directive 'gzipp'",
        f"soak: its files are in {find_run(None, home).path}",
    ] == result.stderr.splitlines()[-2:]


@pytest.fixture
def run_soak(home):
    """Call soak in a process of its own; what is still live at the end is stopped."""

    def call(*args: str, **options) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "soak.cli", *args],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
            **options,
        )

    yield call
    for run in live_runs(home):
        holder = lock_holder(run)
        if holder is not None and holder.pid:
            os.kill(holder.pid, signal.SIGKILL)
    call("heal")


@pytest.mark.e2e
def test_a_short_run_in_the_foreground(run_soak, home):
    """Progress as plain lines on stderr, the report as JSON on stdout, the run listed as ended."""
    Path("p.yaml").write_text(SHORT)
    done = run_soak("start", "p.yaml", "--json")
    report = json.loads(done.stdout)
    assert (0, "pass", 300) == (done.returncode, report["verdict"], report["load"]["scheduled"]), done.stderr
    assert "running | " in done.stderr
    (row,) = json.loads(run_soak("runs", "--json").stdout)
    assert ("ended", []) == (row["state"], row["leftovers"])


@pytest.mark.e2e
def test_ctrl_c_heals_and_reports_how_far_the_run_came(home):
    """One SIGINT: graceful, with the verdict of what there was (invalid when it was too little)."""
    Path("p.yaml").write_text(SHORT.replace("6s", "10m"))
    child = subprocess.Popen(
        [sys.executable, "-m", "soak.cli", "start", "p.yaml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stderr is not None
        for line in child.stderr:
            if "running | " in line:
                break
        child.send_signal(signal.SIGINT)
        stdout, stderr = child.communicate(timeout=60)
    verdict, headline = stdout.splitlines()[0].split("  ", 1)
    assert {"PASS": 0, "INVALID": 3}[verdict] == child.returncode, stderr
    assert "of 10 min" in headline
    assert "Traceback" not in stderr
    assert [] == live_runs(home)


@pytest.mark.e2e
def test_a_detached_run_is_up_when_start_returns_and_every_command_finds_it(run_soak, home, tmp_path):
    """Also in a directory too deep for a socket's path."""
    Path("p.yaml").write_text(SHORT.replace("6s", "10m"))
    deep = tmp_path.joinpath(*["a-deep-directory"] * 6, "mine")
    up = run_soak("start", "p.yaml", "--detach", "--dir", str(deep))
    assert (0, "mine\n") == (up.returncode, up.stdout), up.stderr
    assert "50 req/s held" in up.stderr
    status = json.loads(run_soak("status", "--json").stdout)
    assert ("running", "mine") == (status["state"], status["run_id"])
    injected = run_soak("inject", "backend-down", "--for", "2s")
    assert 0 == injected.returncode, injected.stderr
    assert ["injected", "active", "reverted", "recovered", "outcome"] == [
        line.split()[0] for line in injected.stdout.splitlines() if not line.startswith("waiting")
    ]
    assert 2 == run_soak("start", "p.yaml", "--dir", str(deep)).returncode
    stopped = run_soak("stop")
    assert (0, "PASS") == (stopped.returncode, stopped.stdout.split()[0]), stopped.stdout
    assert 2 == run_soak("status").returncode
    assert [] == live_runs(home)


@pytest.mark.e2e
def test_a_detached_run_that_cannot_begin_shows_its_own_words(run_soak, home):
    """And its own exit code."""
    Path("p.yaml").write_text(SHORT + 'proxy: {extra: "no_such_directive on;"}\n')
    done = run_soak("start", "p.yaml", "--detach")
    assert (2, "") == (done.returncode, done.stdout)
    assert "no_such_directive" in done.stderr
    assert "before it was up; its files are in" in done.stderr
    assert [] == live_runs(home)
