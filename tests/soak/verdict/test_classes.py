"""Objectives of one class alone: judged by its own limits, and then by nobody else's."""

from __future__ import annotations

import pytest

from soak.model import Outcome
from tests.soak.synthetic import SyntheticRun, record
from tests.soak.verdict.runs import judged, only_missed


def run(**objectives) -> SyntheticRun:
    """A healthy minute of class ``get`` with limits of its own."""
    classes = [{"name": "get", "share": 1, "objectives": objectives}]
    return SyntheticRun(plan={"traffic": {"classes": classes}, "objectives": {"success": 0.5}})


def names(verdict) -> set[str]:
    return {o.name for o in verdict.objectives}


def test_a_class_without_limits_adds_no_objective(tmp_path):
    """Nothing to judge."""
    assert not {n for n in names(judged(run(), tmp_path / "run.db")) if "[" in n}


def test_a_class_that_keeps_its_limits_passes(tmp_path):
    """Each is an objective of its own name."""
    r = run(success=0.9, p99=1.0, steady_failures=0)
    verdict = judged(r, tmp_path / "run.db")
    assert "pass" == verdict.verdict
    assert {"success[get]", "p99[get]", "steady_failures[get]"} <= names(verdict)


def test_a_class_that_misses_its_share_of_success_is_named(tmp_path):
    """With what failed, when, and where to look."""
    r = run(success=0.999, steady_failures=100)
    r.fail(20, Outcome.STATUS_5XX, 30)
    missed = only_missed(judged(r, tmp_path / "run.db"))
    assert "success[get]" == missed.name
    assert "30 status_5xx; first a status_5xx of class get at 20.0s in phase steady" in missed.reason
    assert "steady" == missed.evidence[0]


def test_a_slow_class_is_named_with_its_p99(tmp_path):
    """In milliseconds, beside the limit."""
    missed = only_missed(judged(run(p99=0.0001), tmp_path / "run.db"))
    assert "p99[get]" == missed.name
    assert "the limit is 0.1 ms" in missed.reason


def test_a_class_with_a_limit_of_its_own_counts_no_more_for_the_plans(tmp_path):
    """Its failures in steady state are its own affair: allowed here, they fail nothing."""
    r = run(steady_failures=5)
    r.fail(20, Outcome.CUT_MID_RESPONSE, 5)
    assert "pass" == judged(r, tmp_path / "run.db").verdict


@pytest.mark.parametrize(("allowed", "verdict"), [(3, "pass"), (2, "fail")])
def test_losses_of_a_class_to_a_reload_are_judged_by_its_own_limit(tmp_path, allowed, verdict):
    """The plan's limit of none does not apply to it."""
    r = run(transition_failures=allowed)
    r.add_fault(record(1, "reload", 10.0))
    r.fail(10, Outcome.H2_GOAWAY, 3)
    found = judged(r, tmp_path / "run.db")
    own = next(o for o in found.objectives if o.name == "transition_failures[get]")
    general = next(o for o in found.objectives if o.name == "transition_failures")
    assert (verdict == "pass", True) == (own.ok, general.ok)
    if verdict == "fail":
        assert 1 == own.fault
        assert "3 requests lost of get to reloads and rotations (limit 2)" in own.reason


def test_a_class_that_sent_nothing_is_not_judged(tmp_path):
    """Neither pass nor fail."""
    classes = [
        {"name": "get", "share": 0.5},
        {"name": "idle", "share": 0.5, "objectives": {"success": 0.9, "p99": 1}},
    ]
    verdict = judged(SyntheticRun(plan={"traffic": {"classes": classes}}), tmp_path / "run.db")
    assert {"success[idle]", "p99[idle]"} <= {n.name for n in verdict.not_judged}
