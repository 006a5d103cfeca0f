"""Watching a detached run come up. The real thing is in test_start."""

import signal
import subprocess

import pytest

from soak.cli import detached
from soak.cli.detached import holds
from soak.rundir import RunDir
from tests.soak.web.fakes import status_of_a_run


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"state": "starting"}, False),
        ({"elapsed_s": 2.9}, False),
        ({"rate_now": 980.0}, False),
    ],
)
def test_a_run_holds_its_rate_when_it_has_done_so_for_seconds(changes, expected):
    """Up, for three seconds, within a hundredth."""
    assert expected is holds(status_of_a_run(**changes))


class Child:
    """A daemon's process as ``Popen`` shows it, that ends after some looks."""

    def __init__(self, looks: int, code: int) -> None:
        self.looks, self.code = looks, code
        self.signals: list[int] = []

    def wait(self, timeout=None):
        self.looks -= 1
        if timeout is not None and self.looks > 0:
            raise subprocess.TimeoutExpired("soak.daemon", timeout)
        return self.code

    def send_signal(self, number):
        self.signals.append(number)


@pytest.fixture
def spawned(monkeypatch):
    """Put a fake process in place of the daemon's."""

    def spawn(child: Child) -> Child:
        monkeypatch.setattr(detached, "_spawn", lambda run, output: (output.touch(), child)[1])
        return child

    return spawn


@pytest.mark.parametrize(
    ("code", "expected"),
    [(0, (0, "is already over")), (1, (1, "ended with 1 before")), (-9, (137, "ended with -9 before"))],
)
def test_a_daemon_that_ends_at_once_gives_its_exit_code(soak, home, spawned, code, expected):
    """A run of a second may be over before anybody looks; a signal is told as shells do."""
    spawned(Child(2, code))
    result = soak("start", "--detach", "--preset", "quick", "--rate", "10")
    exit_code, words = expected
    assert exit_code == result.exit_code
    assert words in result.stderr


def test_a_run_that_does_not_hold_its_rate_is_told_so_and_goes_on(soak, home, spawned, monkeypatch):
    """Exit 3, with how to look at it and how to end it."""
    child = spawned(Child(10_000, 0))
    ticks = iter(range(0, 10_000, 10))
    monkeypatch.setattr(detached, "monotonic", lambda: next(ticks))
    statuses = iter([None, status_of_a_run(rate_now=7.0)])
    monkeypatch.setattr(detached, "_look", lambda _run: next(statuses, None))
    result = soak("start", "--detach", "--preset", "quick", "--rate", "10")
    assert 3 == result.exit_code
    assert "is up but holds 7 of 10 req/s after 60 s; it goes on, 'soak status" in result.stderr
    assert [] == child.signals


def test_ctrl_c_while_it_comes_up_stops_it(soak, home, spawned, monkeypatch):
    """Nobody wants a run that nobody waited for."""
    child = spawned(Child(10_000, 0))

    def interrupted(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(detached, "_watch", interrupted)
    result = soak("start", "--detach", "--preset", "quick", "--rate", "10")
    assert 130 == result.exit_code
    assert [signal.SIGTERM] == child.signals
    assert "stopping the run that was just started" in result.stderr


def test_a_run_that_does_not_answer_yet_is_looked_at_again(home, tmp_path):
    """No live.json, or no socket: no status."""
    run = RunDir(tmp_path)
    assert detached._look(run) is None
    run.live.write_text("{}")
    assert detached._look(run) is None
