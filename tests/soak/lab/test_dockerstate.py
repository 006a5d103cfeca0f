"""What a docker lab writes down, how its things are recognised, and that an engine that is away is said, not hidden."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from soak.lab import open_for_healing
from soak.lab.containers import ContainerSpec
from soak.lab.dockerstate import (
    DockerHealable,
    DockerRecord,
    labels_of,
    name_of,
    open_docker,
    read_record,
    release,
    still_there,
    write_record,
)
from soak.lab.sweep import LocalHealable
from soak.rundir import RunDir
from tests.engine.dockerd import Dockerd
from tests.engine.fixtures import Images
from tests.oddfiles import ODD, make_odd

pytestmark = pytest.mark.xdist_group("docker")


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    found = RunDir(tmp_path / "run-7")
    found.lab.mkdir(parents=True)
    return found


def test_a_record_is_read_back_whole_and_torn(run: RunDir):
    """From lab.json; when that is torn, the engine from the file beside it."""
    assert read_record(run) is None
    assert [] == still_there(run)
    write_record(run, "unix:///s")
    assert DockerRecord("unix:///s") == read_record(run)
    assert ["containers and a network"] == still_there(run)
    run.lab_state.write_bytes(run.lab_state.read_bytes()[:30])
    assert DockerRecord("unix:///s") == read_record(run)
    run.lab_state.unlink()
    assert DockerRecord("unix:///s") == read_record(run)
    write_record(run, "unix:///s", released=True)
    assert [] == still_there(run)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_file_is_as_good_as_torn(run: RunDir, kind: str):
    """The file beside it says where the engine is; when that is none either, nobody knows. Nobody waits for them."""
    write_record(run, "unix:///s")
    make_odd(run.lab_state, kind)
    assert DockerRecord("unix:///s") == read_record(run)
    make_odd(run.lab / "engine", kind)
    assert read_record(run) is None


async def test_who_heals_is_found_by_the_record(run: RunDir):
    """A local lab's record is no docker lab's, and the other way round."""
    run.lab_state.write_text(json.dumps({"schema": 1, "kind": "local", "processes": []}))
    assert open_docker(run.path) is None
    assert isinstance(await open_for_healing(str(run.path)), LocalHealable)
    write_record(run, "unix:///s")
    healable = await open_for_healing(str(run.path))
    assert isinstance(healable, DockerHealable)
    assert (True, None) == (healable.disposable, healable.target())


def test_labels_and_names_are_the_runs_own(tmp_path: Path):
    """Two directories of one name share no label; an engine takes every name."""
    one, other = RunDir(tmp_path / "a" / "run"), RunDir(tmp_path / "b" / "run")
    assert labels_of(one) != labels_of(other)
    assert {**labels_of(one), "soak.role": "backend", "soak.name": "b1"} == labels_of(one, "backend", "b1")
    assert "soak-w-n-i-_.x-b1" == name_of(RunDir(tmp_path / "w n/i ü_.x".replace("/", ":")), "b1").replace(
        "--", "-"
    )


async def test_an_engine_that_is_away_leaves_it_said(run: RunDir):
    """Nothing is claimed to be removed, and the record still says that something is there."""
    write_record(run, "unix:///nowhere.sock")
    evidence = await DockerHealable(run, "unix:///nowhere.sock").release()
    assert not evidence.ok
    assert "cannot be removed: no container engine answers" in evidence.reason
    assert ["containers and a network"] == still_there(run)


async def test_only_what_carries_both_labels_is_removed(run, dockerd: Dockerd, engine, images: Images):
    """A paused container and its network go; a container of another directory's run of that name stays."""
    write_record(run, dockerd.host)
    network = await engine.create_network(name_of(run, "net"), labels_of(run))
    image = images.proxy("nginx")
    other = RunDir(run.path.parent / "elsewhere" / "run-7")
    mine = ContainerSpec(name_of(run, "b1"), image, ["sleep", "600"], labels_of(run), network.name)
    strange = ContainerSpec("soak-stranger", image, ["sleep", "600"], labels_of(other))
    ids = [await engine.create(spec) for spec in (mine, strange)]
    try:
        for container in ids:
            await engine.start(container)
        await engine.pause(ids[0])
        evidence = await release(run, dockerd.host)
        assert evidence.ok, evidence.reason
        ended = {one["name"]: one["was"] for one in evidence.detail["ended"]}
        assert {name_of(run, "b1"): "paused", network.name: "network"} == ended
        assert [] == still_there(run)
        assert "running" == (await engine.inspect(ids[1])).state
        assert (await release(run, dockerd.host)).ok
    finally:
        for container in ids:
            await engine.remove(container)
        await engine.remove_network(network.id)
