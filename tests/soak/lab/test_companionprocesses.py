"""Companions as processes: found and ended by strangers, missed when they die; what they share with containers: test_companions.py."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from soak.lab.process import living
from soak.lab.sweep import processes_of, release

from .companionbench import Bench, accepts


async def test_its_death_is_told_and_the_proxy_is_no_longer_whole(bench: Bench):
    """An event with its name and last words; a reload has nobody to ask."""
    await bench.companions.start([bench.wanted()], first=False)
    bench.file.write_text("two")
    await bench.companions.reload(accepts, everyone=False)
    identity = bench.companions.members()[0].identity
    os.kill(identity["pid"], signal.SIGKILL)
    async with asyncio.timeout(30):
        while not bench.events:
            await asyncio.sleep(0.01)
    ((name, data),) = bench.events

    assert ("proxy.died", "proxy-tls", "SIGKILL") == (name, data["name"], data["how"])
    assert "SIGKILL; it said:\ntook two" == data["words"]
    assert "tls: SIGKILL; it said:\ntook two" == bench.companions.ended()
    assert "gone" == (await bench.companions.reload(accepts, everyone=False)).verdict


@pytest.mark.parametrize("record", ["kept", "lost"])
async def test_a_stranger_finds_and_ends_it(bench: Bench, record: str):
    """By the record, and without it by what the lab gave it: after a kill of the daemon nothing stays."""
    await bench.companions.start([bench.wanted()], first=False)
    identity = bench.companions.members()[0].identity
    bench.companions.members()[0].expected_to_end = True
    if record == "lost":
        bench.run.lab_state.unlink()

    assert identity["pid"] in [row.pid for row in processes_of(bench.run)]
    assert (await release(bench.run)).ok
    assert living(identity) is None
