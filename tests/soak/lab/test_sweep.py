"""Nothing outlives a run, however it dies, and nothing else is ever touched. Real nginx, real kills, in odd orders."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from soak.clock import SystemClock
from soak.lab import open_for_healing, sweep
from soak.lab.process import row_of
from soak.lab.state import LabState, read_state
from soak.lab.sweep import processes_of, release
from soak.proxies.nginx import ADAPTER
from soak.rundir import RunDir

from .conftest import script, until

WRAPPER = """\
#!/bin/sh
case "$*" in *-v*|*-V*|*-t*) exec {nginx} "$@";; esac
{nginx} "$@" {redirect} &
wait
"""


@dataclass
class DeadlyRun:
    """A lab whose daemon is another process, to be killed."""

    run: RunDir
    daemon: asyncio.subprocess.Process

    def pid(self, name: str) -> int:
        return int(read_state(self.run).identities[name]["pid"])

    def titled(self, title: str) -> list[int]:
        """Return the lab's processes with this title."""
        rows = processes_of(self.run)
        return [row.pid for row in rows if title in " ".join(psutil.Process(row.pid).cmdline())]

    async def kill_daemon(self) -> None:
        self.daemon.kill()
        await self.daemon.wait()


async def begin(run: RunDir, *options: str) -> DeadlyRun:
    daemon = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.soak.lab.daemon", str(run.path), *options, stdout=asyncio.subprocess.PIPE
    )
    assert daemon.stdout is not None
    assert b"up\n" == await daemon.stdout.readline()
    return DeadlyRun(run, daemon)


@pytest.fixture
async def deadly(run: RunDir) -> AsyncIterator[DeadlyRun]:
    subject = await begin(run)
    yield subject
    if subject.daemon.returncode is None:
        await subject.kill_daemon()
    await release(run)


def lives(pid: int) -> bool:
    row = row_of(pid)
    return row is not None and row.alive


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def nothing(deadly: DeadlyRun) -> None:
    pass


def suspend_origin(deadly: DeadlyRun) -> None:
    os.kill(deadly.pid("b1"), signal.SIGSTOP)


def suspend_all_of_nginx(deadly: DeadlyRun) -> None:
    for pid in deadly.titled("nginx:"):
        os.kill(pid, signal.SIGSTOP)


def kill_master(deadly: DeadlyRun) -> None:
    kill(deadly.pid("proxy"))


def kill_workers(deadly: DeadlyRun) -> None:
    kill(*deadly.titled("nginx: worker"))


def kill_origins(deadly: DeadlyRun) -> None:
    kill(deadly.pid("b1"), deadly.pid("b2"))


def lose_state(deadly: DeadlyRun) -> None:
    deadly.run.lab_state.unlink()


def tear_state(deadly: DeadlyRun) -> None:
    deadly.run.lab_state.write_bytes(deadly.run.lab_state.read_bytes()[:300])


def kill_master_then_lose_state(deadly: DeadlyRun) -> None:
    kill_master(deadly)
    lose_state(deadly)


def suspend_workers_kill_master_tear_state(deadly: DeadlyRun) -> None:
    suspend_all_of_nginx(deadly)
    kill_master(deadly)
    tear_state(deadly)


def remove_the_whole_run(deadly: DeadlyRun) -> None:
    shutil.rmtree(deadly.run.path)


@pytest.mark.parametrize("daemon_first", [True, False], ids=["daemon first", "daemon last"])
@pytest.mark.parametrize(
    "disaster",
    [
        nothing,
        suspend_origin,
        suspend_all_of_nginx,
        kill_master,
        kill_workers,
        kill_origins,
        lose_state,
        tear_state,
        kill_master_then_lose_state,
        suspend_workers_kill_master_tear_state,
        remove_the_whole_run,
    ],
)
async def test_nothing_is_left_after(
    deadly: DeadlyRun, disaster: Callable[[DeadlyRun], None], daemon_first: bool
):
    """Release from the files alone ends every process of the run within its time."""
    before = [row.pid for row in processes_of(deadly.run)]
    assert len(before) == 7, "two origins; master, two workers, and two that tend the cache"
    if daemon_first:
        origins = [deadly.pid("b1"), deadly.pid("b2")]
        await deadly.kill_daemon()
        await until(lambda: not any(lives(pid) for pid in origins))
    with suppress(ProcessLookupError):  # an origin dies with its daemon
        disaster(deadly)
    if not daemon_first:
        await deadly.kill_daemon()

    began = SystemClock().monotonic_ns()
    evidence = await (await open_for_healing(str(deadly.run.path))).release()

    assert evidence.ok, evidence
    assert SystemClock().monotonic_ns() - began < 6e9
    assert [] == [pid for pid in before if lives(pid)]


async def test_release_is_idempotent_and_the_lab_is_disposable(deadly: DeadlyRun):
    """A second release finds nothing and is success; there is no target to play undos against."""
    await deadly.kill_daemon()
    healable = await open_for_healing(str(deadly.run.path))
    await healable.release()
    again = await healable.release()

    assert (True, []) == (again.ok, again.detail["ended"])
    assert healable.disposable
    assert healable.target() is None


@pytest.mark.parametrize(
    ("redirect", "lose"),
    [("", False), ("", True), ("</dev/null >/dev/null 2>&1", False)],
    ids=["plain", "record lost", "marks hidden"],
)
async def test_a_wrapper_that_is_killed_does_not_save_its_nginx(run: RunDir, tmp_path: Path, redirect, lose):
    """The real nginx is a child of the configured binary; with its marks hidden the record proves it, and vice versa."""
    text = WRAPPER.format(nginx=ADAPTER.find_binary(None), redirect=redirect)
    wrapper = script(tmp_path / "wrapped", text)
    deadly = await begin(run, str(wrapper))
    before = [row.pid for row in processes_of(run)]
    assert len(before) == 8
    kill(deadly.pid("proxy"))
    await deadly.kill_daemon()
    if lose:
        lose_state(deadly)

    assert (await release(run)).ok
    assert [] == [pid for pid in before if lives(pid)]


async def test_a_stranger_in_the_directory_is_spared(run: RunDir):
    """A shell that stands in the lab's directory, reads its log or only knows the run's name is not ours."""
    LabState(run).intend("proxy", ["nginx"])
    (run.lab / "error.log").write_text("x")
    with (run.lab / "error.log").open("rb") as log:
        strangers = [
            subprocess.Popen(["sleep", "60"], cwd=run.lab, stdin=log),
            subprocess.Popen(["sleep", "60"], env={**os.environ, "SOAK_RUN": run.id}),
            subprocess.Popen(["sleep", "60"], cwd=run.lab, env={**os.environ, "SOAK_RUN": run.id + "-other"}),
        ]
    try:
        assert [] == processes_of(run)
        assert (await release(run)).ok
        assert [None, None, None] == [stranger.poll() for stranger in strangers]
    finally:
        for stranger in strangers:
            stranger.kill()
            stranger.wait()


async def test_a_reused_pid_in_the_record_is_spared(run: RunDir):
    """The record names a pid that now belongs to somebody else."""
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        row = row_of(stranger.pid)
        assert row is not None
        state = LabState(run)
        state.intend("b1", ["origin"])
        state.started("b1", {"pid": stranger.pid, "started": row.started - 5})

        assert (await release(run)).ok
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_the_sweeper_spares_itself_and_its_ancestors(run: RunDir):
    """A heal that is run from within the lab, with the run's mark, does not end itself."""
    code = (
        "import sys; from pathlib import Path; from soak.rundir import RunDir; from soak.lab.sweep import processes_of;"
        "print([r.pid for r in processes_of(RunDir(Path(sys.argv[1])))])"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        str(run.path),
        cwd=run.lab,
        env={**os.environ, "SOAK_RUN": run.id},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()

    assert b"[]" == output.strip()


async def test_what_ignores_sigterm_is_killed(run: RunDir):
    """After its second of grace."""
    text = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        text,
        cwd=run.lab,
        env={**os.environ, "SOAK_RUN": run.id},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    await process.stdout.readline()
    evidence = await release(run)
    await process.wait()

    assert evidence.ok
    assert [{"pid": process.pid, "by": "SIGKILL"}] == list(evidence.detail["ended"])


async def test_what_cannot_be_ended_is_said(run: RunDir, monkeypatch):
    """Release gives up after its limit and names what is left."""
    process = subprocess.Popen(["sleep", "60"], cwd=run.lab, env={**os.environ, "SOAK_RUN": run.id})
    monkeypatch.setattr(sweep, "_LIMIT_S", 0.2)
    monkeypatch.setattr(sweep, "signal_process", lambda _identity, _number: None)
    try:
        evidence = await release(run)
        assert not evidence.ok
        assert [process.pid] == evidence.detail["left"]
        assert "1 processes of the run are still alive" in evidence.reason
    finally:
        process.kill()
        process.wait()


async def test_a_port_of_the_dead_run_is_free_again(deadly: DeadlyRun):
    """After release a new lab could take the same addresses."""
    listening = [
        c.laddr for c in psutil.Process(deadly.pid("b1")).net_connections("tcp4") if c.status == "LISTEN"
    ]
    ports = [address.port for address in listening if address]
    assert 2 == len(ports), "plain and TLS"
    await deadly.kill_daemon()
    await release(deadly.run)

    for port in ports:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("127.0.0.1", port))
