"""The live state: what `soak status` and the live view are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chaos.model import FaultOutcome, FaultRecord, FaultRequest, Source
from chaos.timeline import PlannedFault
from soak.live import Facts, LiveState
from soak.measure.ledger import Ledger
from soak.model import Event, Outcome, Phase
from soak.plan import Plan
from soak.status import Status
from tests.soak.windows import report, window

FACTS = Facts("run-1", 42, "2026-12-01T08:00:00Z", "1.31.3", "https://127.0.0.1:1", "http://127.0.0.1:2")


def status_of(live: LiveState, **more) -> Status:
    given = {"now_s": 3.0, "phase": Phase.STEADY, "next_fault": None, "guarded": False, **more}
    return live.status(FACTS, **given)


def test_a_status_adds_up_what_the_workers_said():
    """Slots, outcomes and rates are the ledger's, in milliseconds where it says so."""
    ledger = Ledger()
    live = LiveState(Plan(rate=100), ledger)
    for second in range(3):
        ledger.add(
            report(second, window(second, ok=95, outcomes={Outcome.STATUS_5XX: 5}, latency_ns=2_000_000))
        )
    status = status_of(live)
    assert (300, 300, 285, 15) == (status.scheduled, status.sent, status.ok, status.failed)
    assert status.outcomes == {"ok": 285, "status_5xx": 15}
    assert status.rate_now == 100.0
    assert abs(status.p99_ms - 2.0) < 0.02
    assert Status.from_json(status.to_json()) == status


def test_a_status_says_where_the_proxy_counts_for_itself():
    """As the lab said it."""
    facts = replace(FACTS, proxy_metrics_url="http://127.0.0.1:3/metrics")
    given: dict[str, Any] = {"now_s": 1.0, "phase": Phase.STEADY, "next_fault": None, "guarded": False}
    assert facts.proxy_metrics_url == LiveState(Plan(), Ledger()).status(facts, **given).proxy_metrics_url


def test_a_fault_is_active_until_its_outcome_is_known():
    """Then it is counted by kind and outcome; a dirty one taints the run."""
    live = LiveState(Plan(), Ledger())
    record = FaultRecord(
        4, "reload", "proxy", Source.SCHEDULE, 1.0, injected_s=1.0, evidence={"big": "x" * 999}
    )
    live.fault(record)
    shown = status_of(live).active_faults
    assert [4] == [fault["id"] for fault in shown]
    assert "evidence" not in shown[0]
    live.fault(replace(record, outcome=FaultOutcome.VERIFIED))
    live.fault(replace(record, id=5, outcome=FaultOutcome.DIRTY))
    status = status_of(live)
    assert status.active_faults == []
    assert status.faults_done == {"reload": {"verified": 1, "dirty": 1}}
    assert status.dirty


def test_the_last_events_are_kept_and_the_next_fault_is_named():
    """Twelve events at most; the next fault with kind, target and instant."""
    live = LiveState(Plan(), Ledger())
    for n in range(20):
        live.event(Event(float(n), 0.0, f"event.{n}"))
    live.event(Event(20.0, 0.0, "fault.waiting"))
    planned = PlannedFault(FaultRequest("backend-down", Source.SCHEDULE, 9.0, 3.0, "b2"))
    status = status_of(live, next_fault=planned)
    assert [f"event.{n}" for n in range(8, 20)] == [e["name"] for e in status.last_events]
    assert status.next_fault == {"kind": "backend-down", "target": "b2", "at_s": 9.0}


def test_elapsed_never_leaves_the_run():
    """Not before its start, not past its length."""
    live = LiveState(Plan(length=60), Ledger())
    assert status_of(live, now_s=-0.5).elapsed_s == 0.0
    assert status_of(live, now_s=61.0).elapsed_s == 60.0


def test_what_is_wrong_now_is_told_in_sentences():
    """Nothing while all is well; silence of the workers counts only while they should report."""
    ledger = Ledger()
    live = LiveState(Plan(), ledger)
    ledger.add(report(2, window(2, ok=1)))
    assert [] == live.problems(60.0, dirty="", guarded="")
    live.state = "running"
    assert [] == live.problems(8.0, dirty="", guarded="")
    assert ["the load workers have not reported for 6 s"] == live.problems(9.0, dirty="", guarded="")
    live.state = "stopping"
    found = live.problems(60.0, dirty="#3 reload on proxy: no", guarded="60% of requests failed")
    assert ["the run is dirty: #3 reload on proxy: no", "60% of requests failed"] == found
