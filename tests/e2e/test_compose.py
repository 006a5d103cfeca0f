"""compose.yaml in a real engine, with the image of the real Dockerfile: a fault by hand, Prometheus asked for it, a death healed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.engine.composed import PROJECT, Composed
from tests.engine.dockerd import Dockerd

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("docker")]


@pytest.fixture
def composed(dockerd: Dockerd, require: Callable[[str], str]) -> Iterator[Composed]:
    """The project; whatever a test did to it, it is taken down."""
    for tool in ("prometheus", "promtool"):
        require(tool)
    project = Composed(dockerd, require("docker-compose"), SOAK_ARGS="--minutes 30 --rate 100")
    try:
        yield project
    finally:
        if rows(dockerd):
            project.down()


@pytest.mark.timeout(400)
def test_the_compose_file_does_its_job_and_leaves_nothing(composed: Composed, dockerd: Dockerd):
    """Up, a fault from outside, its metric, a killed soak whose backend goes on after 'soak heal', down."""
    composed.up()
    composed.until(lambda: 0 == composed.soak("status").returncode, 90, "a run")

    done = composed.soak("inject", "backend-down", "--for", "1s")
    assert 0 == done.returncode, done.stdout + done.stderr
    injected = 'soak_fault_injections_total{fault="backend-down"} > 0'
    (found,) = composed.until(lambda: composed.query(injected), 30, "the metric of a fault")
    assert ("soak:9465", "soak") == (found["metric"]["instance"], found["metric"]["job"])

    assert (
        0 == composed.soak("inject", "backend-hang", "--target", "b3", "--for", "60s", "--no-wait").returncode
    )
    composed.until(lambda: "paused" == state_of(dockerd, "b3"), 30, "a paused backend")
    before = ids(dockerd)
    assert 0 == composed.run("kill", "soak").returncode
    assert "paused" == state_of(dockerd, "b3")
    healed = composed.run("run", "--rm", "--no-deps", "soak", "heal")
    assert 0 == healed.returncode, healed.stdout + healed.stderr
    assert "backend-hang on b3: healed" in healed.stdout
    assert "the lab is given back: the proxy has its own files again" in healed.stdout
    assert "running" == state_of(dockerd, "b3")
    assert before == ids(dockerd)

    composed.down()
    client = dockerd.client()
    left = [row["Names"] for row in client.containers(all=True)]
    left += [row["Name"] for row in client.networks() if PROJECT in row["Name"]]
    left += client.volumes()["Volumes"] or []
    client.close()
    assert [] == left


def rows(engine: Dockerd) -> list[dict[str, Any]]:
    """Return the project's containers, all of them."""
    client = engine.client()
    try:
        found: list[dict[str, Any]] = client.containers(
            all=True, filters={"label": f"com.docker.compose.project={PROJECT}"}
        )
        return found
    finally:
        client.close()


def state_of(engine: Dockerd, name: str) -> str:
    return next(str(row["State"]) for row in rows(engine) if row["Names"] == [f"/{PROJECT}_{name}_1"])


def ids(engine: Dockerd) -> set[str]:
    return {row["Id"] for row in rows(engine)}
