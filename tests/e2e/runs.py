"""Real runs for tests: a daemon started by the command line as a user does, watched from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

from soak.rundir import RunDir
from soak.web.client import ControlClient

T = TypeVar("T")
START_S = 60.0
"""How long anything may take to begin on a machine that runs other tests, too; only a hang takes longer."""
SOAK = (sys.executable, "-m", "soak.cli")
CALM = """
    lab: {backends: 3}
    traffic: {response_timeout: 3s}
    objectives: {rate_held: 0.9, success: 0.98, stale_reuse: 0.02, recovery_within: 25s, steady_p99: 3s}
    self: {max_lag_p99: 2s, max_loop_gap: 3s, max_unwell: 0.3, max_others: 1}
"""
"""Limits that a busy test machine meets; what a test is about is set by the test."""


def wait_for(look: Callable[[], T | None], seconds: float, what: str) -> T:
    """Look until there is something; fails with what was waited for."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, f"{what} did not happen within {seconds} s"
        time.sleep(0.02)


@dataclass
class LiveRun:
    """A run in the foreground of a process of its own."""

    process: subprocess.Popen[str]
    home: Path
    run: RunDir

    @property
    def client(self) -> ControlClient:
        return ControlClient(self.run, answer_timeout_s=START_S)

    def soak(self, *args: str, timeout: float = START_S) -> subprocess.CompletedProcess[str]:
        """Run another soak command beside it, as from a second shell."""
        return soak(self.home, *args, timeout=timeout)

    def until_running(self) -> LiveRun:
        def running() -> bool:
            assert self.process.poll() is None, self.words()
            return self.run.socket.exists() and self.client.status().sent > 0

        wait_for(running, START_S, "the run holding its rate")
        return self

    def journal(self) -> list[dict[str, Any]]:
        if not self.run.journal.exists():
            return []
        whole = self.run.journal.read_text().rpartition("\n")[0]  # the last line may be half written
        return [json.loads(line) for line in whole.splitlines()]

    def until_step(self, step: str, seconds: float = START_S) -> None:
        wait_for(lambda: any(e.get("step") == step for e in self.journal()), seconds, f"journal step {step}")

    def family(self) -> list[psutil.Process]:
        """All processes of the run: the daemon's descendants."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def guardians(self) -> list[psutil.Process]:
        """The run's guardians that live: one, or none for a moment."""
        found = []
        for process in self.family():
            with suppress(psutil.Error):  # it ended while it was looked at
                if "chaos.guardian" in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def words(self) -> str:
        """Wait for its end and return what it said."""
        out, err = self.process.communicate(timeout=30)
        return out + err

    def report(self) -> dict[str, Any]:
        done = self.soak("report", self.run.id, "--format", "json")
        assert done.returncode == 0, done.stderr
        value: dict[str, Any] = json.loads(done.stdout)
        return value


def soak(home: Path, *args: str, timeout: float = START_S) -> subprocess.CompletedProcess[str]:
    """Run a soak command to its end."""
    env = {**os.environ, "SOAK_HOME": str(home), "COLUMNS": "200"}
    return subprocess.run(
        [*SOAK, *args], env=env, text=True, capture_output=True, timeout=timeout, check=False
    )


@contextmanager
def started(home: Path, plan: str, *flags: str, calm: str = CALM) -> Iterator[LiveRun]:
    """Start a run of this plan and these limits; whatever happens, nothing of it is left behind."""
    home.mkdir(parents=True, exist_ok=True)
    file = home / "soak.yaml"
    file.write_text(textwrap.dedent(plan) + textwrap.dedent(calm))
    env = {**os.environ, "SOAK_HOME": str(home)}
    command = [*SOAK, "start", str(file), "--dir", str(home / "run"), *flags]
    process = subprocess.Popen(
        command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    live = LiveRun(process, home, RunDir(home / "run"))
    try:
        yield live
    finally:
        _end(live)


def lost(report: dict[str, Any]) -> int:
    """Return how many requests failed that no budget allows: ``stale_reuse`` has one, and is the more the busier a machine is."""
    load = report["load"]
    return int(load["failed"] - load["outcomes"].get("stale_reuse", 0))


def _end(live: LiveRun) -> None:
    family = live.family() if live.process.poll() is None else []
    if live.process.poll() is None:
        live.process.send_signal(signal.SIGCONT)
        live.process.terminate()
        try:
            live.process.communicate(timeout=40)
        except subprocess.TimeoutExpired:
            live.process.kill()
            live.process.communicate()
    _, alive = psutil.wait_procs(family, timeout=30)
    for process in alive:
        process.kill()
    assert alive == [], f"left behind: {alive}"


def gone(family: list[psutil.Process], seconds: float = 30.0) -> None:
    """Assert that all of these processes end by themselves in time."""
    _, alive = psutil.wait_procs(family, timeout=seconds)
    shown = [(p.pid, p.name()) for p in alive]
    for process in alive:
        process.kill()
    assert shown == [], f"still alive after {seconds} s: {shown}"
