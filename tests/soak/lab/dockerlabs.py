"""A docker lab of stand-in images for tests: started, stopped whatever happens, and nothing of it left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from soak.plan import Plan
from soak.proxies.catalog import adapter
from soak.rundir import RunDir
from tests.engine.fixtures import Images

if TYPE_CHECKING:
    from soak.lab.docker import DockerLab
    from tests.engine.dockerd import Dockerd

Start = Callable[..., Any]


@pytest.fixture
def lab_of(tmp_path: Path, dockerd: Dockerd, images: Images) -> Start:
    """Return what starts a lab of stand-ins; whatever happens, it is stopped, and stopping leaves nothing."""

    from soak.lab.docker import DockerLab

    @asynccontextmanager
    async def lab_of(proxy: str, events: list[Any] | None = None, **fields: Any) -> AsyncIterator[DockerLab]:
        image = images.proxy(fields.pop("image", proxy))
        beside = {name: images.proxy(name) for name in adapter(proxy).container.companions}  # type: ignore[attr-defined] # all have one
        where = {"host": dockerd.host, "proxy_image": image, "origin_image": images.origin()}
        where |= {"companion_images": beside} | fields.pop("docker", {})
        routes = fields.pop("routes", 2)
        plan = Plan.model_validate(
            {
                "lab": {"kind": "docker", "backends": 2, "start_timeout": "40s", "docker": where},
                "proxy": {"kind": proxy, **fields},
            }
        )
        said: list[Any] = [] if events is None else events
        lab = DockerLab(
            RunDir(tmp_path / "run-1"),
            plan,
            on_event=lambda name, data: said.append((name, data)),
            routes=routes,
        )
        try:
            await lab.start()
            yield lab
        finally:
            evidence = await lab.stop()
            assert evidence.ok, evidence.reason
            client = dockerd.client()
            assert [] == client.containers(all=True)
            assert [] == [row["Name"] for row in client.networks() if row["Name"].startswith("soak")]
            client.close()

    return lab_of
