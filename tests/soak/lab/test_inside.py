"""An executable of this host that stands for a program in a container."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from soak.lab.containers import ContainerSpec
from soak.lab.engine import Engine
from soak.lab.inside import main, shim
from soak.proxies.catalog import adapter
from tests.engine.dockerd import Dockerd
from tests.engine.fixtures import Images

pytestmark = pytest.mark.xdist_group("docker")


@pytest.fixture
async def proxy(engine: Engine, images: Images) -> AsyncIterator[str]:
    """A container with nginx in it."""
    made = await engine.create(
        ContainerSpec("soak-inside", images.proxy("nginx"), ["sleep", "600"], {"soak.test": "i"})
    )
    await engine.start(made)
    yield made
    await engine.remove(made)


async def test_an_adapter_asks_a_binary_that_is_only_inside(proxy: str, dockerd: Dockerd, tmp_path: Path):
    """Its version, by its own words; the exit code and the output of anything else pass through."""
    binary = shim(tmp_path / "a proxy's binary", engine=dockerd.host, container=proxy, program="nginx")
    assert adapter("nginx").version(binary).count(".") == 2
    shell = shim(tmp_path / "sh", engine=dockerd.host, container=proxy, program="sh")
    done = subprocess.run([shell, "-c", "echo 'a  b'; exit 3"], capture_output=True, text=True, check=False)
    assert (3, "a  b") == (done.returncode, done.stdout)


def test_without_an_engine_it_is_said(capsys: pytest.CaptureFixture[str]):
    """And the exit code is that of a container that could not be run."""
    assert 125 == main(["unix:///no/such.sock", "c", "true"])
    assert "no container engine answers" in capsys.readouterr().err
