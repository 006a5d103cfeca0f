"""Companions of a proxy, as real processes: recorded, ready, told what changed, missed when they die, never left behind."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from soak.errors import LabError
from soak.lab.companions import companions_of
from soak.lab.reloading import Said
from soak.lab.topology import free_ports
from soak.proxies.companion import Companion, companion_output_of
from soak.proxies.nginx import ADAPTER as NGINX

from .companionbench import Bench, accepts


async def test_each_is_started_in_its_turn_recorded_and_listens(bench: Bench):
    """Those that come first, then the others, ready when the call returns, known to whoever must end them."""
    before, after = bench.wanted("before", first=True), bench.wanted("after")
    await bench.companions.start([after, before], first=True)
    assert ["proxy-before"] == [child.name for child in bench.companions.members()]
    await bench.companions.start([after, before], first=False)
    entries = json.loads(bench.run.lab_state.read_bytes())["processes"]

    identities = [one.identity for one in bench.companions.members()]
    assert ["proxy-before", "proxy-after"] == [entry["name"] for entry in entries]
    assert [one["pid"] for one in identities] == [entry["pid"] for entry in entries]
    assert "" == bench.companions.ended()
    for port in (before.port, after.port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()


async def test_one_that_does_not_come_up_says_why(bench: Bench):
    """It ended, or never listened; its words and the fix are in the error, and nothing of it is left."""
    ends = Companion("ends", [sys.executable, "-ISc", "print('no certificate'); raise SystemExit(3)"], 1)
    with pytest.raises(
        LabError, match=r"ends did not come up: it ended: exit status 3; it said:\nno certificate"
    ):
        await bench.companions.start([ends], first=False)
    deaf = Companion("deaf", ["sleep", "60"], free_ports(1)[0])
    slow = bench.new(start_timeout_s=0.1)
    with pytest.raises(
        LabError, match=r"deaf did not come up: it does not listen on 127.0.0.1:\d+ after 0.1 s"
    ):
        await slow.start([deaf], first=False)
    assert not [name for name, _ in bench.events]


async def test_only_who_reads_what_has_changed_is_told(bench: Bench):
    """A reload without a change leaves it alone; a change, or a full reload, is read once, and the answers are kept."""
    idle = bench.wanted("idle", reads=[])
    await bench.companions.start([bench.wanted(), idle], first=False)
    same = await bench.companions.reload(accepts, everyone=False)
    assert ("accepted", {"own": "word"}) == (same.verdict, same.answer)
    bench.file.write_text("two")
    changed = await bench.companions.reload(accepts, everyone=False)
    assert ("word", "accepted") == (changed.answer["own"], changed.answer["tls"]["said"])
    assert {"own": "word"} == (await bench.companions.reload(accepts, everyone=False)).answer
    await bench.companions.reload(accepts, everyone=True)

    assert "took two\ntook two\n" == bench.said()
    assert "" == bench.said("idle")


async def test_what_one_refuses_is_not_asked_of_the_proxy(bench: Bench):
    """It goes on with what it had, so nothing has changed anywhere; the way back tells nobody."""
    await bench.companions.start([bench.wanted()], first=False)

    async def never() -> Said:
        pytest.fail("the proxy was asked")

    bench.file.write_text("bad")
    refused = await bench.companions.reload(never, everyone=False)
    assert ("refused", ["refused bad"]) == (refused.verdict, list(refused.refusals))
    bench.file.write_text("one")

    assert {} == await bench.companions.refresh()
    assert "refused bad\n" == bench.said()


async def test_what_the_proxy_refuses_is_taken_back_from_them_too(bench: Bench):
    """One that took the new file is told of the old one."""
    await bench.companions.start([bench.wanted()], first=False)
    bench.file.write_text("two")

    async def refuses() -> Said:
        return Said("refused", ("no",))

    assert "refused" == (await bench.companions.reload(refuses, everyone=False)).verdict
    bench.file.write_text("one")
    told = await bench.companions.refresh()

    assert "accepted" == told["tls"].verdict
    assert "took two\ntook one\n" == bench.said()


async def test_silence_is_no_refusal(bench: Bench, monkeypatch):
    """One that never says what it made of its file is told once; traffic judges."""
    monkeypatch.setattr("soak.lab.companions.SAY_TIMEOUT_S", 0.05)
    await bench.companions.start([bench.wanted(accepted="", refused="")], first=False)
    bench.file.write_text("two")

    assert "accepted" == (await bench.companions.reload(accepts, everyone=False)).verdict
    assert {} == await bench.companions.refresh()


async def test_its_log_is_kept_bounded(bench: Bench):
    """What it says endlessly does not fill the disk."""
    await bench.companions.start([bench.wanted()], first=False)
    assert 0 == bench.companions.trim()
    with companion_output_of(bench.run.lab / "proxy", "tls").open("ab") as file:
        file.truncate(9 * 1024 * 1024)

    assert 9 * 1024 * 1024 == bench.companions.trim()


def test_most_proxies_have_none(tmp_path: Path):
    """An adapter without the method is not asked."""
    assert () == companions_of(NGINX, tmp_path, None)  # type: ignore[arg-type] # it must not even look at the model
