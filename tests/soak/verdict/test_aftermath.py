"""What failed after traffic had recovered, while the fault went on."""

from __future__ import annotations

import pytest

from soak.model import Outcome, Unwell
from tests.soak.synthetic import SyntheticRun, record
from tests.soak.verdict.runs import only_missed


def retried(every_s: int, outcome: Outcome = Outcome.STATUS_5XX, *, seconds: int = 3600) -> SyntheticRun:
    """A backend is away for a minute, and now and then a request is still sent there."""
    run = SyntheticRun(seconds=seconds)
    run.add_fault(record(1, "backend-down", 60.0, reverted_s=120.0, recovery_s=0.5, recovered_s=120.0))
    for s in range(60, 120, every_s):
        run.fail(s, outcome, evidence=False)
    return run


def test_requests_that_go_on_to_be_sent_to_a_dead_backend_are_named(verdict):
    """One in five seconds: each time traffic had recovered, and over the run it is next to nothing."""
    missed = only_missed(v := verdict(retried(5)))
    assert ("fail", "recovered_success", 1) == (v.verdict, missed.name, missed.fault)
    assert (
        "traffic had recovered from backend-down, but 11 of 5600 requests failed while it went on"
        in missed.reason
    )
    assert (
        "first 11 under backend-down #1 of b1 at 1m00s, after 1m04s; in all it lost 12 status_5xx"
        in missed.reason
    )


@pytest.mark.parametrize(
    "run",
    [retried(15), retried(5, Outcome.STALE_REUSE, seconds=6000)],
    ids=["few", "with a budget of their own"],
)
def test_the_price_of_trying_a_backend_again_is_paid(verdict, run):
    """Proxies that find out by a request whether a backend is back lose some; kept connections have their own budget."""
    assert "pass" == verdict(run).verdict


@pytest.mark.parametrize(("every_s", "word"), [(4, "fail"), (20, "pass")])
def test_a_rate_that_hides_the_share_does_not_hide_the_minutes(verdict, every_s, word):
    """A request each four seconds is spent on a dead backend, at whatever rate; of twenty thousand nobody would notice."""
    run = retried(every_s, seconds=900)
    for s in range(900):
        run.changes[s] = {
            "scheduled": 5000,
            "sent": 5000,
            "outcomes": {Outcome.OK: 5000 - len(run.failures.get(s, ())), **run.failures.get(s, {})},
        }
    v = verdict(run)
    assert word == v.verdict
    if word == "fail":
        missed = only_missed(v)
        assert ("recovered_success", 6.0) == (missed.name, missed.limit)
        assert missed.value is not None
        assert missed.value == pytest.approx(14.7, abs=0.5)


def test_seconds_that_are_set_apart_do_not_count(verdict):
    """Soak itself was unwell in them."""
    run = retried(5)
    run.unwell = [Unwell(64.0, 99.0, "late")]
    assert not [o for o in verdict(run).objectives if o.name == "recovered_success" and not o.ok]


def test_a_fault_that_ended_before_traffic_recovered_is_not_judged(verdict):
    """There was no time after it."""
    run = SyntheticRun(seconds=600)
    run.add_fault(record(1, "backend-down", 60.0, reverted_s=62.0))
    assert "recovered_success" in {n.name for n in verdict(run).not_judged}
