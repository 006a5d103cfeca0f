"""Asking only the one that was known before; real ones: test_attach.py by signal, test_docker.py in containers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from signal import SIGHUP

import pytest

from chaos.target import TargetError
from soak.clock import SystemClock
from soak.lab.checking import Checked
from soak.lab.errorlog import ErrorLog
from soak.lab.identified import Identified, ask_for_reload
from soak.planfile import load_plan
from soak.proxies.catalog import adapter, adapter_of
from soak.proxyplan import ProxyPlan

from .test_attachedproxy import ME, FakeThing

TAKEN = "1 [notice] 1#0: start worker processes"


async def asked(running: Identified, directory: Path) -> str:
    log = ErrorLog(directory / "error.log")
    nginx = adapter("nginx")
    return (await ask_for_reload(nginx, running, log, SystemClock(), directory=directory, ports={})).verdict


async def test_the_same_one_is_asked_and_heard(tmp_path: Path):
    """By its signal, once."""
    thing = FakeThing(tmp_path / "error.log", TAKEN)
    running = Identified(thing, ME)  # type: ignore[arg-type]  # as much of a thing as a reload needs
    assert ("accepted", [SIGHUP]) == (await asked(running, tmp_path), thing.signals)


async def test_another_one_in_its_place_is_gone_and_gets_no_signal(tmp_path: Path):
    """Whatever runs there now."""
    thing = FakeThing(tmp_path / "error.log", TAKEN)
    running = Identified(thing, {"pid": 99})  # type: ignore[arg-type]  # same
    assert ("gone", [], False) == (await asked(running, tmp_path), thing.signals, running.alive)


async def test_a_signal_that_meets_another_one_marks_it_gone(tmp_path: Path):
    """Between the look and the signal."""
    thing = FakeThing(tmp_path / "error.log", "")
    running = Identified(thing, {"pid": 99})  # type: ignore[arg-type]  # same
    with pytest.raises(TargetError, match="it was not touched"):
        await running.signal(SIGHUP)
    assert not running.alive


@pytest.mark.parametrize(("status", "verdict"), [(0, "accepted"), (1, "refused"), (None, "refused")])
async def test_the_reload_command_of_a_container_is_run_inside(
    tmp_path: Path, status: int | None, verdict: str
):
    """As it stands in the plan, with pid 1 for who is told; its status and its words count as on this host."""
    command = load_plan(preset="command").proxy.model_dump(mode="json", by_alias=True)
    command["command"] |= {"reload": {"command": ["@{binary}", "reload", "@{pid}"]}, "pid_file": None}
    command["command"] |= {"refused": None, "accepted": None}
    thing = FakeThing(tmp_path / "error.log", "")
    thing.identity = {"container": "c1", "started": "now"}
    ran: list[Sequence[str]] = []

    async def run(argv: Sequence[str], *, timeout_s: float) -> Checked:
        ran.append(argv)
        return Checked(status, "no such upstream")

    thing.run = run  # type: ignore[attr-defined]  # what this container does with a command
    said = await ask_for_reload(
        adapter_of(ProxyPlan.model_validate({**command, "binary": "/gateway"})),
        Identified(thing, thing.identity),  # type: ignore[arg-type]  # as much of a thing as a reload needs
        ErrorLog(tmp_path / "error.log"),
        SystemClock(),
        directory=tmp_path,
        ports={},
    )
    assert (verdict, [["/gateway", "reload", "1"]]) == (said.verdict, ran)
    assert (["no such upstream"] if status != 0 else []) == list(said.refusals)
