"""The docker lab with real containers: each proxy from its image, every fault and its way back, nothing left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chaos.target import BackendState, IdentityChangedError, TargetError
from soak.errors import LabError
from soak.lab.docker import DockerLab, addressed, facts_of
from soak.lab.topology import choose_topology
from soak.labplan import DockerLabPlan
from soak.plan import Plan
from soak.planfile import load_plan
from soak.proxies.base import SERVER_NAME
from soak.proxies.catalog import adapter
from soak.proxies.rocky import RockyAdapter
from soak.rundir import RunDir
from tests.engine.images import PLACES
from tests.soak.lab.client import fetch

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.timeout(240)]


async def served(lab: DockerLab, generation: int) -> str:
    """Wait until fresh clients get this generation; returns the origin that answered."""
    async with asyncio.timeout(30):
        while True:
            got = await fetch(lab, "/bytes/64", tls=True)
            if got.status == 200 and got.headers["x-soak-generation"] == str(generation):
                return got.headers["x-soak-origin"]
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "proxy", ["nginx", "haproxy", "caddy", "traefik", "envoy", "varnish", "node", "rocky"]
)
async def test_each_proxy_serves_reloads_and_rotates_in_its_image(lab_of, proxy):
    """By the way its adapter knows: a signal to the container, its admin socket in the mounted directory, a moved file."""
    async with lab_of(proxy) as lab:
        assert lab.proxy_version.count(".") == 2
        assert "b" == (await served(lab, 1))[0]
        assert 200 == (await fetch(lab, "/bytes/9", host="r2.soak.test")).status
        applied = await lab.apply_generation(2)
        assert applied.ok, applied.reason
        await served(lab, 2)
        refused = await lab.apply_broken_config()
        assert refused.ok, (refused.reason, refused.detail)
        old = lab.serial()
        installed = await lab.install_certificate(3)
        assert (old, lab.serial(), 3) == (installed["old_serial"], installed["serial"], lab.generation())
        await served(lab, 3)
        [proxy_vital, *_] = await lab.vitals(1.0)
        assert proxy_vital.cpu_s > 0
        assert proxy_vital.rss_bytes > 1_000_000
        assert proxy_vital.fds > 0
        assert proxy_vital.detail["roles"]["master"] == 1


async def test_a_proxy_that_answers_without_a_marker_rotates_in_its_image(lab_of):
    """node-tcp-proxy passes bytes on, so that its serial is all there is to see."""
    async with lab_of("node-tcp", routes=0) as lab:
        assert "0.0.28" == lab.proxy_version
        for generation in (2, 3):
            old = lab.serial()
            assert old == (await lab.install_certificate(generation))["old_serial"]
            assert 200 == (await fetch(lab, "/bytes/64", tls=True)).status
        assert (await lab.restore_proxy()).ok


IN_DIRECTORY = ("-p", "@{directory}/", "-c", "@{config}", "-e", "@{directory}/error.log")
UNDER_A_SHELL = f"@{{binary}} {' '.join(IN_DIRECTORY)} & wait"


@pytest.mark.parametrize(
    "changes",
    [
        {"reload": {"command": ["@{binary}", *IN_DIRECTORY, "-s", "reload"]}},
        {"start": ["/bin/sh", "-c", UNDER_A_SHELL]},
    ],
    ids=[
        "reloaded by a command that is run inside",
        "signalled by the pid in its file, which is not the first",
    ],
)
async def test_a_proxy_that_only_the_plan_knows_runs_in_an_image_of_its_own(lab_of, changes):
    """As the conformance suite has it on this host: served, reloaded, a broken configuration refused, a certificate rotated."""
    known = load_plan(preset="command").proxy.model_dump(mode="json", by_alias=True)["command"]
    async with lab_of("command", image="nginx", binary=PLACES["nginx"], command={**known, **changes}) as lab:
        assert lab.proxy_version.count(".") == 2
        await served(lab, 1)
        applied = await lab.apply_generation(2)
        assert applied.ok, applied.reason
        await served(lab, 2)
        refused = await lab.apply_broken_config()
        assert refused.ok, (refused.reason, refused.detail)
        old = lab.serial()
        assert old == (await lab.install_certificate(3))["old_serial"]
        await served(lab, 3)
        assert (await lab.restore_proxy()).ok


async def test_every_fault_of_containers_takes_hold_and_goes_back(lab_of):
    """Stop, kill, pause, off the network, less CPU: seen by a look, undone to exactly what was, and the origins count on."""
    async with lab_of("nginx") as lab:
        assert {"b1", "b2"} == set(lab.backend_names())
        for force in (False, True):
            before = await lab.backend_status("b1")
            await lab.backend_stop("b1", before.identity, force=force)
            assert BackendState.STOPPED is (await lab.backend_status("b1")).state
            with pytest.raises(TargetError, match="is not running"):
                await lab.backend_pause("b1", before.identity)
            assert before.identity != await lab.backend_start("b1")
        status = await lab.backend_status("b1")
        await lab.backend_pause("b1", status.identity)
        assert BackendState.HUNG is (await lab.backend_status("b1")).state
        await lab.backend_resume("b1", status.identity)
        await _partition(lab)
        await _throttle(lab)
        for _ in range(6):
            await fetch(lab, "/bytes/1")
        counted = [(await lab.origin_stats(name))["requests"] for name in ("b1", "b2")]
        assert min(counted) > 0
        with pytest.raises(TargetError, match="there is no backend 'b7'"):
            await lab.origin_stats("b7")
        restored = await lab.restore_proxy()
        assert restored.ok, restored.reason
        assert lab.supports("backend_partition")
        assert lab.supports("reload")
        assert not lab.supports("levitate")


async def _partition(lab: DockerLab) -> None:
    before = await lab.backend_status("b2")
    networks = await lab.backend_networks("b2")
    assert len(networks) == 1
    with pytest.raises(IdentityChangedError, match="no longer"):
        await lab.backend_disconnect("b2", {**before.identity, "started": "long ago"})
    await lab.backend_disconnect("b2", before.identity)
    assert {} == await lab.backend_networks("b2")
    assert BackendState.HUNG is (await lab.backend_status("b2")).state
    for _ in range(2):
        await lab.backend_reconnect("b2", before.identity, networks)
    assert networks == await lab.backend_networks("b2")
    assert before == await lab.backend_status("b2")


async def _throttle(lab: DockerLab) -> None:
    identity, limits = await lab.proxy_identity(), await lab.proxy_limits()
    assert (2.0, 1 << 30) == (limits["cpus"], limits["memory_bytes"])
    before_s = await lab.proxy_held_back_s()
    with pytest.raises(IdentityChangedError, match="no longer"):
        await lab.proxy_tighten({**identity, "started": "long ago"}, cpus=0.1, memory_bytes=0)
    await lab.proxy_tighten(identity, cpus=0.02, memory_bytes=512 << 20)
    now = await lab.proxy_limits()
    assert (0.02, 512 << 20) == (now["cpus"], now["memory_bytes"])
    async with asyncio.timeout(30):
        while (await lab.proxy_held_back_s() or 0) <= (before_s or 0):
            await fetch(lab, "/bytes/64", tls=True)
    await lab.proxy_loosen(identity, limits)
    assert limits == await lab.proxy_limits()


async def test_what_strangers_do_to_containers_is_told_and_outlived(lab_of, engine):
    """One killed and one removed by hand are events; a removed origin is made anew at its old address when it is to come back."""
    events: list[Any] = []
    async with lab_of("nginx", events) as lab:
        watch = lab._watch
        b1, b2 = (await lab.backend_status("b1")).identity, await lab.backend_status("b2")
        await engine.kill(str(b1["container"]))
        await engine.remove(str(b2.identity["container"]))
        await watch.look()
        await watch.look()
        told = {(name, data["name"]): data for name, data in events}
        assert {("origin.died", "b1"), ("origin.removed", "b2")} == set(told)
        assert "SIGKILL" in told["origin.died", "b1"]["how"]
        assert BackendState.STOPPED is (await lab.backend_status("b2")).state
        networks = {"gone": {"id": "x", "address": "y", "aliases": []}}
        await lab.backend_reconnect(
            "b2", b2.identity, networks
        )  # there is nothing to put back: it is made anew
        assert b2.identity["container"] != (await lab.backend_start("b2"))["container"]
        await lab.backend_start("b1")
        await served(lab, 1)
        events.clear()
        await engine.kill((await lab.proxy_identity())["container"])
        await watch.look()
        assert ["proxy.died"] == [name for name, _ in events]
        with pytest.raises(TargetError, match="the proxy has ended"):
            await lab.proxy_identity()
        assert not (await lab.apply_generation(9)).ok


async def test_a_missing_image_and_a_missing_engine_stop_a_start_before_anything_is_made(lab_of):
    """One sentence each, with what to do."""
    with pytest.raises(LabError, match=r"docker pull nowhere/nginx:1"):
        async with lab_of("nginx", docker={"proxy_image": "nowhere/nginx:1"}):
            pass
    with pytest.raises(LabError, match=r"docker build -t soakd:9"):
        async with lab_of("nginx", docker={"origin_image": "soakd:9"}):
            pass
    with pytest.raises(LabError, match="no container engine answers"):
        async with lab_of("nginx", docker={"host": "/nowhere.sock"}):
            pass


async def test_the_published_port_leads_to_the_proxy(lab_of):
    """For people, and for the load where the plan says so."""
    async with lab_of("nginx", docker={"reach": "published"}) as lab:
        assert "127.0.0.1" == lab.proxy_address.host
        await served(lab, 1)
        assert SERVER_NAME == lab.server_name
        assert ["b1", "b2"] == [one.name for one in lab.backend_addresses]


def test_a_proxy_without_an_image_and_a_lab_without_a_start_are_refused(tmp_path, monkeypatch):
    """Neither is a surprise."""
    monkeypatch.delattr(RockyAdapter, "container")
    with pytest.raises(LabError, match="rocky has no image that soak knows"):
        facts_of(adapter("rocky"), DockerLabPlan())
    lab = DockerLab(RunDir(tmp_path), Plan.model_validate({"lab": {"kind": "docker"}}), on_event=print)
    with pytest.raises(LabError, match="not started"):
        lab.generation()
    assert asyncio.run(lab.stop()).ok


def test_addresses_are_spread_over_the_subnet():
    """Fixed ones, apart from the engine's own; a subnet that is too small is refused."""
    wanted = choose_topology(3)
    there = addressed(wanted, "10.9.8.0/24", DockerLabPlan())
    assert ["10.9.8.10", "10.9.8.11", "10.9.8.12"] == [one.host for one in there.backends]
    assert ("10.9.8.5", wanted.proxy.https_port) == (there.proxy.host, there.proxy.https_port)
    everywhere = DockerLabPlan(publish="0.0.0.0", reach="published")
    assert "127.0.0.1" == addressed(wanted, "10.9.8.0/24", everywhere).proxy.host
    with pytest.raises(LabError, match=r"10.9.8.0/29, which is too small for 3 origins"):
        addressed(wanted, "10.9.8.0/29", DockerLabPlan())
