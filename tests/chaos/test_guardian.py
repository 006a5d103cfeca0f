"""The guardian with real processes: a daemon is killed at every step of a fault, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from chaos.guardian import Cause, Guardian, GuardianError, Watch, main, spawn_guardian
from chaos.journal import Intent, Journal, open_undos, read_journal
from chaos.model import FaultShape, Source, Undo
from chaos.target import BackendState
from tests.chaos.disk_lab import CHILDREN, NAMES, DiskLab, look

ROOT = Path(__file__).parents[2]
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}
STEPS = ["intent", "injecting", "touched", "injected", "active", "reverting", "reverted", "clean", "after"]
SECOND = 1_000_000_000


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A run directory; whatever process its lab file names is ended afterwards, by identity."""
    yield tmp_path
    for identity in DiskLab(tmp_path).recorded.values():
        seen = look(identity["pid"])
        if seen is not None and seen[1] == identity["started"]:
            with suppress(ProcessLookupError):
                os.kill(identity["pid"], signal.SIGKILL)
    while CHILDREN:
        CHILDREN.pop().wait(timeout=30)


def die_at(run: Path, kind: str, step: str) -> int:
    """Start a daemon, kill it at this step, and return its guardian's pid."""
    command = [sys.executable, "-m", "tests.chaos.doomed", str(run), kind, step]
    with subprocess.Popen(command, cwd=ROOT, env=ENV, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        line = daemon.stdout.readline()
        daemon.kill()
    said = json.loads(line)
    assert said["step"] == step
    pid: int = said["guardian"]
    return pid


async def gone(pid: int, timeout_s: float = 30.0) -> None:
    end = time.monotonic() + timeout_s
    while look(pid) is not None:
        assert time.monotonic() < end, f"the guardian {pid} is still there after {timeout_s} s"
        await asyncio.sleep(0.02)


def told(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "guardian.log").read_text().splitlines()]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", ["backend-down", "backend-hang"])
async def test_a_daemon_killed_at_any_step_leaves_every_backend_running(run: Path, kind: str, step: str):
    """In a lab that outlives the run the open undo is played: every backend runs, and the journal is closed."""
    await gone(die_at(run, kind, step))
    lab = DiskLab(run)
    assert {(await lab.backend_status(name)).state for name in NAMES} == {BackendState.RUNNING}
    assert open_undos(run / "journal.jsonl") == ()
    last = read_journal(run / "journal.jsonl").entries[-1]
    assert str(last.step) == ("clean" if step in ("clean", "after") else "healed")
    assert [entry["event"] for entry in told(run)] == [
        "guardian.watching",
        "guardian.cause",
        "guardian.healed",
    ]


@pytest.mark.parametrize("step", ["intent", "touched", "active", "after"])
async def test_a_lab_of_the_runs_own_is_removed(run: Path, step: str):
    """In a disposable lab every process of the run is ended, a suspended one too, and the undo is closed."""
    (run / "disposable").touch()
    await gone(die_at(run, "backend-hang", step))
    assert [look(identity["pid"]) for identity in DiskLab(run).recorded.values()] == [None, None]
    assert open_undos(run / "journal.jsonl") == ()


@asynccontextmanager
async def guarded(run: Path, *, seconds: float = 60.0, lab: str = "open_lab") -> AsyncIterator[Guardian]:
    guardian = await spawn_guardian(
        run_dir=run,
        open_lab=f"tests.chaos.disk_lab:{lab}",
        deadline_ns=time.monotonic_ns() + round(seconds * SECOND),
        log=run / "guardian.log",
        env=ENV,
    )
    try:
        yield guardian
    finally:
        await guardian.done()


async def started(run: Path) -> DiskLab:
    (run / "disposable").touch()
    lab = DiskLab(run)
    for name in NAMES:
        await lab.backend_start(name)
    return lab


def alive(lab: DiskLab) -> list[bool]:
    return [look(identity["pid"]) is not None for identity in lab.recorded.values()]


async def test_done_ends_it_without_touching_anything(run: Path):
    """A daemon that ended well says so, and its guardian goes."""
    lab = await started(run)
    async with guarded(run) as guardian:
        assert guardian.alive
        assert await guardian.done() == 0
        assert not guardian.alive
    assert alive(lab) == [True, True]


async def test_the_deadline_heals_though_the_daemon_lives(run: Path):
    """A daemon that stands still past its deadline is not waited for."""
    lab = await started(run)
    async with guarded(run, seconds=0.2) as guardian:
        assert await guardian.ended() == 0
    assert alive(lab) == [False, False]
    assert told(run)[1]["cause"] == Cause.DEADLINE


async def test_a_moved_deadline_is_kept(run: Path):
    """A run that goes on moves the deadline; a later one does not strike, an earlier one does."""
    lab = await started(run)
    async with guarded(run) as guardian:
        os.kill(
            guardian.pid, signal.SIGSTOP
        )  # it hears of both at once, however late: after the first has passed
        guardian.extend(time.monotonic_ns() + SECOND // 10)
        guardian.extend(time.monotonic_ns() + 60 * SECOND)
        await asyncio.sleep(0.2)
        os.kill(guardian.pid, signal.SIGCONT)
        await asyncio.sleep(0.5)
        assert alive(lab) == [True, True]
        guardian.extend(time.monotonic_ns())
        assert await guardian.ended() == 0
    assert alive(lab) == [False, False]


async def test_signals_of_a_terminal_do_not_end_it(run: Path):
    """SIGINT, SIGHUP and SIGTERM are passed over, and it has a session of its own."""
    await started(run)
    async with guarded(run) as guardian:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            os.kill(guardian.pid, number)
        await asyncio.sleep(0.2)
        assert guardian.alive
        assert os.getsid(guardian.pid) == guardian.pid
        assert await guardian.done() == 0


async def test_a_guardian_that_cannot_start_says_why(run: Path):
    """A lab that cannot be opened is known at the start of the run, in the words of the import."""
    with pytest.raises(
        GuardianError, match=r"did not start \(exit code 1\): .*has no attribute 'open_nothing'"
    ):
        async with guarded(run, lab="open_nothing"):
            pass


async def test_a_guardian_that_was_killed_is_told(run: Path):
    """Speaking to a dead guardian is an error; ending it gives its exit code."""
    async with guarded(run) as guardian:
        os.kill(guardian.pid, signal.SIGKILL)
        while look(guardian.pid) is not None:
            await asyncio.sleep(0.01)
        with pytest.raises(GuardianError, match="is gone: Broken pipe"):
            guardian.extend(1)
        assert await guardian.ended() == -signal.SIGKILL
        with pytest.raises(GuardianError, match=r"is gone$"):
            guardian.extend(1)


async def test_a_guardian_that_takes_too_long_to_start_is_told_and_ended(run: Path):
    """The daemon does not wait for ever, and leaves no half-started guardian behind."""
    (run / "hangs.py").write_text("import time\n\ntime.sleep(600)\n")
    env = {**ENV, "PYTHONPATH": f"{ROOT}:{run}"}
    with pytest.raises(GuardianError, match=r"the guardian did not start within 0.001 s"):
        await spawn_guardian(
            run_dir=run, open_lab="hangs:y", deadline_ns=0, log=run / "log", ready_timeout_s=0.001, env=env
        )


async def test_a_guardian_that_does_not_end_is_killed(run: Path):
    """A suspended guardian does not keep the daemon from ending."""
    async with guarded(run) as guardian:
        os.kill(guardian.pid, signal.SIGSTOP)
        assert await guardian.done(timeout_s=0.2) == -signal.SIGKILL


async def test_a_lab_that_cannot_be_opened_at_first_is_tried_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nobody else is left to heal, so one error is not the end."""
    lab = await started(run)
    async with guarded(run, seconds=0.1, lab="open_broken") as guardian:
        assert await guardian.ended() == 0
    assert alive(lab) == [False, False]
    assert [e["event"] for e in told(run)[2:]] == ["guardian.error", "guardian.healed"]


def undo_of_an_unknown_kind(run: Path) -> None:
    with Journal(run / "journal.jsonl") as journal:
        undo = Undo("b1", identity={})
        journal.intent(Intent(1, "from-the-future", FaultShape.FAULT, undo, Source.INJECT, 0.0, 1.0), 0.0)


def test_what_could_not_be_healed_is_its_exit_code(run: Path, monkeypatch: pytest.MonkeyPatch):
    """An undo that stays open makes it end with 4 and stays open for ``soak heal``."""
    monkeypatch.setattr("chaos.guardian.PAUSE_S", 0.0)
    monkeypatch.setattr("chaos.heal.BACKOFF_S", 0.0)
    monkeypatch.setattr("chaos.guardian._say_ready", lambda: None)
    monkeypatch.setattr("chaos.guardian._stay", lambda: None)
    undo_of_an_unknown_kind(run)
    read_fd, write_fd = os.pipe()
    os.close(write_fd)
    options = [
        "--run",
        str(run),
        "--pipe-fd",
        str(read_fd),
        "--deadline-ns",
        str(time.monotonic_ns() + 60 * SECOND),
    ]
    code = main([*options, "--open", "tests.chaos.disk_lab:open_lab", "--log", str(run / "guardian.log")])
    os.close(read_fd)
    assert code == 4
    assert [e["event"] for e in told(run)] == ["guardian.watching", "guardian.cause"] + [
        "guardian.not_healed"
    ] * 3
    assert len(open_undos(run / "journal.jsonl")) == 1


@pytest.mark.parametrize(
    ("pieces", "cause", "deadline_ns"),
    [
        ([b"done\n"], Cause.DONE, 5),
        ([b"do", b"ne\n"], Cause.DONE, 5),
        ([b"deadline 7\n"], None, 7),
        ([b"dead", b"line 7", b"1\n"], None, 71),
        ([b"deadline 7\ndeadline 8\ndone\n"], Cause.DONE, 8),
        ([b"deadline x\nnonsense\n\n\xff\xfe\n"], None, 5),
        ([b"done"], None, 5),
    ],
)
def test_lines_on_the_pipe(pieces: list[bytes], cause: Cause | None, deadline_ns: int):
    """Lines may come in pieces; what is no line of ours is passed over."""
    watch = Watch(-1, 5)
    causes = [watch.feed(piece) for piece in pieces]
    assert (causes[-1], watch.deadline_ns) == (cause, deadline_ns)


def test_end_of_file_is_a_cause_and_so_is_the_deadline():
    """The two ways to learn that the daemon cannot heal any more."""
    read_fd, write_fd = os.pipe()
    assert Watch(read_fd, time.monotonic_ns() + SECOND // 100).wait() is Cause.DEADLINE
    os.write(write_fd, f"deadline {time.monotonic_ns() + 60 * SECOND}\n".encode())
    os.close(write_fd)
    assert Watch(read_fd, time.monotonic_ns() + 60 * SECOND).wait() is Cause.EOF
    os.close(read_fd)
