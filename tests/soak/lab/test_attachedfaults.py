"""Off the network and held back: real containers of somebody else, by the faults' own code; processes are refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.fault import Disturbance, FaultContext
from chaos.faults.catalog import registry
from chaos.heal import MonotonicClock
from chaos.target import BackendState, IdentityChangedError, TargetError
from soak.abilities import abilities, in_words
from soak.lab.attach import AttachLab
from soak.lab.engine import Engine
from soak.rundir import RunDir
from tests.engine.dockerd import Dockerd
from tests.engine.fixtures import Images

from .fleet import Fleet, fleet_at
from .strangers import Strangers

pytestmark = pytest.mark.xdist_group("docker")


@pytest.fixture
async def fleet(
    engine: Engine, images: Images, dockerd: Dockerd, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Fleet]:
    """A running fleet, at the engine that DOCKER_HOST names."""
    monkeypatch.setenv("DOCKER_HOST", dockerd.host)
    async with fleet_at(engine, images) as theirs:
        yield theirs


async def test_what_only_containers_can_show_is_done_and_undone(run: RunDir, fleet: Fleet):
    """A partition with its address back, a throttle with exactly the limits of before."""
    lab = AttachLab(run, fleet.plan, on_event=lambda _name, _data: None)
    await lab.start()
    ctx = FaultContext(lab, None, MonotonicClock(), lambda: 2, effect_timeout_s=1, blind=True)  # type: ignore[arg-type]  # blind: nobody asks the observer
    try:
        partition, throttle = (registry()[name] for name in ("backend-partition", "proxy-throttle"))
        assert isinstance(partition, Disturbance)
        assert isinstance(throttle, Disturbance)
        assert all(lab.supports(ability) for ability in partition.needs | throttle.needs)
        undo = await partition.prepare(ctx, "b1")
        await partition.inject(ctx, undo)
        assert BackendState.HUNG is (await lab.backend_status("b1")).state
        assert {} == dict(await lab.backend_networks("b1"))
        await partition.revert(ctx, undo)
        clean = await partition.verify_clean(ctx, undo)
        assert clean.ok, clean.evidence

        before = await lab.proxy_limits()
        assert 2 == before["cpus"]
        undo = await throttle.prepare(ctx, "proxy")
        await throttle.inject(ctx, undo)
        assert 0.25 == (await lab.proxy_limits())["cpus"]
        await throttle.revert(ctx, undo)
        assert before == await lab.proxy_limits()
        assert (await throttle.verify_clean(ctx, undo)).ok
    finally:
        assert (await lab.stop()).ok


async def test_a_container_that_was_made_anew_is_not_put_on_a_network(run: RunDir, fleet: Fleet):
    """It is another one; and one that is gone is said to be."""
    lab = AttachLab(run, fleet.plan, on_event=lambda _name, _data: None)
    await lab.start()
    try:
        with pytest.raises(
            IdentityChangedError, match=r"b1 is the container .* now, not other; it was not touched"
        ):
            await lab.backend_reconnect("b1", {"container": "other"}, {})
        with pytest.raises(TargetError, match="there is no backend 'b9'; there are b1, b2"):
            await lab.backend_networks("b9")
        await fleet.engine.remove(fleet.ids["b1"])
        with pytest.raises(TargetError, match="there is no container of b1 any more"):
            await lab.backend_networks("b1")
    finally:
        await lab.stop()


def test_processes_can_be_neither(run: RunDir, tmp_path: Path):
    """What the plan attaches to says what can be done to it, before anything runs."""
    plan = Strangers(tmp_path).plan
    lab = AttachLab(run, plan, on_event=lambda _name, _data: None)
    assert not lab.supports("backend_partition")
    assert not lab.supports("proxy_throttle")
    said = "\n".join(in_words(plan, abilities(plan)))
    assert "the attach lab can backend_pause, backend_stop" in said
    assert "the attach lab cannot proxy_throttle: it is a process of this host" in said


async def test_a_process_is_refused_by_name(run: RunDir, tmp_path: Path):
    """Whoever asks all the same."""
    home = tmp_path / "strangers"
    home.mkdir()
    theirs = Strangers(home)
    theirs.start()
    lab = AttachLab(run, theirs.plan, on_event=lambda _name, _data: None)
    try:
        await lab.start()
        with pytest.raises(
            TargetError, match="b1 is a process of this host, and only a container can be taken off"
        ):
            await lab.backend_networks("b1")
        with pytest.raises(
            TargetError, match="proxy is a process of this host, and only a container can be held back"
        ):
            await lab.proxy_limits()
        assert (await lab.stop()).ok
    finally:
        await asyncio.to_thread(theirs.end)
