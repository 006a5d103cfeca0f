"""A proxy and two backends that somebody else than soak runs, as real containers with labels."""

from __future__ import annotations

import asyncio
import shlex
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
from soak.proxies.companion import companion_output_of
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

    async def start(self, images: Images, kind: str) -> None:
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
                **(
                    {"ports": {"cli": 6082, "proxy": 8444}, "companions": {"hitch": {}}}
                    if kind == "varnish"
                    else {}
                ),
            },
            "backends": [{"host": f"{base}.1{number}", "port": 8000} for number in (1, 2)],
        }
        lab = {"kind": "attach", "start_timeout": 10, "attach": attach}
        self.plan = Plan.model_validate({"lab": lab, "proxy": {"kind": kind, "workers": 1}})
        rendered = await asyncio.to_thread(render_first, self.plan)
        for number in (1, 2):
            name = f"b{number}"
            command = ["python3", "-m", "soak.lab.origin", "--name", name, "--host", "0.0.0.0"]
            argv = [*command, "--port", "8000", "--stay"]
            await self._run(name, Role.BACKEND, images.origin(), argv, f"{base}.1{number}")
        output = rendered.output
        start = rendered.proxy if output is None else _into(rendered.proxy, output)
        await self._run("proxy", Role.PROXY, images.proxy(kind), start, f"{base}.10")
        for name, words in rendered.companions.items():
            beside = _into(words, companion_output_of(self.home / "proxy", name))
            await self._run(name, Role.COMPANION, images.proxy(name), beside, "")

    async def _run(self, name: str, role: Role, image: str, argv: Sequence[str], address: str) -> None:
        spec = ContainerSpec(
            f"soak-attach-{name}",
            image,
            argv,
            labels_of(RUN, role, name),
            network=self.network if address else None,
            address=address or None,
            joins="" if address else self.ids["proxy"],
            binds={self.home: str(self.home)},
            directory=str(self.home),
            cpus=0 if role is Role.BACKEND else 2,
            memory_bytes=0 if role is Role.BACKEND else 1 << 30,
        )
        self.ids[name] = await self.engine.create(spec)
        await self.engine.start(self.ids[name])

    async def end(self) -> None:
        for container in reversed(self.ids.values()):
            await self.engine.remove(container)
        if self.network:
            await self.engine.remove_network(self.network)
        shutil.rmtree(self.home, ignore_errors=True)


def _into(command: Sequence[str], output: Path) -> list[str]:
    return ["/bin/sh", "-c", f"exec {shlex.join(command)} >>{shlex.quote(str(output))} 2>&1"]


@asynccontextmanager
async def fleet_at(engine: Engine, images: Images, kind: str = "nginx") -> AsyncIterator[Fleet]:
    """A running fleet, removed whatever a test did to it."""
    theirs = Fleet(engine, Path(tempfile.mkdtemp(prefix="soak-fleet-")))
    try:
        await theirs.start(images, kind)
        yield theirs
    finally:
        await theirs.end()
