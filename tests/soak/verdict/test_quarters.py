"""Latency early against late, without the seconds that are set apart."""

from __future__ import annotations

import pytest

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


def noisy(*bad: range, ms: float = 200.0) -> SyntheticRun:
    """A run in which these seconds are bad."""
    run = SyntheticRun(seconds=1200, plan={"objectives": {"drift_after": 300}})
    for s in (s for seconds in bad for s in seconds):
        run.changes[s] = {"latency": histogram(100, ms)}
    return run


@pytest.mark.parametrize(
    ("bad", "ms", "word"),
    [
        ((range(0, 300, 150), range(900, 1200, 75)), 200.0, "pass"),
        ((range(0, 300, 150), range(900, 1200, 6)), 200.0, "fail"),
        ((range(900, 1200),), 1.3, "fail"),
    ],
    ids=["a little more than one in a hundred", "one in six, out of nothing", "all of them by a third"],
)
def test_bad_seconds_decide_only_when_they_are_far_more(verdict, bad, ms, word):
    """p99 is two hundred times as large in the first case, and nothing has changed."""
    assert word == verdict(noisy(*bad, ms=ms)).verdict


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
