"""Maps of a running HAProxy, replaced while it serves; and what is said when they cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from soak.lab.process import row_of
from soak.proxies._haproxymaps import replace_maps
from soak.proxies.haproxy import ADAPTER
from soak.rundir import RunDir
from tests.soak.lab.client import fetch

from .conftest import StartLab, binary_of

Answers = Callable[[str], str]


async def test_a_thousand_routes_are_replaced_in_the_worker_that_runs(started: StartLab, run: RunDir):
    """By what the file holds now: one is named anew, one is gone, all others are as they were; nothing is done twice."""
    binary_of(ADAPTER)
    lab = await started("haproxy", backends=1, routes=1000)
    master = (await lab.proxy_identity())["pid"]
    assert "r1" == (await fetch(lab, "/bytes/1", host="r1.soak.test")).headers["x-soak-route"]
    routes = run.lab / "proxy" / "routes.map"
    routes.write_text(
        routes.read_text()
        .replace("r1.soak.test r1\n", "r1.soak.test anew\n")
        .replace("r1000.soak.test r1000\n", "")
    )
    socket = run.lab / "proxy" / "master.sock"
    done = await replace_maps(socket, [routes, run.lab / "proxy" / "generation.map", run.lab / "none.map"])

    assert (True, {"changed": {"routes.map": 999}}) == (done.accepted, done.detail)
    names = [
        (await fetch(lab, "/bytes/1", host=f"{host}.soak.test")).headers.get("x-soak-route")
        for host in ("r1", "r500", "r999", "r1000")
    ]
    assert ["anew", "r500", "r999", None] == names
    assert (await replace_maps(socket, [routes])).detail == {"changed": {}}
    assert row_of(master) is not None


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Callable[[Answers], Awaitable[Path]]]:
    """Return a function that makes a master's socket whose worker answers as it is told."""
    servers: list[asyncio.Server] = []

    async def listen(answers: Answers) -> Path:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(answers((await reader.read()).decode()).encode())
            writer.close()

        path = tmp_path / "master.sock"
        servers.append(await asyncio.start_unix_server(serve, path))
        return path

    yield listen
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("refuses", "says"),
    [
        ("show map", "the worker has no map generation.map: 'no'"),
        ("prepare map", "generation.map: no"),
        ("add map", "generation.map: no"),
        ("commit map", "generation.map: no"),
    ],
)
async def test_a_worker_that_refuses_is_told_in_its_words(worker, tmp_path: Path, refuses: str, says: str):
    """Whichever of the commands it was."""
    file = tmp_path / "generation.map"
    file.write_text("generation 7\n")

    def answers(command: str) -> str:
        assert command.startswith("@1 ")
        if command.startswith(f"@1 {refuses}"):
            return "no\n"
        if command == "@1 show map\n":
            return f"# id (file) description\n-1 (acl) acl\n3 ({file}) pattern loaded from file\n"
        return "New version created: 4\n" if "prepare map #3" in command else ""

    done = await replace_maps(await worker(answers), [file])
    assert (False, says) == (done.accepted, done.reason)
