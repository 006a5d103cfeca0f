"""The ledger's totals of a live run."""

from __future__ import annotations

import pytest

from soak.measure.ledger import Ledger, Slots
from soak.model import ConnectionStats, Outcome, Phase, Scope
from tests.soak.synthetic import histogram, report, window


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    ledger.scope(Scope(1, Phase.FAULT, (1,)))
    return ledger


def test_outcomes_are_counted_by_class_outcome_and_phase(ledger):
    """The phase is that of the window's scope."""
    ledger.add(report(0, window(0), window(0, "post", scope=1, outcomes={Outcome.DNS: 2, Outcome.OK: 98})))
    ledger.add(report(1, window(1)))
    assert {
        ("get", Outcome.OK, Phase.STEADY): 200,
        ("post", Outcome.OK, Phase.FAULT): 98,
        ("post", Outcome.DNS, Phase.FAULT): 2,
    } == ledger.outcomes
    assert {Outcome.OK: 298, Outcome.DNS: 2} == ledger.by_outcome()


def test_slots_and_latencies_add_up(ledger):
    """Totals by class, histograms by class and phase."""
    ledger.add(report(0, window(0, scheduled=110, dropped=7, missed=3), window(0, "post", scope=1)))
    assert Slots(110, 100, 7, 3) == ledger.slots["get"]
    assert Slots(210, 200, 7, 3) == ledger.total()
    assert 100 == ledger.latency["get", Phase.STEADY].count == ledger.latency["post", Phase.FAULT].count
    assert 100 == ledger.service["get"].count == ledger.lag["post"].count
    assert 204_800 == ledger.bytes_received


def test_in_flight_is_each_workers_newest_word(ledger):
    """A late report of an older second does not bring back an older number."""
    ledger.add(report(5, window(5, in_flight=3, sent=103, scheduled=103)))
    ledger.add(report(5, window(5, in_flight=4), window(5, "post", in_flight=1), worker=1))
    ledger.add(report(4, window(4, in_flight=9)))
    assert (7, 1, 8) == (ledger.in_flight("get"), ledger.in_flight("post"), ledger.in_flight())
    assert 5 == ledger.newest[0].second


def test_the_rate_looks_at_complete_seconds_only(ledger):
    """A second that one of two workers has not reported yet would make the rate dip."""
    for s in range(8):
        ledger.add(report(s, window(s)))
        ledger.add(report(s, window(s), worker=1))
    ledger.add(report(8, window(8)))
    assert (7, 8) == (ledger.complete_second, ledger.newest_second)
    assert 200.0 == ledger.rate_now()


def test_the_rate_of_a_young_run_looks_at_what_there_is(ledger):
    """Before the first second it is 0, after two it is their mean."""
    assert 0.0 == ledger.rate_now()
    ledger.add(report(0, window(0, sent=50)))
    ledger.add(report(1, window(1)))
    assert 75.0 == ledger.rate_now()


def test_recent_histograms_forget(ledger):
    """Only the last ten seconds count, and memory does not grow with time."""
    ledger.add(report(0, window(0, latency=histogram(100, 500.0), lag=histogram(100, 9.0))))
    assert 0.49 < ledger.recent_latency().quantile_ns(0.99) / 1e9 < 0.51
    for s in range(1, 200):
        ledger.add(report(s, window(s)))
    assert 1000 == ledger.recent_latency().count == ledger.recent_lag().count
    assert ledger.recent_latency().max_ns < 2e6
    assert len(ledger._recent) <= 21
    ledger.add(report(3, window(3, latency=histogram(100, 500.0))))
    assert ledger.recent_latency().max_ns < 2e6


def test_both_identities_are_checked_for_each_class_and_worker(ledger):
    """Each break is a sentence with the numbers."""
    ledger.add(report(0, window(0, in_flight=0)))
    assert [] == ledger.violations()
    ledger.add(report(0, window(0, "post", scheduled=101, in_flight=2), worker=1))
    assert [
        "class post, worker 1: scheduled 101 is not sent 100 + dropped 0 + missed 0",
        "class post, worker 1: sent 100 is not done 100 + in flight 2",
    ] == ledger.violations()


def test_identities_hold_over_seconds_with_requests_in_flight(ledger):
    """Sent in one second and done in the next: in flight bridges the two."""
    ledger.add(report(0, window(0, in_flight=30, outcomes={Outcome.OK: 70})))
    assert [] == ledger.violations()
    ledger.add(report(1, window(1, in_flight=0, outcomes={Outcome.OK: 120, Outcome.DNS: 10})))
    assert [] == ledger.violations()


def test_connections_are_summed(ledger):
    """Events add up over all reports; open and idle are the workers' newest."""
    ledger.add(report(0, window(0)))
    ledger.add(report(1, window(1), evidence_dropped=4))
    ledger.add(report(1, window(1), worker=1))
    assert ConnectionStats(15, 6, 9, 12, 3, 285) == ledger.connections
    assert (20, 18, 4) == (ledger.open_connections, ledger.idle_connections, ledger.evidence_dropped)


def test_an_unknown_scope_is_an_error(ledger):
    """A window whose phase nobody knows must not be booked as steady."""
    with pytest.raises(KeyError):
        ledger.add(report(0, window(0, scope=99)))


def test_old_scopes_are_forgotten(ledger):
    """Memory stays constant over a month of faults."""
    for i in range(2, 3000):
        ledger.scope(Scope(i, Phase.STEADY))
    assert 1000 == len(ledger._phases)
    ledger.add(report(0, window(0, scope=2999)))
