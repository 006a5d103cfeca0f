"""Processes of somebody else, by pid file."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.target import BackendState, IdentityChangedError, TargetError
from soak.clock import SystemClock
from soak.lab import attachedprocess
from soak.lab.attachedprocess import AttachedProcess

from .conftest import until


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose pid file is ``tmp_path / 'pid'``."""
    process = subprocess.Popen(["sleep", "60"])
    (tmp_path / "pid").write_text(f"{process.pid}\n")
    yield process
    process.kill()
    process.wait()


def thing(tmp_path: Path, *start: str) -> AttachedProcess:
    return AttachedProcess(
        "b1", tmp_path / "pid", SystemClock(), run_id="r", start=start, log=tmp_path / "b1.log"
    )


async def test_a_pid_file_that_is_older_than_its_process_is_stale(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
):
    """The number was given to a stranger since: it is not believed."""
    assert sleeper.pid == (await thing(tmp_path).look()).identity["pid"]
    os.utime(tmp_path / "pid", (1e9, 1e9))
    assert BackendState.STOPPED is (await thing(tmp_path).look()).state


async def test_one_that_is_known_is_found_without_its_pid_file(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
):
    """nginx moves it when a configuration names another."""
    known = thing(tmp_path)
    seen = await known.look()
    (tmp_path / "pid").unlink()
    assert seen == await known.look()
    assert BackendState.STOPPED is (await thing(tmp_path).look()).state


@pytest.mark.parametrize(
    ("text", "says"), [("soon", "holds 'soon', which is no pid"), (None, "cannot be read")]
)
async def test_a_file_that_names_nobody_is_said(tmp_path: Path, text: str | None, says: str):
    """Words, or a directory."""
    if text is None:
        (tmp_path / "pid").mkdir()
    else:
        (tmp_path / "pid").write_text(text)
    with pytest.raises(TargetError, match=says):
        await thing(tmp_path).look()


async def test_a_process_of_another_user_is_not_ours_to_signal(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
):
    """The kernel refuses; the sentence says who may."""
    seen = await thing(tmp_path).look()

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(attachedprocess, "signal_process", refuse)
    with pytest.raises(
        TargetError, match=r"no permission to signal b1 .* as the user that runs it, or as root"
    ):
        await thing(tmp_path).signal(seen.identity, signal.SIGHUP)


async def test_one_that_does_not_end_or_stop_in_time_is_said(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
):
    """With its pid; here no signal arrives."""
    monkeypatch.setattr(attachedprocess, "signal_process", lambda *_: None)
    monkeypatch.setattr(attachedprocess, "_END_TIMEOUT_S", 0.02)
    monkeypatch.setattr(attachedprocess, "_SUSPEND_TIMEOUT_S", 0.02)
    identity = (await thing(tmp_path).look()).identity
    with pytest.raises(TargetError, match=r"still lives 0\.02 s after"):
        await thing(tmp_path).end(identity, force=True)
    with pytest.raises(TargetError, match="is still in state"):
        await thing(tmp_path).suspend(identity)


async def test_one_that_ended_meanwhile_is_another_one(tmp_path: Path, sleeper: subprocess.Popen[bytes]):
    """Nothing is signalled."""
    identity = (await thing(tmp_path).look()).identity
    sleeper.kill()
    sleeper.wait()
    for touch in (thing(tmp_path).resume(identity), thing(tmp_path).end(identity, force=False)):
        with pytest.raises(IdentityChangedError, match="it does not run; somebody else changed it"):
            await touch


async def test_a_suspended_one_ends_all_the_same(tmp_path: Path, sleeper: subprocess.Popen[bytes]):
    """It is woken for its SIGTERM."""
    one = thing(tmp_path)
    identity = (await one.look()).identity
    await one.suspend(identity)
    await one.end(identity, force=False)
    assert -signal.SIGTERM == sleeper.wait()


async def test_it_is_started_again_where_it_worked_and_leaves_no_zombie(tmp_path: Path):
    """In its old working directory, in a session of its own; its end is waited for."""
    (tmp_path / "home").mkdir()
    script = f"echo $$ > {tmp_path}/pid; pwd; exec sleep 60"
    first = subprocess.Popen(["sh", "-c", script], cwd=tmp_path / "home", stdout=subprocess.DEVNULL)
    await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    one = thing(tmp_path, "sh", "-c", script)
    old = (await one.look()).identity
    first.kill()
    first.wait()
    await one.begin()
    await until(lambda: (tmp_path / "pid").read_text().strip() not in ("", str(first.pid)))

    new = (await one.look()).identity
    await one.begin()

    assert str(tmp_path / "home") == (tmp_path / "b1.log").read_text().strip() == new["cwd"]
    assert old["pid"] != new["pid"] == os.getsid(new["pid"])
    await one.end(new, force=True)
    await until(lambda: not Path(f"/proc/{new['pid']}").exists())


async def test_what_it_runs_can_be_read(tmp_path: Path, sleeper: subprocess.Popen[bytes]):
    """From the kernel, not from a name; a process that was never seen has none."""
    one = thing(tmp_path)
    with pytest.raises(TargetError, match=r"set proxy\.binary"):
        one.binary()
    await one.look()
    assert "sleep" in one.binary().name or "busybox" in one.binary().name or "coreutils" in one.binary().name
