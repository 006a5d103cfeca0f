"""A proxy and two backends that somebody else than soak runs, as real containers with labels."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from soak.lab.attached import Role
from soak.lab.attachedcontainer import labels_of
from soak.lab.containers import ContainerSpec
from soak.lab.engine import Engine
from soak.lab.rendering import render_first
from soak.plan import Plan
from tests.engine.fixtures import Images

RUN = "attach-test"


class Fleet:
    """A proxy and two backends in containers, in a network of their own."""

    def __init__(self, engine: Engine, home: Path) -> None:
        self.engine = engine
        self.home = home
        self.ids: dict[str, str] = {}
        self.network = ""
        self.plan = Plan()

    async def start(self, images: Images) -> None:
        made = await self.engine.create_network("soak-attach-test", {"soak.test": RUN})
        self.network = made.id
        base = made.subnet.rpartition(".")[0]
        attach = {
            "run": RUN,
            "proxy": {
                "directory": str(self.home / "proxy"),
                "host": f"{base}.10",
                "http_port": 8080,
                "https_port": 8443,
                "listen": "0.0.0.0",
            },
            "backends": [{"host": f"{base}.1{number}", "port": 8000} for number in (1, 2)],
        }
        lab = {"kind": "attach", "start_timeout": 10, "attach": attach}
        self.plan = Plan.model_validate({"lab": lab, "proxy": {"kind": "nginx", "workers": 1}})
        rendered = await asyncio.to_thread(render_first, self.plan)
        for number in (1, 2):
            name = f"b{number}"
            command = ["python3", "-m", "soak.lab.origin", "--name", name, "--host", "0.0.0.0"]
            argv = [*command, "--port", "8000", "--stay"]
            await self._run(name, Role.BACKEND, images.origin(), argv, f"{base}.1{number}")
        await self._run("proxy", Role.PROXY, images.proxy("nginx"), rendered.proxy, f"{base}.10")

    async def _run(self, name: str, role: Role, image: str, argv: Sequence[str], address: str) -> None:
        spec = ContainerSpec(
            f"soak-attach-{name}",
            image,
            argv,
            labels_of(RUN, role, name),
            network=self.network,
            address=address,
            binds={self.home: str(self.home)},
            directory=str(self.home),
            cpus=2 if role is Role.PROXY else 0,
            memory_bytes=1 << 30 if role is Role.PROXY else 0,
        )
        self.ids[name] = await self.engine.create(spec)
        await self.engine.start(self.ids[name])

    async def end(self) -> None:
        for container in self.ids.values():
            await self.engine.remove(container)
        if self.network:
            await self.engine.remove_network(self.network)
        shutil.rmtree(self.home, ignore_errors=True)


@asynccontextmanager
async def fleet_at(engine: Engine, images: Images) -> AsyncIterator[Fleet]:
    """A running fleet, removed whatever a test did to it."""
    theirs = Fleet(engine, Path(tempfile.mkdtemp(prefix="soak-fleet-")))
    try:
        await theirs.start(images)
        yield theirs
    finally:
        await theirs.end()
