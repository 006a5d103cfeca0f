"""Companions behind identities: looked at before they matter, checked where they run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from signal import Signals

from chaos.target import BackendState, Identity
from soak.clock import SystemClock
from soak.lab.attached import Seen
from soak.lab.checking import Checked
from soak.lab.companionthings import CompanionThing, CompanionThings
from soak.lab.reloading import Said
from soak.lab.topology import free_ports
from soak.proxies.companion import Companion

ME = {"pid": 7, "started": 1.0}


class FakeHitch:
    """A thing that can end."""

    name = "proxy-hitch"

    def __init__(self) -> None:
        self.identity: Identity = ME
        self.ran: list[Sequence[str]] = []
        self.signals: list[Signals] = []

    async def look(self) -> Seen:
        return Seen(BackendState.RUNNING if self.identity else BackendState.STOPPED, self.identity)

    async def run(self, command: Sequence[str], *, timeout_s: float) -> Checked:
        self.ran.append(command)
        return Checked(0, "fine")

    async def signal(self, identity: Identity, number: Signals) -> None:
        self.signals.append(number)


class OneHitch(CompanionThings):
    """Companions of which each is the same thing."""

    def __init__(self, directory: Path, thing: FakeHitch) -> None:
        super().__init__(directory, SystemClock(), host="127.0.0.1", start_timeout_s=5)
        self.thing = thing

    async def _launch(self, wanted: Companion, log: Path) -> CompanionThing:
        return CompanionThing(self.thing, self.thing.identity, log)  # type: ignore[arg-type] # as much of one as is needed


async def accepts() -> Said:
    return Said("accepted")


async def test_one_that_has_ended_is_seen_by_the_next_look(tmp_path: Path):
    """Until then nobody knows; then a reload has nobody to ask."""
    thing, (port,) = FakeHitch(), free_ports(1)
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", port)
    companions = OneHitch(tmp_path / "proxy", thing)
    async with server:
        await companions.start([Companion("hitch", ["hitch"], port)], first=False)
    assert "accepted" == (await companions.reload(accepts, everyone=True)).verdict
    (tmp_path / "proxy-hitch.out").write_text("last words\n")
    thing.identity = {}
    assert "" == companions.ended()
    await companions.look()
    assert "hitch: it ended or was started anew; it said:\nlast words" == companions.ended()
    assert "gone" == (await companions.reload(accepts, everyone=True)).verdict


async def test_a_check_runs_where_it_runs(tmp_path: Path):
    """And is no success before there is one."""
    thing, (port,) = FakeHitch(), free_ports(1)
    companions = OneHitch(tmp_path / "proxy", thing)
    early = await companions.check("hitch", ["hitch", "--test"], timeout_s=1)
    assert (None, "hitch does not run yet") == (early.code, early.words)
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", port)
    async with server:
        await companions.start([Companion("hitch", ["hitch"], port)], first=False)
    done = await companions.check("hitch", ["hitch", "--test"], timeout_s=1)
    assert (0, [["hitch", "--test"]]) == (done.code, thing.ran)
