"""Giving a proxy of somebody else its own files back; taking one over: test_attach.py, with the real nginx."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from signal import Signals
from typing import Any

import pytest

from chaos.target import BackendState, Identity
from soak.clock import SystemClock
from soak.lab.attached import Seen, changed
from soak.lab.attachedproxy import give_back
from soak.lab.originals import Originals
from soak.labplan import AttachedProxyPlan
from soak.proxies.base import ReadsAtStart
from soak.proxies.catalog import adapter, adapters
from tests.soak.proxies.conftest import model_of

ME = {"pid": 7, "started": 1.0}


class FakeThing:
    """A proxy that logs what a signal makes it log."""

    name = "proxy"

    def __init__(self, log: Path, says: str) -> None:
        self._log = log
        self._says = says
        self.identity: Identity = ME
        self.signals: list[Signals] = []

    async def look(self) -> Seen:
        return Seen(BackendState.RUNNING, self.identity)

    async def signal(self, identity: Identity, number: Signals) -> None:
        if dict(identity) != dict(self.identity):
            raise changed(self.name, identity, self.identity)
        self.signals.append(number)
        self._log.write_text(f"{self._says}\n")


class Ruin:
    """A directory of somebody else in which soak has written."""

    def __init__(self, tmp_path: Path, says: str) -> None:
        self.conf = tmp_path / "nginx.conf"
        self.conf.write_text("mine")
        self.originals = Originals(tmp_path / "originals")
        self.originals.keep([self.conf])
        self.conf.write_text("soak's")
        self.thing: Any = FakeThing(tmp_path / "error.log", says)
        self.where = AttachedProxyPlan(directory=str(tmp_path), http_port=1, https_port=2)

    async def give_back(self):
        return await give_back(
            self.originals, self.thing, ME, adapter=adapter("nginx"), clock=SystemClock(), where=self.where
        )


async def test_it_reads_its_own_files_again_and_that_happens_once(tmp_path: Path):
    """A second time there is nothing to give back, and no reload."""
    ruin = Ruin(tmp_path, "1 [notice] 1#0: start worker processes")
    first, second = await ruin.give_back(), await ruin.give_back()
    assert ("mine", "the proxy has its own files again") == (ruin.conf.read_text(), first.reason)
    assert (True, True, "") == (first.ok, second.ok, second.reason)
    assert 1 == len(ruin.thing.signals)


async def test_one_that_refuses_its_own_files_is_asked_again_next_time(tmp_path: Path):
    """Its own word says why; the copies stay."""
    ruin = Ruin(tmp_path, "1 [emerg] 1#0: no such certificate")
    refused = await ruin.give_back()
    assert not refused.ok
    assert "but it refuses to read them: 1 [emerg] 1#0: no such certificate" in refused.reason
    assert ruin.originals.kept


async def test_one_that_was_started_anew_gets_its_files_and_no_signal(tmp_path: Path):
    """It is not the one that soak attached to."""
    ruin = Ruin(tmp_path, "")
    ruin.thing.identity = {"pid": 8, "started": 2.0}
    given = await ruin.give_back()
    assert given.ok
    assert "was started anew since" in given.reason
    assert ("mine", []) == (ruin.conf.read_text(), ruin.thing.signals)


async def test_files_that_cannot_be_put_back_are_named(tmp_path: Path):
    """And the proxy is not asked to read half of them."""
    ruin = Ruin(tmp_path, "")
    (tmp_path / "originals" / "0.original").unlink()
    given = await ruin.give_back()
    assert (False, []) == (given.ok, ruin.thing.signals)
    assert f"{ruin.conf} could not be put back" in given.reason


@pytest.mark.parametrize("name", [name for name, one in adapters().items() if isinstance(one, ReadsAtStart)])
def test_what_only_a_start_reads_is_the_same_for_every_generation(name: str, tmp_path: Path):
    """Else a run could not tell whether a proxy was started with it."""
    proxy = adapter(name)
    assert isinstance(proxy, ReadsAtStart)
    first = model_of(proxy, tmp_path)
    later = replace(first, generation=9, full_generation=9, routes=3, version="99.1", broken=True)
    one, other = proxy.render(first), proxy.render(later)
    assert [one[file] for file in proxy.read_at_start] == [other[file] for file in proxy.read_at_start]
    assert one != other
