"""The look at an engine before a run."""

from __future__ import annotations

import pytest

from soak.errors import LabError
from soak.lab.dockercheck import look_at_engine
from soak.plan import Plan
from soak.proxies.base import ContainerFacts
from soak.proxies.rocky import RockyAdapter

pytestmark = pytest.mark.xdist_group("docker")


async def test_a_look_before_the_run_names_what_is_missing(dockerd, images):
    """The engine with its version, the images that are there, and how to get the others."""
    where = {"host": dockerd.host, "proxy_image": images.proxy("nginx"), "origin_image": "soakd:9"}
    plan = Plan.model_validate({"lab": {"kind": "docker", "docker": where}})
    look = await look_at_engine(plan)
    assert look.engine.startswith("Docker ")
    assert [images.proxy("nginx")] == list(look.images)
    assert 1 == len(look.missing)
    assert "docker build -t soakd:9 ." in look.missing[0]


async def test_an_engine_that_is_away_and_a_proxy_without_an_image_are_refused(monkeypatch):
    """In one sentence each."""
    monkeypatch.delattr(RockyAdapter, "container")
    away = {"kind": "docker", "docker": {"host": "/nowhere.sock"}}
    with pytest.raises(LabError, match=r"no container engine answers at unix:///nowhere\.sock"):
        await look_at_engine(Plan.model_validate({"lab": away}))
    with pytest.raises(LabError, match="rocky has no image"):
        await look_at_engine(Plan.model_validate({"lab": away, "proxy": {"kind": "rocky"}}))


async def test_what_a_container_needs_of_this_host_must_be_there(monkeypatch, tmp_path):
    """An engine would make an empty directory of it; before any engine is asked."""
    monkeypatch.setattr(
        RockyAdapter,
        "container",
        ContainerFacts("node:14", "/x", "node", reads=[tmp_path / "m"], how_to_get="do so"),
    )
    plan = Plan.model_validate(
        {"lab": {"kind": "docker", "docker": {"host": "/nowhere.sock"}}, "proxy": {"kind": "rocky"}}
    )
    with pytest.raises(LabError, match=r"/m is missing, which the container needs beside its image; do so"):
        await look_at_engine(plan)
