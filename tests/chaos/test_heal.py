"""Healing from the journal alone, on fakes: newest first, bounded, retried, idempotent."""

from __future__ import annotations

import asyncio
import fcntl
from pathlib import Path

import pytest

from chaos.fault import BlindObserver
from chaos.faults.catalog import registry
from chaos.heal import HealResult, heal
from chaos.journal import Intent, Journal, open_undos, read_journal
from chaos.model import Evidence, FaultShape, Source, Undo
from chaos.target import BackendState, Target, TargetError
from tests.fakes import FakeClock, FakeTarget


class FakeLab:
    """A lab that was opened from its files."""

    def __init__(self, target: FakeTarget, *, disposable: bool) -> None:
        self._target = target
        self.disposable = disposable
        self.releases: list[Evidence | Exception] = []
        self.left = ["b1", "b2"]

    async def release(self) -> Evidence:
        if self.releases:
            answer = self.releases.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        if not self.disposable:
            return Evidence(ok=True)
        ended, self.left = self.left, []
        return Evidence(ok=True, detail={"ended": ended})

    def target(self) -> Target | None:
        return None if self.disposable else self._target


class Ruin:
    """What a dead run left: a journal with open intents and a lab."""

    def __init__(self, tmp_path: Path, *, disposable: bool = False) -> None:
        self.clock = FakeClock()
        self.target = FakeTarget(self.clock)
        self.lab = FakeLab(self.target, disposable=disposable)
        self.path = tmp_path / "journal.jsonl"

    def left(self, kind: str, name: str, state: BackendState | None = None) -> None:
        number = len(read_journal(self.path).entries) + 1
        identity = self.target.identities.get(name, {"pid": 50})
        undo = Undo(name, identity=dict(identity), state={"generation": 1, "next_generation": 2})
        with Journal(self.path, t0_ns=0) as journal:
            journal.intent(Intent(number, kind, FaultShape.FAULT, undo, Source.SCHEDULE, 0.0, 1.0), 1.0)
        if state is not None:
            self.target.states[name] = state

    async def heal(self) -> HealResult:
        return await self.clock.drive(heal(self.path, self.lab, registry(), clock=self.clock))


async def test_every_open_undo_is_played_newest_first(tmp_path: Path):
    """Stopped backends run again, hung ones answer, a half-done rotation is restored; then all is closed."""
    ruin = Ruin(tmp_path)
    ruin.left("backend-down", "b1", BackendState.STOPPED)
    ruin.left("backend-hang", "b2", BackendState.HUNG)
    ruin.left("cert-rotate", "proxy")
    result = await ruin.heal()
    assert [(u.kind, u.ok) for u in result.undos] == [
        ("cert-rotate", True),
        ("backend-hang", True),
        ("backend-down", True),
    ]
    assert set(ruin.target.states.values()) == {BackendState.RUNNING}
    assert "restore_proxy" in ruin.target.calls
    assert result.ok
    assert open_undos(ruin.path) == ()
    assert "#3 cert-rotate on proxy: healed, a look shows it as it was" in result.sentences()


async def test_a_second_heal_has_nothing_to_do(tmp_path: Path):
    """Healing closes what it healed."""
    ruin = Ruin(tmp_path)
    ruin.left("backend-down", "b1", BackendState.STOPPED)
    assert not (await ruin.heal()).nothing_to_do
    calls = len(ruin.target.calls)
    again = await ruin.heal()
    assert again.nothing_to_do
    assert again.sentences() == ["nothing to do: the run left nothing behind"]
    assert len(ruin.target.calls) == calls


async def test_a_run_without_a_journal_has_nothing_to_do(tmp_path: Path):
    """A daemon that died before its first fault; no journal is made for it."""
    ruin = Ruin(tmp_path)
    assert (await ruin.heal()).nothing_to_do
    assert not ruin.path.exists()


async def test_one_undo_that_fails_does_not_keep_the_others_from_being_played(tmp_path: Path):
    """Each undo stands alone; what failed stays open, for the next heal."""
    ruin = Ruin(tmp_path)
    ruin.left("backend-down", "b1", BackendState.STOPPED)
    ruin.left("backend-down", "b2", BackendState.STOPPED)
    ruin.target.plan("backend_start", *[TargetError("address already in use")] * 3)
    result = await ruin.heal()
    assert [u.target for u in result.failed] == ["b2"]
    assert [u.target for u in result.healed] == ["b1"]
    assert not result.ok
    assert [i.undo.target for i in open_undos(ruin.path)] == ["b2"]
    assert "#2 backend-down on b2: NOT healed, undoing: address already in use" in result.sentences()
    assert (await ruin.heal()).ok


async def test_an_undo_that_stands_still_is_cut(tmp_path: Path):
    """Each try has 15 s."""
    ruin = Ruin(tmp_path)
    ruin.left("backend-down", "b1", BackendState.STOPPED)
    forever = asyncio.Event().wait
    ruin.target.plan("backend_start", forever, forever, forever)  # type: ignore[arg-type]  # its result is unused
    result = await ruin.heal()
    assert result.failed[0].reason == "undoing took longer than 15 s"
    assert ruin.clock.now() < 60


async def test_a_restore_that_is_refused_is_not_healed(tmp_path: Path):
    """The proxy's word decides when nobody watches traffic."""
    ruin = Ruin(tmp_path)
    ruin.left("reload", "proxy")
    ruin.target.restore_ok = False
    result = await ruin.heal()
    assert result.failed[0].reason == "the reload was not taken"


async def test_an_unknown_fault_is_named(tmp_path: Path):
    """A journal of another version does not crash the healer."""
    ruin = Ruin(tmp_path)
    ruin.left("from-the-future", "b1")
    assert (await ruin.heal()).failed[0].reason == "this version knows no fault 'from-the-future'"


async def test_a_disposable_lab_is_removed_and_every_undo_closed(tmp_path: Path):
    """Removing the lab heals everything at once; no undo is played."""
    ruin = Ruin(tmp_path, disposable=True)
    ruin.left("backend-down", "b1", BackendState.STOPPED)
    result = await ruin.heal()
    assert result.ok
    assert [(u.ok, u.reason) for u in result.undos] == [(True, "the lab was removed")]
    assert ruin.target.calls == []
    assert open_undos(ruin.path) == ()
    assert read_journal(ruin.path).entries[-1].data["evidence"] == {"lab": "removed"}
    assert (await ruin.heal()).nothing_to_do


async def test_a_lab_of_somebody_else_gets_back_what_was_borrowed(tmp_path: Path):
    """After the undos, and without any fault, too; nothing of it is ended."""
    ruin = Ruin(tmp_path)
    ruin.left("backend-hang", "b2", BackendState.HUNG)
    ruin.lab.releases = [Evidence(ok=True, reason="the proxy has its own files again")] * 2
    assert "the lab is given back: the proxy has its own files again" in (await ruin.heal()).sentences()
    assert ["b1", "b2"] == ruin.lab.left
    again = await ruin.heal()
    assert again.ok
    assert not again.nothing_to_do
    assert (await ruin.heal()).nothing_to_do


async def test_a_lab_of_somebody_else_that_cannot_be_given_back_is_not_healed(tmp_path: Path):
    """It is tried three times, and then says why."""
    ruin = Ruin(tmp_path)
    ruin.lab.releases = [TargetError("no engine answers")] * 3
    result = await ruin.heal()
    assert not result.ok
    assert ["the lab is NOT given back: releasing the lab: no engine answers"] == result.sentences()


async def test_a_disposable_lab_is_removed_even_without_a_fault(tmp_path: Path):
    """Processes of a run that was killed between faults are ended, and that is not nothing."""
    ruin = Ruin(tmp_path, disposable=True)
    result = await ruin.heal()
    assert (result.ok, result.nothing_to_do) == (True, False)
    assert result.sentences() == ["the lab is removed"]


async def test_a_removal_that_fails_is_tried_again(tmp_path: Path):
    """A process that dies while it is looked at, or one that ends late, is no reason to give up."""
    ruin = Ruin(tmp_path, disposable=True)
    ruin.lab.releases = [
        ProcessLookupError("no such process"),
        Evidence(ok=False, reason="1 process is alive"),
    ]
    assert (await ruin.heal()).ok


async def test_a_removal_that_keeps_failing_leaves_the_undos_open(tmp_path: Path):
    """What is left is told in the lab's words."""
    ruin = Ruin(tmp_path, disposable=True)
    ruin.left("backend-down", "b1", BackendState.STOPPED)
    ruin.lab.releases = [Evidence(ok=False, reason="2 processes are still alive")] * 3
    result = await ruin.heal()
    assert not result.ok
    assert "the lab is NOT removed: 2 processes are still alive" in result.sentences()
    assert len(open_undos(ruin.path)) == 1


async def test_a_damaged_journal_matters_only_where_undos_are_played(tmp_path: Path):
    """A lost intent may hide a fault, unless the whole lab is gone."""
    for disposable, ok in ((False, False), (True, True)):
        ruin = Ruin(tmp_path, disposable=disposable)
        ruin.path.write_bytes(b"nonsense\n" + b'{"seq":1,"entry":"run","t0_ns":0}\n')
        result = await ruin.heal()
        assert result.ok is ok
        assert result.problems[0].startswith("journal line 1 cannot be read")


async def test_two_healers_do_not_heal_at_once(tmp_path: Path):
    """``soak heal`` waits for a guardian that is at it."""
    ruin = Ruin(tmp_path)
    ruin.left("backend-down", "b1", BackendState.STOPPED)
    with (tmp_path / "heal.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        second = asyncio.ensure_future(heal(ruin.path, ruin.lab, registry(), clock=ruin.clock))
        await ruin.clock.advance(5)
        assert ruin.target.states["b1"] is BackendState.STOPPED
    assert (await ruin.clock.drive(second)).ok


async def test_a_healer_that_never_ends_does_not_block_the_next_one_for_ever(tmp_path: Path):
    """After a minute the undo is played all the same: it is idempotent."""
    ruin = Ruin(tmp_path)
    ruin.left("backend-down", "b1", BackendState.STOPPED)
    with (tmp_path / "heal.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert (await ruin.heal()).ok
    assert ruin.clock.now() == pytest.approx(60, abs=1)


async def test_a_run_directory_that_is_gone_does_not_prevent_the_removal(tmp_path: Path):
    """Healing does not depend on being able to write."""
    ruin = Ruin(tmp_path, disposable=True)
    ruin.path = tmp_path / "gone" / "journal.jsonl"
    assert (await ruin.heal()).ok


async def test_a_journal_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The backend runs again; that the journal could not say so is a problem, not a reason to leave it down."""
    ruin = Ruin(tmp_path)
    ruin.left("backend-down", "b1", BackendState.STOPPED)

    def full(_fd: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    result = await asyncio.wait_for(ruin.heal(), 30)
    assert ruin.target.states["b1"] is BackendState.RUNNING
    assert "No space left on device" in result.problems[0]
    assert not result.ok


async def test_a_lab_that_is_kept_must_offer_a_target(tmp_path: Path):
    """A lab that says it is not disposable and has no target is a defect of the lab."""
    ruin = Ruin(tmp_path, disposable=True)
    ruin.lab.disposable = False
    ruin.lab.target = lambda: None  # type: ignore[method-assign]  # a lab that contradicts itself
    with pytest.raises(ValueError, match="must offer a target"):
        await ruin.heal()


async def test_a_blind_observer_must_not_be_asked():
    """A fault that waits for traffic while healing would wait for nothing; it is told so."""
    blind = BlindObserver()
    for look in (blind.generation_seen(1, 2), blind.serial_seen("a", 2), blind.origin_silent("b1", 2)):
        with pytest.raises(TargetError, match="nobody watches traffic while healing"):
            await look
    with pytest.raises(TargetError, match="backend b1 cannot be seen within 2 s"):
        await blind.origin_seen("b1", 0, 2)
    with pytest.raises(TargetError, match="generation 1"):
        blind.last_seen("generation", "1")
