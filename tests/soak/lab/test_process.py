"""Identities, signals that cannot hit a stranger, and children with last words: all with real processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from chaos.target import IdentityChangedError
from soak.errors import LabError
from soak.lab.process import (
    Child,
    exit_words,
    living,
    process_table,
    row_of,
    signal_process,
    start_child,
    tail,
    tree_of,
)

from .conftest import until


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_a_process_is_known_by_pid_and_start(sleeper):
    """The identity is plain numbers and holds as long as the process lives."""
    row = row_of(sleeper.pid)
    assert row is not None

    assert {"pid": sleeper.pid, "started": row.started} == row.identity
    assert row.identity == process_table()[sleeper.pid].identity
    assert (os.getpid(), sleeper.pid, sleeper.pid) == (row.ppid, row.pgid, row.sid)
    assert living(row.identity) is not None


def test_another_start_time_is_another_process(sleeper):
    """A reused pid is not the same thing, and gets no signal."""
    row = row_of(sleeper.pid)
    assert row is not None
    stranger = {"pid": sleeper.pid, "started": row.started - 1}

    assert living(stranger) is None
    with pytest.raises(IdentityChangedError, match="SIGKILL was not sent"):
        signal_process(stranger, signal.SIGKILL)
    assert sleeper.poll() is None


def test_an_ended_process_is_gone_even_before_it_is_reaped(sleeper):
    """A zombie has ended: its identity no longer holds."""
    row = row_of(sleeper.pid)
    assert row is not None
    signal_process(row.identity, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)

    assert living(row.identity) is None
    with pytest.raises(IdentityChangedError):
        signal_process(row.identity, signal.SIGTERM)
    sleeper.wait()
    assert row_of(sleeper.pid) is None
    with pytest.raises(IdentityChangedError):
        signal_process(row.identity, signal.SIGTERM)


@pytest.mark.parametrize("identity", [{}, {"pid": None}, {"pid": "12", "started": 1.0}])
def test_no_pid_is_no_process(identity):
    """An empty identity (a stopped backend) proves nothing."""
    assert living(identity) is None
    with pytest.raises(IdentityChangedError):
        signal_process(identity, signal.SIGTERM)


def test_a_suspended_process_shows_as_such(sleeper):
    """SIGSTOP and SIGCONT are visible in the table."""
    row = row_of(sleeper.pid)
    assert row is not None
    signal_process(row.identity, signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
    stopped = row_of(sleeper.pid)
    assert stopped is not None

    assert stopped.suspended
    assert not row.suspended
    signal_process(row.identity, signal.SIGCONT)


def test_a_name_with_blanks_and_parentheses_is_parsed(tmp_path):
    """The second field of /proc/PID/stat may hold anything."""
    binary = tmp_path / "a ) b"
    shutil.copy("/bin/sleep", binary)
    binary.chmod(0o755)
    process = subprocess.Popen([binary, "60"])
    try:
        row = row_of(process.pid)
        assert row is not None
        assert os.getpid() == row.ppid
    finally:
        process.kill()
        process.wait()


async def test_the_tree_is_the_session_and_all_descendants(tmp_path):
    """A grandchild whose parent is dead still belongs by its session; one with its own session by its parents."""
    text = "sleep 60 & (sleep 60 & exit 0); setsid sleep 60 & wait"
    process = subprocess.Popen(["/bin/sh", "-c", text], start_new_session=True)
    root = row_of(process.pid)
    assert root is not None
    await until(lambda: len(tree_of(root, process_table())) == 4)
    for row in tree_of(root, process_table()):
        os.kill(row.pid, signal.SIGKILL)
    process.wait()
    await until(lambda: tree_of(root, process_table()) == [])


def test_the_tree_of_a_process_without_its_own_session_is_its_descendants():
    """Otherwise our whole session would belong to it."""
    own = row_of(os.getpid())
    process = subprocess.Popen(["sleep", "60"])
    try:
        row = row_of(process.pid)
        assert row is not None
        assert own is not None
        assert own.sid == row.sid
        assert [process.pid] == [r.pid for r in tree_of(row, process_table())]
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("expected", "code"),
    [("still running", None), ("exit status 3", 3), ("SIGKILL", -9), ("signal 99", -99)],
)
def test_an_end_has_words(expected, code):
    """For a person."""
    assert expected == exit_words(code)


def test_the_tail_is_the_last_lines(tmp_path):
    """Bounded in lines and bytes; nothing for a file that is not there."""
    path = tmp_path / "log"
    path.write_text("x" * 100_000 + "\n" + "\n".join(str(i) for i in range(100)) + "\n")

    assert "98\n99" == tail(path, lines=2)
    assert "" == tail(tmp_path / "missing")


async def start(run, argv, ended: list[Child]) -> Child:
    return await start_child(
        "x",
        argv,
        directory=run.lab,
        run_id=run.id,
        log=run.lab / "x.log",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=None,
        on_end=ended.append,
    )


async def test_a_child_runs_marked_in_its_own_session_in_the_lab(run):
    """Directory, run id and session are what a sweep later relies on."""
    ended: list[Child] = []
    text = "import os; print(os.getcwd(), os.environ['SOAK_RUN'], os.getsid(0) == os.getpid(), flush=True)"
    child = await start(run, [sys.executable, "-c", text], ended)
    await child.process.wait()
    await until(lambda: ended == [child])

    assert f"{run.lab} {run.id} True" == tail(run.lab / "x.log")
    assert f"exit status 0; it said:\n{run.lab} {run.id} True" == child.words()


async def test_a_silent_child_says_so(run):
    """Its end is reported with how it ended."""
    ended: list[Child] = []
    child = await start(run, ["sleep", "60"], ended)
    assert child.alive
    signal_process(child.identity, signal.SIGKILL)
    await until(lambda: ended == [child])

    assert "SIGKILL; it said nothing" == child.words()
    assert not child.alive


async def test_how_a_child_ended_is_known_once_it_has_settled(run):
    """The kernel knows of an end before the loop does; until it does, a dead child is not called running."""
    ended: list[Child] = []
    go = run.lab / "go"
    child = await start(run, ["sh", "-c", f"until [ -e '{go}' ]; do sleep 0.01; done; exit 3"], ended)
    await child.settled()
    assert "still running" == child.how()
    go.touch()
    while child.alive:
        time.sleep(0.001)  # the loop must not turn: it would collect the child
    assert "it ended" == child.how()
    await child.settled()
    assert {"name": "x", "pid": child.process.pid, "exit": 3, "how": "exit status 3"} == child.end()
    await until(lambda: ended == [child])


async def test_a_binary_that_does_not_run_is_a_lab_error(run):
    """With the reason of the system."""
    with pytest.raises(LabError, match="x could not be started with '/no/such/binary': No such file"):
        await start(run, ["/no/such/binary"], [])
