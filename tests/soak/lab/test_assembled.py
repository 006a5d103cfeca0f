"""What all labs have in common, asked of each before it is started; afterwards: test_local.py, test_docker.py, test_attach.py."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from soak.errors import LabError
from soak.lab.assembled import AssembledLab, there
from soak.lab.catalog import LABS, lab_of
from soak.plan import Plan
from soak.rundir import RunDir

from .strangers import Strangers

KNOWN_BEFORE = {"local", "attach"}
"""Labs whose addresses are chosen, or stand in the plan; a docker lab gets its network from the engine."""


@pytest.fixture
def told() -> list[tuple[str, Mapping[str, Any]]]:
    """The events of the lab."""
    return []


@pytest.fixture(params=LABS)
def lab(
    request: pytest.FixtureRequest, run: RunDir, tmp_path: Path, told: list[tuple[str, Mapping[str, Any]]]
) -> AssembledLab:
    """One of each kind, not started."""
    made = {"kind": request.param, "backends": 2}
    section = Strangers(tmp_path / "theirs").lab if request.param == "attach" else made
    plan = Plan.model_validate({"lab": section})
    subject = lab_of(run, plan, on_event=lambda name, data: told.append((name, data)))
    assert isinstance(subject, AssembledLab)
    return subject


def test_what_it_can_is_known_before_it_is_started(lab: AssembledLab):
    """By its kind, and by its proxy."""
    assert all(map(lab.supports, ("backend_stop", "backend_pause", "reload", "cert_rotate", "reload:full")))
    assert ("soak.test", "") == (lab.server_name, lab.proxy_version)
    assert not lab.supports("no-such-thing")
    assert lab.supports("proxy_throttle") == (lab._plan.lab.kind == "docker")


def test_where_it_is_is_known_once_there_are_addresses(lab: AssembledLab):
    """The names of the backends with them."""
    if lab._plan.lab.kind in KNOWN_BEFORE:
        assert ["b1", "b2"] == list(lab.backend_names()) == [one.name for one in lab.backend_addresses]
        assert lab.proxy_address.https_port
    else:
        for look in (lambda: lab.proxy_address, lambda: lab.backend_addresses, lab.backend_names):
            with pytest.raises(LabError, match="not started"):
                look()


def test_its_proxy_is_not_there_yet(lab: AssembledLab):
    """Nor its certificate, nor its configuration."""
    for look in (lambda: lab.ca_file, lab.serial, lab.generation):
        with pytest.raises(LabError, match=r"the lab is not started; await start\(\) first"):
            look()


async def test_stopping_what_was_not_started_is_no_harm(lab: AssembledLab):
    """There is nothing to take down."""
    assert (await lab.stop()).ok  # type: ignore[attr-defined]  # each kind has its own


async def test_a_task_of_its_own_that_dies_of_a_defect_is_told(lab: AssembledLab, told, monkeypatch):
    """By its name, with the error's words: a lab that nobody tends or watches must not look like a well one."""

    async def starts() -> None:
        return

    async def dies() -> None:
        raise ValueError("boom")

    names = {"tend-lab"}
    monkeypatch.setattr(lab, "_start", starts)
    monkeypatch.setattr(lab, "_tend", dies)
    if lab._plan.lab.kind == "docker":
        monkeypatch.setattr(lab, "_watch", SimpleNamespace(run=dies))
        names.add("watch-containers")

    await lab.start()  # type: ignore[attr-defined]  # each kind has its own
    async with asyncio.timeout(30):
        while len(told) < len(names):
            await asyncio.sleep(0)
    await lab.stop()  # type: ignore[attr-defined]

    assert {("lab.task_died", name, "ValueError('boom')") for name in names} == {
        (event, data["name"], data["how"]) for event, data in told
    }
    assert len(names) == len(told)


def test_a_part_that_is_there_is_handed_over():
    """Even one that counts as false."""
    assert there("") == ""
