"""Networks and limits of containers, with the way back to exactly what was; the labs have tests of the same from above."""

from __future__ import annotations

import json

import pytest

from chaos.target import IdentityChangedError, TargetError
from soak.lab.containerfaults import (
    disconnect,
    held_back_s,
    limits_of,
    loosen,
    networks_of,
    reconnect,
    tighten,
)
from soak.lab.containers import ContainerSpec

pytestmark = pytest.mark.xdist_group("docker")
LABELS = {"soak.run": "containerfaults-test"}


@pytest.fixture
async def made(engine, images, dockerd):
    """A container as compose makes it: with ``cpus``, an alias and a fixed address; and one with neither limit nor fixed address."""
    network = await engine.create_network("soak-faults", LABELS)
    client, image = dockerd.client(), images.proxy("nginx")
    address = network.subnet.rpartition(".")[0] + ".9"
    end = client.create_endpoint_config(ipv4_address=address, aliases=["backend-one"])
    fixed = client.create_container(
        image,
        entrypoint=["sleep"],
        command=["600"],
        name="soak-fixed",
        host_config=client.create_host_config(
            network_mode=network.name, nano_cpus=1_500_000_000, mem_limit=256 << 20
        ),
        networking_config=client.create_networking_config({network.name: end}),
    )["Id"]
    client.close()
    loose = await engine.create(ContainerSpec("soak-loose", image, ["sleep", "600"], LABELS, network.name))
    for container in (fixed, loose):
        await engine.start(container)
    yield network, fixed, loose
    for container in (fixed, loose):
        await engine.remove(container)
    await engine.remove_network(network.id)


async def test_a_container_comes_back_with_its_address_and_its_names(engine, made):
    """Others find it by its alias again. The way back is JSON."""
    network, fixed, _ = made
    identity = (await engine.inspect(fixed)).identity
    networks = json.loads(json.dumps(dict(await networks_of(engine, "b1", fixed))))
    assert ["backend-one"] == networks[network.name]["aliases"]
    await disconnect(engine, "b1", identity)
    assert {} == await networks_of(engine, "b1", fixed)
    await reconnect(engine, fixed, networks)
    await reconnect(engine, fixed, networks)
    assert networks == await networks_of(engine, "b1", fixed)


async def test_an_address_that_would_not_come_back_is_refused_before(engine, made):
    """The sentence says how to fix one."""
    with pytest.raises(
        TargetError, match=r"b2 has no fixed address in the network soak-faults.*ipv4_address"
    ):
        await networks_of(engine, "b2", made[2])


async def test_limits_given_as_cpus_are_changed_as_cpus(engine, made):
    """The engine refuses a quota for such a container (409), so it gets none."""
    identity = (await engine.inspect(made[1])).identity
    before = json.loads(json.dumps(dict(await limits_of(engine, made[1]))))
    assert (1.5, 256 << 20) == (before["cpus"], before["memory_bytes"])
    await tighten(engine, "the proxy", identity, 0.5, 64 << 20)
    now = await limits_of(engine, made[1])
    assert (0.5, 64 << 20) == (now["cpus"], now["memory_bytes"])
    assert 0 == await held_back_s(engine, made[1])
    await loosen(engine, made[1], before)
    assert before == await limits_of(engine, made[1])


async def test_a_quota_where_there_was_none_is_lifted_again(engine, made):
    """No limit is a limit to go back to; one of memory could never be lifted again, so it is refused."""
    identity = (await engine.inspect(made[2])).identity
    before = await limits_of(engine, made[2])
    assert (0, 0) == (before["cpus"], before["memory_bytes"])
    with pytest.raises(TargetError, match="the proxy has no limit of memory"):
        await tighten(engine, "the proxy", identity, 0.5, 64 << 20)
    await tighten(engine, "the proxy", identity, 0.5, 0)
    assert 0.5 == (await limits_of(engine, made[2]))["cpus"]
    await loosen(engine, made[2], before)
    assert 0 == (await limits_of(engine, made[2]))["cpus"]


async def test_a_container_that_ended_is_not_held_back(engine, made):
    """Its counter is gone with it."""
    await engine.stop(made[2], grace_s=0)
    with pytest.raises(IdentityChangedError, match="has ended"):
        await held_back_s(engine, made[2])
