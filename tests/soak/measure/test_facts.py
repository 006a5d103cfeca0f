"""A second in seven numbers."""

from __future__ import annotations

from soak.measure.facts import SecondFacts, blamed, facts_of
from soak.model import Outcome
from tests.soak.synthetic import histogram, report, window


def test_all_workers_and_classes_are_folded():
    """Sums, the p99 of all latencies together, the latest failure, in flight by class and worker once each."""
    reports = [
        report(
            3,
            window(3, in_flight=2, last_failure_due_s=3.1, outcomes={Outcome.OK: 98, Outcome.DNS: 2}),
            window(3, scope=1, in_flight=2, sent=1, outcomes={}, latency=histogram(0, 0)),
            window(3, "post", in_flight=1, latency=histogram(100, 50.0)),
        ),
        report(3, window(3, in_flight=4, last_failure_due_s=3.7), worker=1),
    ]
    facts = facts_of(3, reports, steady=True, unwell=True)
    assert SecondFacts(3, 301, 300, 2, facts.p99_s, 3.7, 7, steady=True, unwell=True) == facts
    assert abs(facts.p99_s - 0.050) < 0.0005


def test_our_own_failures_are_not_blamed():
    """client_resource is ours; stale_reuse is a disturbance of traffic."""
    assert 3 == blamed({Outcome.OK: 9, Outcome.CLIENT_RESOURCE: 5, Outcome.STALE_REUSE: 1, Outcome.DNS: 2})


def test_a_second_without_reports_is_empty():
    """No worker said anything."""
    assert SecondFacts(5, 0, 0, 0, 0.0) == facts_of(5, [])


def test_streaming_classes_count_without_their_latency_and_their_requests_in_flight():
    """Both are long by design; what they sent, ended and failed is traffic like any other."""
    plain = window(3, in_flight=2, latency=histogram(100, 1.0))
    stream = window(
        3,
        "stream",
        in_flight=300,
        streaming=True,
        latency=histogram(100, 900.0),
        outcomes={Outcome.OK: 97, Outcome.CUT_MID_RESPONSE: 3},
        last_failure_due_s=3.4,
    )
    facts = facts_of(3, [report(3, plain, stream)])
    assert (200, 200, 3, 3.4, 2) == (
        facts.sent,
        facts.done,
        facts.failed,
        facts.last_failure_due_s,
        facts.in_flight,
    )
    assert facts.p99_s < 0.002
    assert (0.0, 0) == ((alone := facts_of(3, [report(3, stream)])).p99_s, alone.in_flight)
