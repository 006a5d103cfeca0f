"""How long traffic was disturbed: by reloads, too, and also when the fault or the run ended before traffic had recovered."""

from __future__ import annotations

from soak.model import Outcome, Unwell
from tests.soak.synthetic import SyntheticRun, histogram, record
from tests.soak.verdict.runs import only_missed


def test_a_reload_that_stalls_traffic_is_named(verdict):
    """Every request was answered within a second, for twenty seconds."""
    run = SyntheticRun(seconds=200)
    run.add_fault(record(1, "reload", 60.0, recovery_s=20.0, recovered_s=80.0), until_s=83.0)
    for s in range(60, 80):
        run.changes[s] = {"latency": histogram(100, 900.0)}
    missed = only_missed(v := verdict(run))
    assert ("fail", "recovery", 1, 20.0) == (v.verdict, missed.name, missed.fault, missed.value)
    assert (
        "reload #1 at 1m00s disturbed traffic for 20.00 s, and lost no request (limit 10 s; 1 of 1 over it)"
        == missed.reason
    )


def test_a_reload_from_which_traffic_never_recovers(verdict):
    """It was given up after half a minute."""
    run = SyntheticRun(seconds=200)
    run.add_fault(record(1, "reload", 60.0, recovery_s=None, recovered_s=None), until_s=500.0)
    for s in range(60, 200):
        run.changes[s] = {"latency": histogram(100, 900.0)}
    assert (
        "traffic did not recover within 30 s of reload #1 at 1m00s, and lost no request"
        in only_missed(verdict(run)).reason
    )


def test_what_hides_the_recovery_of_a_reload_makes_no_run_invalid(verdict):
    """A day has hundreds; this one is not judged."""
    run = SyntheticRun(seconds=2000)
    run.add_fault(record(1, "reload", 60.0, recovery_s=None, recovered_s=None), until_s=100.0)
    for s in range(60, 100):
        run.changes[s] = {"latency": histogram(100, 900.0)}
    run.unwell = [Unwell(80.0, 90.0, "late")]
    assert "pass" == verdict(run).verdict


def test_errors_for_as_long_as_a_backend_was_away(verdict):
    """1 % failed until the revert: what ended it was the revert, though that came after ten seconds only."""
    run = SyntheticRun(seconds=20_000 // 10)
    run.add_fault(record(1, "backend-down", 60.0, reverted_s=70.0, recovery_s=9.5, recovered_s=70.0))
    for s in range(60, 70):
        run.fail(s, Outcome.STATUS_5XX, evidence=False)
    missed = only_missed(verdict(run))
    assert ("recovery", 10.0, 1) == (missed.name, missed.value, missed.fault)
    assert (
        "backend-down #1 of b1 at 1m00s disturbed traffic as long as it lasted, 10.0 s, and lost 10 status_5xx"
        in missed.reason
    )


def test_a_shorter_fault_says_nothing_of_a_longer_time(verdict):
    """Five seconds of errors under a fault of five: the proxy has ten."""
    run = SyntheticRun(seconds=2000)
    run.add_fault(record(1, "backend-down", 60.0, recovery_s=4.5, recovered_s=65.0))
    for s in range(60, 65):
        run.fail(s, Outcome.STATUS_5XX, evidence=False)
    assert "pass" == verdict(run).verdict


def test_traffic_that_had_not_recovered_when_the_run_ended(verdict):
    """It was given less time than it gets, but more than it may take."""
    run = SyntheticRun(seconds=90)
    run.add_fault(record(1, "backend-down", 60.0, recovery_s=None, recovered_s=None), until_s=500.0)
    for s in range(60, 90):
        run.changes[s] = {"latency": histogram(100, 300.0)}
    missed = only_missed(verdict(run))
    assert ("recovery", 25.0) == (missed.name, missed.value)
    assert (
        "backend-down #1 of b1 at 1m00s had disturbed traffic for 25.00 s when the run ended" in missed.reason
    )


def test_an_end_that_came_too_early_to_tell_fails_nothing(verdict):
    """Seven seconds after the revert nobody knows."""
    run = SyntheticRun(seconds=72)
    run.add_fault(record(1, "backend-down", 60.0, recovery_s=None, recovered_s=None), until_s=500.0)
    for s in range(60, 72):
        run.changes[s] = {"latency": histogram(100, 300.0)}
    assert "pass" == verdict(run).verdict
