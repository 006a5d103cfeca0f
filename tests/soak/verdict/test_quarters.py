"""Latency early against late, without the seconds that are set apart."""

from __future__ import annotations

from soak.model import Unwell
from soak.store import StoreReader
from soak.verdict.quarters import quarters_of
from tests.soak.synthetic import SyntheticRun, histogram


def test_seconds_that_are_set_apart_are_in_neither(tmp_path):
    """At the edge of a quarter, inside it, and beside it."""
    run = SyntheticRun(seconds=40)
    with StoreReader(run.write(tmp_path / "run.db")) as r:
        whole = quarters_of(r, 40.0)
        less = quarters_of(r, 40.0, [(0, 2), (5, 6), (15, 20), (38, 50)])
    assert whole is not None
    assert less is not None
    assert [1000, 1000] == [h.count for h in whole.whole()]
    assert [700, 800] == [h.count for h in less.whole()]
    assert [("get", 700, 800)] == [(name, a.count, b.count) for name, a, b in less.classes()]


def test_a_short_run_has_none(tmp_path):
    """Ten seconds make a quarter."""
    with StoreReader(SyntheticRun(seconds=39).write(tmp_path / "run.db")) as r:
        assert quarters_of(r, 39.0) is None


def test_our_own_illness_late_in_a_run_is_no_drift_of_the_proxy(verdict):
    """It was held against the proxy once."""
    run = SyntheticRun(seconds=400, plan={"objectives": {"drift_after": 300}, "self": {"max_unwell": 0.1}})
    for s in range(350, 354):
        run.changes[s] = {"latency": histogram(100, 900.0)}
    run.unwell = [Unwell(350.0, 354.0, "late")]
    assert "pass" == verdict(run).verdict
