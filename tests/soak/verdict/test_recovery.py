"""Recovery from traffic: exact to the last failure, per edge, and nothing is blamed on the proxy that we did not see."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest

from soak.measure.facts import SecondFacts
from soak.verdict.recovery import Band, RecoveryTracker, TrafficRecovery, band_of


def second(s: int, **changes: object) -> SecondFacts:
    calm = SecondFacts(s, sent=1000, done=1000, failed=0, p99_s=0.002, in_flight=1, steady=s < 100)
    return replace(calm, **changes)  # type: ignore[arg-type]  # tests name fields they know


def bad(s: int, due_s: float, n: int = 20) -> SecondFacts:
    return second(s, failed=n, last_failure_due_s=due_s)


def judge(
    odd: Iterable[SecondFacts], *edges: float, last: int = 200, until_s: float = math.inf
) -> TrafficRecovery:
    by_second = {f.second: f for f in odd}
    tracker = RecoveryTracker()
    for s in range(last):
        tracker.add(by_second.get(s, second(s)))
    return tracker.judge(edges, until_s)


def test_traffic_that_never_left_the_band_recovered_at_once():
    """A reload that nobody noticed: 0.0 s, recovered at its edge."""
    found = judge([], 100.4)
    assert (100.4, 0.0, 0.0) == (found.recovered_s, found.recovery_s, found.upper_s)


def test_the_end_is_the_due_instant_of_the_last_failure():
    """Not the end of its second."""
    found = judge([bad(100, 100.9), bad(101, 101.25)], 100.4)
    assert 101.25 == found.recovered_s
    assert pytest.approx(0.85) == found.recovery_s


def test_of_a_slow_second_the_whole_second_counts():
    """Which request of it was the last slow one is not known."""
    found = judge([second(101, p99_s=0.3)], 100.4)
    assert 102.0 == found.recovered_s
    assert pytest.approx(1.6) == found.recovery_s


def test_a_slow_second_that_its_few_failures_do_not_explain_counts_whole():
    """5 of 1,000 failed, so the p99 is that of good answers."""
    assert 102.0 == judge([replace(bad(101, 101.2, n=5), p99_s=0.3)], 100.4).recovered_s
    assert 101.2 == judge([replace(bad(101, 101.2, n=10), p99_s=0.3)], 100.4).recovered_s


def test_three_calm_seconds_running_are_needed():
    """Two calm seconds between bad ones do not end a disturbance."""
    found = judge([bad(101, 101.5), bad(104, 104.5)], 100.4)
    assert 104.5 == found.recovered_s
    apart = judge([bad(101, 101.5), bad(105, 105.5)], 100.4)
    assert 101.5 == apart.recovered_s
    assert 1 == apart.detail["edges"][0]["relapsed_seconds"]


def test_it_settles_only_after_the_calm_seconds_were_seen():
    """Live, one asks again each second: the answer comes with the third calm one, and then stays."""
    tracker = RecoveryTracker()
    answers = []
    for s in range(110):
        tracker.add(bad(s, s + 0.5) if s in (100, 101) else second(s))
        answers.append(tracker.judge([100.0]))
    assert [False] * 5 == [a.settled for a in answers[99:104]]
    assert {(101.5, 1.5)} == {(a.recovered_s, a.recovery_s) for a in answers[104:]}


def test_each_edge_has_its_own_disturbance():
    """Failover took 0.8 s after the loss, the return 1.3 s after the revert."""
    found = judge([bad(100, 100.8), bad(160, 160.9), bad(161, 161.3)], 100.0, 160.0)
    assert [0.8, 1.3] == [pytest.approx(e["disturbance_s"]) for e in found.detail["edges"]]
    assert pytest.approx(1.3) == found.recovery_s
    assert 161.3 == found.recovered_s


def test_a_failover_that_never_came_lasts_until_the_revert():
    """The inject edge is disturbed for about the hold; the revert ends it."""
    found = judge([bad(s, s + 0.99) for s in range(100, 160)], 100.0, 160.4)
    first, second_edge = found.detail["edges"]
    assert 59.9 < first["disturbance_s"] <= 60.4
    assert 0.0 == second_edge["disturbance_s"]
    assert not first["settled"]
    assert 160.4 == found.recovered_s
    assert first["disturbance_s"] == found.recovery_s


def test_a_slow_border_second_belongs_to_the_disturbance_under_way():
    """A slow second in which the revert happens is the old disturbance when that goes on, else the new one."""
    slow = [second(s, p99_s=0.3) for s in range(100, 161)]
    under_way = judge(slow, 100.0, 160.4)
    assert [60.4, 0.0] == [pytest.approx(e["disturbance_s"]) for e in under_way.detail["edges"]]
    fresh = judge([second(160, p99_s=0.3)], 100.0, 160.4)
    assert [0.0, 0.6] == [pytest.approx(e["disturbance_s"]) for e in fresh.detail["edges"]]


def test_failures_that_were_due_before_the_edge_are_not_its_doing():
    """A request due before the revert times out after it."""
    found = judge([bad(161, 159.9)], 100.0, 160.4)
    assert 0.0 == found.detail["edges"][1]["disturbance_s"]


def test_the_steady_error_level_is_normal():
    """One failure in a thousand before the fault: one in a thousand after it is no disturbance, twenty are."""
    before = [bad(s, s + 0.5, n=1) for s in range(40, 100)]
    assert 0.0 == judge([*before, bad(101, 101.5, n=1)], 100.0).recovery_s
    assert 1.5 == judge([*before, bad(101, 101.5)], 100.0).recovery_s


def test_requests_that_hang_are_a_disturbance_before_they_time_out():
    """A hung backend shows nothing for 10 s but a pile of requests in flight."""
    hanging = [second(s, in_flight=300 * (s - 99)) for s in range(100, 110)]
    found = judge([*hanging, bad(110, 109.9, n=400)], 100.0)
    assert 10.0 == pytest.approx(found.recovery_s, abs=0.2)


def test_unwell_seconds_are_neither_calm_nor_bad():
    """They do not end a disturbance, nor are they one; when they hide its end, the upper bound says so."""
    unwell = [second(s, failed=500, p99_s=9.0, unwell=True) for s in range(102, 105)]
    found = judge([bad(101, 101.5), *unwell], 100.0)
    assert (101.5, 1.5, 5.0) == (found.recovered_s, found.recovery_s, found.upper_s)
    later = judge([bad(101, 101.5), *unwell, bad(105, 105.5)], 100.0)
    assert (5.5, 5.5) == (later.recovery_s, later.upper_s)


def test_seconds_that_nobody_reported_are_in_doubt_too():
    """A worker that stood still says nothing of them."""
    tracker = RecoveryTracker()
    for s in [*range(101), *range(104, 110)]:
        tracker.add(second(s))
    found = tracker.judge([100.2])
    assert 0.0 == found.recovery_s
    assert pytest.approx(3.8) == found.upper_s


def test_not_recovered_in_time_is_unknown():
    """Seconds past the time limit do not count."""
    odd = [bad(s, s + 0.5) for s in range(100, 140)]
    assert not judge(odd, 100.0, until_s=130.0).settled
    assert judge(odd, 100.0).settled
    assert (None, None) == (
        judge(odd, 100.0, until_s=130.0).recovery_s,
        judge(odd, 100.0, last=120).recovered_s,
    )


def test_the_band_is_made_of_steady_well_seconds():
    """Bounds: twice the median p99, its 99th percentile, or 25 ms; Little's law for what is in flight."""
    band = band_of([second(s, p99_s=0.1, failed=1) for s in range(60)])
    assert (0.001, 0.2, 60) == (band.failed_ratio, band.p99_s, band.seconds)
    assert pytest.approx(201.0) == band.in_flight
    assert Band(0.0, 0.025, math.inf, 0) == band_of([])
    spread = band_of([second(s, p99_s=0.9 if s == 5 else 0.01) for s in range(60)])
    assert 0.9 == spread.p99_s


def test_a_fault_at_the_very_start_has_only_the_fixed_bounds():
    """No steady second before it: 25 ms and no failures."""
    found = judge([bad(0, 0.7)], 0.0)
    assert (0.7, 0) == (found.recovery_s, found.detail["band"]["steady_seconds"])


def test_a_tracker_that_forgot_the_fault_says_so():
    """The ring does not cover the first edge any more."""
    tracker = RecoveryTracker(capacity_s=50)
    for s in range(200):
        tracker.add(second(s))
    assert 199 == tracker.newest
    assert tracker.judge([100.0]).detail["truncated"]
    assert not tracker.judge([180.0]).detail["truncated"]


def test_seconds_come_in_order_and_edges_are_needed():
    """Wrong use is an error, not a wrong answer."""
    tracker = RecoveryTracker()
    assert -1 == tracker.newest
    tracker.add(second(5))
    with pytest.raises(ValueError, match="second 5 came after second 5"):
        tracker.add(second(5))
    with pytest.raises(ValueError, match="no edge"):
        tracker.judge([])
