"""Reports fan out once each; a second is judged once, when all workers have spoken."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

from soak.clock import RunClock
from soak.collect import ReportBook
from soak.measure.ledger import Ledger
from soak.measure.window import WorkerReport
from soak.model import Outcome, Phase, Scope, Sighting, SightKind, SightVia, Unwell
from soak.observe import TrafficObserver
from soak.plan import SelfPlan
from soak.watch import TrafficRecoveryWatch
from tests.fakes import FakeClock
from tests.soak.windows import report, window


class Desk:
    """A ReportBook with everything it feeds laid open."""

    def __init__(self, workers: int = 1) -> None:
        clock = RunClock(FakeClock(), 0)
        self.kept: list[WorkerReport] = []
        self.unwell: list[Unwell] = []
        self.guard: list[tuple[int, int]] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.observer = TrafficObserver(clock)
        self.ledger = Ledger()
        self.book = ReportBook(
            workers=workers,
            limits=SelfPlan(),
            keep_report=self.kept.append,
            keep_unwell=self.unwell.append,
            ledger=self.ledger,
            observer=self.observer,
            recovery=TrafficRecoveryWatch(clock, remembered_s=100),
            feed_guard=lambda requests, failures: self.guard.append((requests, failures)),
            on_report=lambda _: None,
            on_event=lambda name, data: self.events.append((name, data)),
        )


def test_a_second_is_judged_when_every_worker_has_reported_it():
    """One worker's word is not the second's."""
    desk = Desk(workers=2)
    desk.book.add(report(0, worker=0))
    assert desk.guard == []
    desk.book.add(report(0, worker=1))
    assert desk.guard == [(200, 0)]


def test_failures_outside_every_fault_feed_the_guard_and_those_inside_do_not():
    """Only steady seconds count, and neither stale_reuse nor our own failures."""
    desk = Desk()
    desk.book.scope(Scope(1, Phase.FAULT, (1,)))
    bad = {Outcome.STATUS_5XX: 7, Outcome.STALE_REUSE: 3}
    desk.book.add(report(0, window(0, outcomes=bad)))
    desk.book.add(report(1, window(1, scope=1, outcomes=bad)))
    assert desk.guard == [(110, 7)]


def test_an_unwell_second_is_kept_told_and_not_fed_to_the_guard():
    """soak's own trouble says nothing about the proxy."""
    desk = Desk()
    desk.book.add(report(3, window(3, ok=50, missed=50)))
    assert desk.unwell == [Unwell(3.0, 4.0, "50 of 100 slots missed")]
    assert desk.events == [("soak.unwell", {"second": 3, "reason": "50 of 100 slots missed"})]
    assert desk.guard == []


def test_sightings_reach_the_observer_and_notes_become_events():
    """What a worker saw and noted is passed on."""
    desk = Desk()
    seen = Sighting(SightKind.ORIGIN, "b1", SightVia.TRAFFIC, 0.1, 0.9, 40)
    desk.book.add(report(0, sightings=(seen,), notes=({"name": "load.unsolicited_bytes", "connection": 4},)))
    assert desk.observer.last_seen("origin", "b1") == 0.9
    assert desk.events == [("load.unsolicited_bytes", {"connection": 4, "worker": 0})]


def test_a_broken_identity_is_an_event_once():
    """Counts that do not add up are said aloud, once for each sentence."""
    desk = Desk()
    odd = window(0, in_flight=5)
    desk.book.add(report(0, odd))
    desk.book.add(report(1, window(1, in_flight=5)))
    names = [name for name, _ in desk.events]
    assert set(names) == {"soak.identity_violated"}
    assert len(desk.events) == len({data["sentence"] for _, data in desk.events})


def test_a_worker_that_stays_away_does_not_pile_up_memory():
    """After two minutes a second is judged by those who spoke."""
    desk = Desk(workers=2)
    for second in range(130):
        desk.book.add(report(second, worker=0))
    assert 130 - 120 == len(desk.guard)


def test_hours_of_reports_leave_nothing_behind_in_memory(monkeypatch):
    """Two workers, a new scope each minute, a new generation and certificate each ten seconds, failures, bad seconds and notes."""
    monkeypatch.setattr("soak.observe._MAX_VALUES", 50)
    desk = Desk(workers=2)

    def seconds(first: int, count: int) -> None:
        for second in range(first, first + count):
            scope = second // 60 + 1
            desk.book.scope(Scope(scope, (Phase.STEADY, Phase.FAULT)[scope % 2], (scope,), float(second)))
            value = str(second // 10)
            seen = tuple(
                Sighting(kind, value, SightVia.TRAFFIC, float(second), second + 0.5, 3)
                for kind in (SightKind.GENERATION, SightKind.SERIAL)
            )
            for worker in (0, 1):
                load = window(
                    second, scope=scope, outcomes={Outcome.STATUS_5XX: 1}, latency_ns=1000 * (second % 97 + 1)
                )
                note = {"name": "load.stalled", "late_s": 0.1}
                gap_s = 5.0 if second % 7 == 0 else 0.0
                desk.book.add(
                    report(second, load, worker=worker, sightings=seen, notes=(note,), loop_gap_s=gap_s)
                )
            for kept in (desk.kept, desk.unwell, desk.guard, desk.events):
                kept.clear()

    tracemalloc.start()
    try:
        seconds(0, 1500)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        seconds(1500, 1000)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert 2500 * 202 == desk.ledger.total().sent
    assert grown < 1000 * 100, f"{grown} bytes after 1,000 seconds: a report has more than 1,000"
