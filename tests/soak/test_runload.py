"""The load of a run, with a real worker against a port where nobody listens: every report reaches all who need it."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from soak.clock import NS, RunClock, SystemClock
from soak.lab.base import Lab
from soak.lab.topology import free_ports
from soak.measure.ledger import Ledger
from soak.measure.window import WorkerReport
from soak.model import Outcome, Phase, Scope
from soak.observe import TrafficObserver
from soak.plan import Plan
from soak.runload import RunLoad
from soak.watch import TrafficRecoveryWatch
from tests.soak.fakelab import FakeLab, Told

RATE = 20


class Kept:
    """A store in memory."""

    def __init__(self) -> None:
        self.reports: list[WorkerReport] = []
        self.scopes: list[Scope] = []

    def add_report(self, report: WorkerReport) -> None:
        self.reports.append(report)

    def add_scope(self, scope: Scope) -> None:
        self.scopes.append(scope)


class Desk:
    """A load and all that it feeds."""

    def __init__(self, tmp_path) -> None:
        clock = SystemClock()
        self.clock = RunClock(clock, clock.monotonic_ns())
        self.store, self.told, self.ledger = Kept(), Told(), Ledger()
        self.guard: list[tuple[int, int]] = []
        self.scraped: list[WorkerReport] = []
        self.load = RunLoad(
            Plan(rate=RATE, length=2, workers=1),
            cast("Lab", FakeLab(tmp_path / "certs", free_ports(1)[0])),
            self.clock,
            ledger=self.ledger,
            store=self.store,
            tell=self.told,
            observer=TrafficObserver(self.clock),
            recovery=TrafficRecoveryWatch(self.clock, remembered_s=60),
            feed_guard=lambda requests, failures: self.guard.append((requests, failures)),
            on_report=self.scraped.append,
            worker_log=tmp_path / "worker.log",
        )


@pytest.fixture
async def desk(tmp_path) -> Desk:
    return Desk(tmp_path)


async def test_every_report_reaches_the_store_the_totals_the_guard_and_the_metrics(desk):
    """All slots are sent and refused; seconds in which a fault was under way are not held against the proxy by the guard."""
    pool = desk.load.pool
    await pool.prepare()
    desk.clock.t0_ns = SystemClock().monotonic_ns() + NS // 4
    try:
        await pool.start(t0_ns=desk.clock.t0_ns)
        async with asyncio.timeout(30):
            await pool.wait()
    finally:
        await pool.kill()

    total = desk.ledger.total()
    assert (2 * RATE, 2 * RATE) == (total.scheduled, total.sent + total.missed)
    assert {Outcome.CONNECT_REFUSED} == set(desk.ledger.by_outcome())
    assert desk.store.reports == desk.scraped
    assert desk.store.reports[-1].final
    assert sum(n for n, _ in desk.guard) == sum(failed for _, failed in desk.guard) > 0


async def test_a_scope_is_known_to_all_before_a_worker_can_stamp_with_it(desk, monkeypatch):
    """The store and the totals have it when the workers are told; the first is there from the beginning."""
    order: list[str] = []

    async def enter(scope: int, *, steady: bool) -> None:
        order.append(f"{scope} steady={steady}, known: {[s.id for s in desk.store.scopes]}")
        assert desk.ledger._phases[scope] is Phase.FAULT

    monkeypatch.setattr(desk.load.pool, "enter_scope", enter)
    assert [Scope(0, Phase.STEADY)] == desk.store.scopes
    await desk.load.scopes.fault(7)

    assert ["1 steady=False, known: [0, 1]"] == order
    assert (7,) == desk.load.scopes.current.faults
