"""Each state of a backend and each change between them, as chaos causes and sees it."""

from __future__ import annotations

import asyncio
import signal

import pytest

from chaos.target import BackendState, IdentityChangedError, TargetError
from soak.clock import SystemClock
from soak.lab import backends
from soak.lab.local import LocalLab
from soak.lab.process import living, signal_process
from soak.lab.state import LabState
from soak.lab.topology import choose_topology


@pytest.mark.parametrize("force", [False, True], ids=["SIGTERM", "SIGKILL"])
async def test_stop_and_start(lab: LocalLab, force: bool):
    """It is gone, its port is closed, and it comes back as another process on the same port."""
    before = await lab.backend_status("b1")
    assert BackendState.RUNNING is before.state
    await lab.backend_stop("b1", before.identity, force=force)
    gone = await lab.backend_status("b1")

    assert (BackendState.STOPPED, {}) == (gone.state, gone.identity)
    assert living(before.identity) is None
    identity = await lab.backend_start("b1")
    after = await lab.backend_status("b1")
    assert (BackendState.RUNNING, identity) == (after.state, after.identity)
    assert before.identity != identity


async def test_pause_and_resume(lab: LocalLab):
    """It exists and does not answer, then answers again as the same process."""
    before = await lab.backend_status("b2")
    await lab.backend_pause("b2", before.identity)
    hung = await lab.backend_status("b2")

    assert (BackendState.HUNG, before.identity) == (hung.state, hung.identity)
    await lab.backend_resume("b2", before.identity)
    assert before == await lab.backend_status("b2")


async def test_resuming_and_starting_what_runs_is_success(lab: LocalLab):
    """Reverts are idempotent."""
    before = await lab.backend_status("b1")
    await lab.backend_resume("b1", before.identity)

    assert before.identity == await lab.backend_start("b1")
    assert before == await lab.backend_status("b1")


async def test_a_suspended_one_can_be_stopped(lab: LocalLab):
    """SIGTERM alone would wait for a SIGCONT that never comes."""
    status = await lab.backend_status("b1")
    await lab.backend_pause("b1", status.identity)
    await lab.backend_stop("b1", status.identity, force=False)

    assert BackendState.STOPPED is (await lab.backend_status("b1")).state


async def test_another_process_is_never_touched(lab: LocalLab):
    """Once b1 was restarted, the old identity opens no door to the new one."""
    old = (await lab.backend_status("b1")).identity
    await lab.backend_stop("b1", old, force=True)
    new = await lab.backend_start("b1")

    with pytest.raises(IdentityChangedError, match="b1 is no longer the process"):
        await lab.backend_stop("b1", old, force=True)
    with pytest.raises(IdentityChangedError):
        await lab.backend_pause("b1", old)
    with pytest.raises(IdentityChangedError):
        await lab.backend_resume("b1", {})
    assert new == (await lab.backend_status("b1")).identity


async def test_an_unknown_name_is_said(lab: LocalLab):
    """With the known ones."""
    with pytest.raises(TargetError, match="there is no backend 'b9'; there are b1, b2"):
        await lab.backend_status("b9")


async def test_a_stranger_on_the_port_of_a_stopped_backend_is_said(lab: LocalLab):
    """It is not a running backend, and not a closed port either; starting fails with the origin's words."""
    status = await lab.backend_status("b1")
    port = lab._topology.backends[0].port
    await lab.backend_stop("b1", status.identity, force=True)

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nb1\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(pretend, "127.0.0.1", port)
    try:
        with pytest.raises(TargetError, match=f"something answers on its port {port}"):
            await lab.backend_status("b1")
        with pytest.raises(TargetError, match=r"the origin b1 did not come up .*(?s:.*)cannot listen"):
            await lab.backend_start("b1")
    finally:
        server.close()


async def test_one_that_does_not_end_is_said(lab: LocalLab, monkeypatch):
    """Bounded in time, with the pid."""
    monkeypatch.setattr(backends, "_END_TIMEOUT_S", 0.05)
    monkeypatch.setattr(backends, "signal_process", lambda _identity, _number: None)
    status = await lab.backend_status("b1")
    with pytest.raises(TargetError, match=rf"b1 \(pid {status.identity['pid']}\) still lives 0.05 s after"):
        await lab.backend_stop("b1", status.identity, force=False)


async def test_one_that_does_not_suspend_is_said(lab: LocalLab, monkeypatch):
    """Bounded in time, with its state."""
    monkeypatch.setattr(backends, "_SUSPEND_TIMEOUT_S", 0.05)
    monkeypatch.setattr(backends, "signal_process", lambda _identity, _number: None)
    status = await lab.backend_status("b1")
    with pytest.raises(TargetError, match=r"is still in state [SR] 0.05 s after the signal"):
        await lab.backend_pause("b1", status.identity)


async def test_one_that_dies_while_it_is_suspended_is_another_identity(lab: LocalLab, monkeypatch):
    """The end is noticed instead of waited out."""
    monkeypatch.setattr(
        backends, "signal_process", lambda identity, _number: signal_process(identity, signal.SIGKILL)
    )
    status = await lab.backend_status("b1")
    with pytest.raises(IdentityChangedError, match="b1 ended while it was being suspended"):
        await lab.backend_pause("b1", status.identity)


async def test_origins_misbehave_on_command(lab: LocalLab):
    """A wish is obeyed and undone; a wrong one is refused with its rule."""
    await lab.misbehave("b1", latency_ms=3000)
    monkeyed = await lab.backend_status("b1")
    await lab.misbehave("b1")
    again = await lab.backend_status("b1")

    assert (BackendState.HUNG, BackendState.RUNNING) == (monkeyed.state, again.state)
    assert (await lab.origin_stats("b1"))["requests"] >= 2
    with pytest.raises(TargetError, match="b1 refused the command: unknown field 'typo'"):
        await lab.misbehave("b1", typo=1)


async def test_a_command_to_a_dead_origin_is_said(lab: LocalLab):
    """Not waited for."""
    status = await lab.backend_status("b1")
    await lab.backend_stop("b1", status.identity, force=True)
    with pytest.raises(TargetError, match="b1 did not answer the command"):
        await lab.misbehave("b1", latency_ms=1)


async def test_start_all_tells_the_first_that_fails(run):
    """And the others are not left unwatched."""
    subject = backends.LocalBackends(
        run,
        choose_topology(1).backends,
        LabState(run),
        SystemClock(),
        on_event=lambda _name, _data: None,
        start_timeout_s=0.001,
    )
    with pytest.raises(Exception, match=r"the origin b1 did not come up .* no answer within 0\.001 s"):
        await subject.start_all()
    for child in subject.children():
        await child.process.wait()
