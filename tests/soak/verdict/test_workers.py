"""Old workers that stay are found in minutes, by count; workers that drain are not held against a proxy that reloads often."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from soak.model import Unwell, Vital
from tests.soak.synthetic import SyntheticRun, record
from tests.soak.verdict.runs import only_missed

ROLES = {"pid": 7, "roles": {"master": 1, "worker": 2}}


def reloaded(
    every_s: float, old: Callable[[float], int], *, seconds: int = 300, last_s: float = 1e9
) -> SyntheticRun:
    run, at_s, fault = SyntheticRun(seconds=seconds), every_s, 1
    while at_s < min(seconds, last_s):
        run.add_fault(record(fault, "reload", at_s))
        at_s, fault = at_s + every_s, fault + 1
    for t in range(0, seconds, 5):
        n = old(t)
        run.vitals.append(Vital(float(t), "proxy", 10**8, t / 10, 50, 3 + n, n, ROLES))
    return run


def test_one_worker_that_never_ends_is_named_with_its_reload(verdict):
    """Long before a slope could be judged."""
    missed = only_missed(v := verdict(reloaded(40, lambda t: int(t > 40), last_s=50)))
    assert ("fail", "old_workers_gone", 1, 1.0) == (v.verdict, missed.name, missed.fault, missed.value)
    assert "1 old workers still lived 255 s after reload #1 at 40.0s (limit 102 s)" == missed.reason


def test_workers_that_pile_up_under_quick_reloads_are_found(verdict):
    """There is never a quiet moment, yet two more a reload are too many."""
    missed = only_missed(verdict(reloaded(20, lambda t: 2 * int(t // 20), seconds=600)))
    assert "old_workers_gone" == missed.name
    assert "of 3 processes that serve; only" in missed.reason
    assert missed.reason.endswith("so they pile up")


def test_workers_that_drain_for_ten_seconds_are_well(verdict):
    """A reload every eight seconds: there are always some, of two generations."""
    assert "pass" == verdict(reloaded(8, lambda t: 4 if 8 < t < 290 else 0, last_s=280)).verdict


@pytest.mark.parametrize(("max_age", "word"), [("60s", "pass"), ("20s", "fail")])
def test_a_worker_may_live_as_long_as_connections_of_clients(verdict, max_age, word):
    """hitch keeps its old workers until clients leave, and these leave after a minute or so by their own plan."""
    run = reloaded(150, lambda t: int(150 <= t < 225))
    run.plan = {"traffic": {"max_age": max_age}}
    assert word == verdict(run).verdict


def test_a_reload_that_somebody_else_asked_for_is_no_leak(verdict):
    """By an operator, or by whatever rotates logs: its old workers are no older than the first look that saw them."""
    assert "pass" == verdict(reloaded(40, lambda t: int(200 <= t < 225), last_s=50)).verdict


def test_a_reload_that_is_under_way_is_no_old_one(verdict):
    """Between its application and its effect new workers are there and old ones not gone."""
    run = reloaded(50, lambda t: int(200 <= t < 300), last_s=60)
    run.add_fault(record(9, "reload", 199.0, active_s=208.0), until_s=211.0)
    v = verdict(run)
    assert ("pass", 0) == (v.verdict, next(o.value for o in v.objectives if o.name == "old_workers_gone"))


@pytest.mark.parametrize("how", ["no roles", "no reloads", "unwell"])
def test_what_cannot_be_known_is_not_claimed(verdict, how):
    """A proxy whose processes look alike; a run without reloads; looks in seconds that are set apart."""
    run = reloaded(40, lambda t: int(t > 40), last_s=50)
    if how == "no roles":
        run.vitals = [
            Vital(float(t), "proxy", 10**8, 0, 50, 3, 0, {"roles": {"other": 3}}) for t in range(0, 300, 5)
        ]
    elif how == "no reloads":
        run.faults = []
    else:
        run.unwell = [Unwell(41.0, 300.0, "stopped")]
    v = verdict(run)
    assert not [o for o in v.objectives if o.name == "old_workers_gone" and not o.ok]
    if how != "unwell":
        assert "old_workers_gone" in {n.name for n in v.not_judged}
