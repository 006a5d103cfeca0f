"""Origins as containers: how they are described, and what goes wrong. What they do is shown in test_docker.py."""

from __future__ import annotations

import os

import pytest

from chaos.target import TargetError
from soak.clock import SystemClock
from soak.errors import LabError
from soak.lab.dockerorigins import DockerOrigins, OwnContainer, origin_spec
from soak.proxies.base import BackendAddress
from soak.rundir import RunDir

pytestmark = pytest.mark.xdist_group("docker")


def test_an_origin_is_described_whole(tmp_path):
    """Who runs it, where it listens, what it shares, whose it is."""
    address = BackendAddress("b2", "10.0.0.11", 8080, 8443)
    spec = origin_spec(RunDir(tmp_path / "r"), "soakd:1", "net", address, 1, directory=tmp_path)
    assert ("soak-r-b2", "soakd:1", "net", "10.0.0.11") == (spec.name, spec.image, spec.network, spec.address)
    assert f"{os.geteuid()}:{os.getegid()}" == spec.user
    assert {tmp_path: "/run/soak"} == spec.binds
    assert ("backend", "b2") == (spec.labels["soak.role"], spec.labels["soak.name"])
    words = " ".join(spec.argv)
    assert "--row 1" in words
    assert "--tls-port 8443 --certificate /run/soak/origin.pem" in words


async def test_an_origin_that_ends_at_once_says_why(tmp_path, engine, images):
    """The words of its container are in the sentence."""
    origins = _origins(tmp_path, engine, images.proxy("nginx"), ["sh", "-c", "echo no such thing; exit 3"])
    try:
        with pytest.raises(LabError, match=r"the origin b1 did not come up: .* it said: no such thing"):
            await origins.start_all()
    finally:
        for container in origins.containers().values():
            await engine.remove(container)


async def test_counters_that_cannot_be_shared_stop_the_start(tmp_path, engine, images):
    """Before a container is made."""
    origins = _origins(tmp_path / "missing", engine, images.proxy("nginx"), ["sleep", "9"])
    with pytest.raises(LabError, match="the origins cannot share"):
        await origins.start_all()
    with pytest.raises(TargetError, match="b1 has no container yet"):
        origins.containers()


def _origins(directory, engine, image, argv):
    address = BackendAddress("b1", "127.0.0.1", 9)
    spec = origin_spec(RunDir(directory), image, "", address, 0, directory=directory)
    lonely = type(spec)(f"{spec.name}-test", image, argv, spec.labels)
    return DockerOrigins(
        engine,
        {"b1": OwnContainer("b1", lonely, engine)},
        [address],
        SystemClock(),
        directory=directory,
        start_timeout_s=1.0,
    )
