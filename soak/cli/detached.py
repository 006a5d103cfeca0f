"""Starting a run that outlives the command: spawn its daemon, watch until it holds its rate, say how to go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic

import click

from soak.cli.group import complain, note
from soak.errors import EXIT_INVALID, ControlError
from soak.plan import Plan
from soak.rundir import RunDir
from soak.status import Status

UP_MARGIN_S = 45.0
"""How long a detached run may take from the start of its lab to a rate that is held."""
HELD_FOR_S = 3.0
HELD_SHARE = 0.99
_POLL_S = 0.25
_OUTPUT = "soak.out"


def start_detached(plan: Plan, run: RunDir) -> int:
    """Start the daemon in a session of its own and watch it until it holds its rate."""
    output = run.path / _OUTPUT
    child = _spawn(run, output)
    try:
        return _watch(plan, run, child, output)
    except KeyboardInterrupt:
        child.send_signal(signal.SIGTERM)
        note("stopping the run that was just started")
        child.wait()
        raise


def _spawn(run: RunDir, output: Path) -> subprocess.Popen[bytes]:
    with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "soak.daemon", str(run.path)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=run.path,
        )


def _watch(plan: Plan, run: RunDir, child: subprocess.Popen[bytes], output: Path) -> int:
    deadline = monotonic() + plan.lab.start_timeout + UP_MARGIN_S
    status: Status | None = None
    while monotonic() < deadline:
        try:
            code = child.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            status = _look(run) or status
            if status is not None and holds(status):
                _say_up(run, status)
                return 0
        else:
            return _ended_early(run, code, output)
    held = f"{status.rate_now:,.0f} of {plan.rate:,.0f} req/s" if status else "no rate yet"
    complain(
        f"the run {run.id} is up but holds {held} after {plan.lab.start_timeout + UP_MARGIN_S:.0f} s; it goes on, "
        f"'soak status {run.id}' shows it, 'soak stop {run.id}' ends it, its log is {run.log}"
    )
    return EXIT_INVALID


def _look(run: RunDir) -> Status | None:
    from soak.web.client import ControlClient  # noqa: PLC0415 - keeps --help quick

    if not run.live.exists():
        return None
    try:
        return ControlClient(run, answer_timeout_s=2.0).status()
    except ControlError:  # still starting, or busy: the deadline decides
        return None


def holds(status: Status) -> bool:
    """Whether a run is up and has held its rate for some seconds."""
    return (
        status.state == "running"
        and status.elapsed_s >= HELD_FOR_S
        and status.rate_now >= HELD_SHARE * status.rate_target
    )


def _say_up(run: RunDir, status: Status) -> None:
    click.echo(run.id)
    note(
        f"up, {status.rate_now:,.0f} req/s held, pid {status.pid}, {status.http_url}/metrics\n"
        f"  watch:  soak status {run.id}\n"
        f"  stop:   soak stop {run.id}\n"
        f"  report: soak report {run.id}"
    )


def _ended_early(run: RunDir, code: int, output: Path) -> int:
    """Show the daemon's own words and give its exit code; 128 + n when a signal ended it."""
    words = output.read_text(encoding="utf-8", errors="replace").strip()
    note(words[-4000:] or json.dumps({"exit": code}))
    if code == 0:
        note(f"the run {run.id} is already over; 'soak report {run.id}' shows it")
        return 0
    complain(f"the daemon of {run.id} ended with {code} before it was up; its files are in {run.path}")
    return code if code > 0 else 128 - code
