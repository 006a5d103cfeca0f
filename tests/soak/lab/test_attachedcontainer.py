"""The attach lab with real containers that somebody else made: found by label, broken, healed, never made or removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from chaos.faults.catalog import registry
from chaos.heal import heal
from chaos.journal import Intent, Journal
from chaos.model import FaultShape, Source, Undo
from chaos.target import BackendState, IdentityChangedError, TargetError
from soak.errors import LabError
from soak.lab import open_for_healing
from soak.lab.attach import AttachLab
from soak.lab.attached import Role
from soak.lab.attachedcontainer import AttachedContainer, labels_of
from soak.lab.containers import ContainerSpec
from soak.lab.engine import Engine
from soak.plan import Plan
from soak.rundir import RunDir
from tests.engine.dockerd import Dockerd
from tests.engine.fixtures import Images
from tests.soak.lab.client import fetch

from .fleet import RUN, Fleet, fleet_at

pytestmark = pytest.mark.xdist_group("docker")


@pytest.fixture
async def fleet(
    engine: Engine, images: Images, dockerd: Dockerd, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Fleet]:
    """A running fleet, at the engine that DOCKER_HOST names."""
    monkeypatch.setenv("DOCKER_HOST", dockerd.host)
    async with fleet_at(engine, images) as theirs:
        yield theirs


async def attached(run: RunDir, fleet: Fleet, events: list[tuple[str, Mapping[str, Any]]]) -> AttachLab:
    lab = AttachLab(run, fleet.plan, on_event=lambda name, data: events.append((name, data)))
    await lab.start()
    return lab


async def state_of(lab: AttachLab, name: str) -> BackendState:
    return (await lab.backend_status(name)).state


async def test_a_varnish_with_its_hitch_is_taken_over_and_given_back(
    run: RunDir, engine: Engine, images: Images, dockerd: Dockerd, monkeypatch: pytest.MonkeyPatch
):
    """Two containers, one proxy: both are told, counted, held back and given their files back."""
    monkeypatch.setenv("DOCKER_HOST", dockerd.host)
    async with fleet_at(engine, images, "varnish") as fleet:
        before = (fleet.home / "proxy" / "site.bundle.pem").read_bytes()
        lab = await attached(run, fleet, [])
        try:
            assert (await lab.apply_generation(2)).ok
            assert (await lab.apply_broken_config()).ok
            rotated = await lab.install_certificate(3)
            assert "accepted" == rotated["reload"]["answer"]["hitch"]["said"]
            [proxy, *_] = await lab.vitals(1.0)
            assert proxy.processes >= 4
            identity, limits = await lab.proxy_identity(), await lab.proxy_limits()
            await lab.proxy_tighten(identity, cpus=0.5, memory_bytes=0)
            tight = [(await engine.inspect(fleet.ids[name])).limits.cpus for name in ("proxy", "hitch")]
            assert [0.5, 0.5] == tight
            await lab.proxy_loosen(identity, limits)
            assert limits == await lab.proxy_limits()
            assert (await lab.proxy_held_back_s()) is not None
        finally:
            given_back = await lab.stop()
        assert given_back.ok, given_back.reason
        assert before == (fleet.home / "proxy" / "site.bundle.pem").read_bytes()
        assert "0" == (await fetch(lab, "/bytes/1")).headers["x-soak-generation"]


async def test_a_fleet_is_taken_over_broken_healed_and_given_back(
    run: RunDir, fleet: Fleet, events: list[tuple[str, Mapping[str, Any]]]
):
    """Every fault by the engine's own means; afterwards the same containers, and the proxy has its own files."""
    conf = fleet.home / "proxy" / "nginx.conf"
    before = conf.read_bytes()
    lab = await attached(run, fleet, events)
    try:
        assert lab.proxy_version.startswith("1.")
        looks = {vital.subject: vital for vital in await lab.vitals(1.0)}
        assert looks["proxy"].processes >= 2
        assert looks["proxy"].rss_bytes > 500_000
        assert looks["b1"].cpu_s > 0

        assert (await lab.apply_generation(2)).ok
        assert (await lab.apply_broken_config()).ok
        rotated = await lab.install_certificate(3)
        assert rotated["serial"] == lab.serial()
        async with asyncio.timeout(30):
            while "3" != (await fetch(lab, "/bytes/10")).headers.get("x-soak-generation"):
                pass

        first = (await lab.backend_status("b1")).identity
        await lab.backend_pause("b1", first)
        assert BackendState.HUNG is await state_of(lab, "b1")
        await lab.backend_resume("b1", first)
        assert BackendState.RUNNING is await state_of(lab, "b1")
        for force in (False, True):
            now = (await lab.backend_status("b1")).identity
            await lab.backend_stop("b1", now, force=force)
            assert BackendState.STOPPED is await state_of(lab, "b1")
            again = await lab.backend_start("b1")
            assert (now["container"], True) == (again["container"], now["started"] != again["started"])
        with pytest.raises(IdentityChangedError, match=r"b1 is no longer .* it was not touched"):
            await lab.backend_pause("b1", first)
        await lab.backend_pause("b2", (await lab.backend_status("b2")).identity)
        await lab.backend_stop("b2", (await lab.backend_status("b2")).identity, force=False)
        assert "b2" == (await lab.backend_status("b2")).name
        await lab.backend_start("b2")
    finally:
        given = await lab.stop()

    assert given.ok, given.reason
    assert before == conf.read_bytes()
    assert [] == [name for name, _ in events]
    found = {one.id: one.state for one in await fleet.engine.list({"soak.run": RUN})}
    assert dict.fromkeys(fleet.ids.values(), "running") == found


async def test_what_a_dead_run_paused_goes_on_and_nothing_is_removed(run: RunDir, fleet: Fleet):
    """By the files of the run alone, as the guardian and 'soak heal' do it."""
    conf = fleet.home / "proxy" / "nginx.conf"
    before = conf.read_bytes()
    lab = await attached(run, fleet, [])
    identity = dict((await lab.backend_status("b2")).identity)
    with Journal(run.journal, t0_ns=0) as journal:
        undo = Undo("b2", identity=identity, state={"state": "running"})
        journal.intent(Intent(1, "backend-hang", FaultShape.FAULT, undo, Source.SCHEDULE, 0.0, 1.0), 1.0)
    await lab.backend_pause("b2", identity)
    assert before != conf.read_bytes()

    result = await heal(run.journal, await open_for_healing(str(run.path)), registry())

    assert result.ok, result.sentences()
    assert before == conf.read_bytes()
    assert BackendState.RUNNING is await state_of(lab, "b2")
    assert 3 == len(await fleet.engine.list({"soak.run": RUN}))
    lab._attached.close()


async def test_a_container_that_was_removed_or_doubled_is_said(engine: Engine, fleet: Fleet):
    """soak makes none, and does not choose between two."""
    labels = labels_of(RUN, Role.BACKEND, "b1")
    thing = AttachedContainer("b1", labels, engine)
    seen = await thing.look()
    assert fleet.ids["b1"] == seen.identity["container"]
    spec = ContainerSpec("soak-attach-twin", "soakd:test", ["sleep", "9"], labels)
    twin = await engine.create(spec)
    try:
        with pytest.raises(
            TargetError, match=r"2 containers carry the labels soak\.run=attach-test .* leave one"
        ):
            await AttachedContainer("b1", labels, engine).look()
    finally:
        await engine.remove(twin)

    await engine.remove(fleet.ids["b1"])

    assert BackendState.STOPPED is (await thing.look()).state
    with pytest.raises(TargetError, match="the container of b1 was removed, and soak never makes one"):
        await thing.begin()
    for touch in (thing.suspend(seen.identity), thing.end(seen.identity, force=True)):
        with pytest.raises(IdentityChangedError):
            await touch
    assert 0 == (await thing.vital(1.0, None)).processes
    assert (await thing.run(["true"], timeout_s=5)).code is None


async def test_labels_that_nobody_carries_are_named(run: RunDir, fleet: Fleet):
    """With the flags that set them."""
    attach = fleet.plan.lab.model_dump()["attach"] | {"run": "nobody"}
    lab = {"kind": "attach", "start_timeout": 0.2, "attach": attach}
    subject = AttachLab(run, Plan.model_validate({"lab": lab}), on_event=lambda _name, _data: None)
    with pytest.raises(LabError) as caught:
        await subject.start()
    lines = str(caught.value).splitlines()
    assert 3 == len(lines)
    assert "proxy does not run: no running container carries its labels" in lines[0]
    assert "--label soak.run=nobody --label soak.role=backend --label soak.name=b2" in lines[2]
