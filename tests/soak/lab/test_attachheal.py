"""A daemon that died leaves things of somebody else broken; healing plays its journal against them and ends nothing."""

from __future__ import annotations

import os
import signal

import pytest

from chaos.faults.catalog import registry
from chaos.heal import heal
from chaos.journal import Intent, Journal, open_undos
from chaos.model import FaultShape, Source, Undo
from chaos.target import BackendState, Identity, TargetError
from soak.lab import open_for_healing
from soak.lab.attach import AttachLab
from soak.lab.process import living
from soak.rundir import RunDir
from soak.runs import leftovers

from .conftest import until
from .strangers import Strangers


async def abandoned(run: RunDir, strangers: Strangers) -> AttachLab:
    """Return a lab that is never stopped: its daemon is about to die."""
    lab = AttachLab(run, strangers.plan, on_event=lambda _name, _data: None)
    await lab.start()
    return lab


def intend(run: RunDir, number: int, kind: str, target: str, identity: Identity) -> None:
    undo = Undo(target, identity=identity, state={"state": "running", "generation": 1, "next_generation": 2})
    with Journal(run.journal, t0_ns=0) as journal:
        journal.intent(Intent(number, kind, FaultShape.FAULT, undo, Source.SCHEDULE, 0.0, 1.0), 1.0)


async def test_what_was_broken_runs_again_and_the_proxy_has_its_own_files(run: RunDir, strangers: Strangers):
    """A suspended and a stopped backend, a half-done rotation; all by the run's files alone, and nobody was ended."""
    before, proxy = strangers.files(), strangers.pid("proxy")
    lab = await abandoned(run, strangers)
    b1, b2 = [dict((await lab.backend_status(name)).identity) for name in ("b1", "b2")]
    intend(run, 1, "backend-hang", "b1", b1)
    await lab.backend_pause("b1", b1)
    intend(run, 2, "backend-down", "b2", b2)
    await lab.backend_stop("b2", b2, force=False)
    intend(run, 3, "cert-rotate", "proxy", dict(await lab.proxy_identity()))
    await lab.install_certificate(2)
    assert ["the proxy's own files to be put back"] == leftovers(run)

    result = await heal(run.journal, await open_for_healing(str(run.path)), registry())

    assert result.ok, result.sentences()
    assert ["cert-rotate", "backend-down", "backend-hang"] == [undo.kind for undo in result.undos]
    assert () == open_undos(run.journal)
    assert before == strangers.files()
    assert proxy == strangers.pid("proxy")
    assert living(b1) is not None
    states = [(await lab.backend_status(name)).state for name in ("b1", "b2")]
    assert [BackendState.RUNNING] * 2 == states
    assert [] == leftovers(run)
    again = await heal(run.journal, await open_for_healing(str(run.path)), registry())
    assert again.nothing_to_do


async def test_a_run_without_an_open_fault_gives_the_files_back(run: RunDir, strangers: Strangers):
    """The daemon died in between."""
    before = strangers.files()
    await abandoned(run, strangers)
    assert before != strangers.files()
    result = await heal(run.journal, await open_for_healing(str(run.path)), registry())
    assert ["the lab is given back: the proxy has its own files again"] == result.sentences()
    assert before == strangers.files()


async def test_what_was_replaced_since_is_not_touched(run: RunDir, strangers: Strangers):
    """Somebody killed the suspended backend and suspended its successor: that is not ours to resume."""
    lab = await abandoned(run, strangers)
    old = dict((await lab.backend_status("b1")).identity)
    intend(run, 1, "backend-hang", "b1", old)
    os.kill(int(old["pid"]), signal.SIGKILL)
    await until(lambda: living(old) is None)
    new = dict(await lab.backend_start("b1"))
    os.kill(int(new["pid"]), signal.SIGSTOP)

    result = await heal(run.journal, await open_for_healing(str(run.path)), registry())

    assert not result.ok
    assert "backend-hang on b1: NOT healed" in result.sentences()[0]
    row = living(new)
    assert row is not None
    assert row.suspended


async def test_a_healer_brings_nothing_new(run: RunDir, strangers: Strangers):
    """It reads, brings back and puts back; the rest is refused."""
    lab = await abandoned(run, strangers)
    healable = await open_for_healing(str(run.path))
    target = healable.target()
    assert target is not None
    assert await lab.proxy_identity() == await target.proxy_identity()
    assert ("b1", "b2") == tuple(target.backend_names())
    assert (True, 0) == (target.supports("backend_stop"), target.generation())
    for wish in (target.apply_generation(2), target.apply_broken_config(), target.install_certificate(2)):
        with pytest.raises(TargetError, match="a healer brings no new configuration"):
            await wish
    assert (await healable.release()).ok
