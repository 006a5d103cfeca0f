"""Connections that clients keep and the proxy closes are named; classes that keep none, and short runs, are not judged."""

from __future__ import annotations

import pytest

from tests.soak.synthetic import SyntheticRun
from tests.soak.verdict.runs import only_missed

KEPT = {"name": "get", "share": 1}


def of(traffic: dict[str, object], reused: int, *, seconds: int = 60) -> SyntheticRun:
    """A run whose requests went out on a kept connection so often in each second, of a hundred."""
    run = SyntheticRun(seconds=seconds, plan={"traffic": {"classes": [traffic]}})
    run.reused = reused
    return run


def test_a_proxy_that_closes_every_connection_is_named(verdict):
    """Each answer says close, and nothing fails."""
    missed = only_missed(v := verdict(of(KEPT, 0)))
    assert ("fail", "connections_kept", 0.0) == (v.verdict, missed.name, missed.value)
    assert (
        "only 0 of 6000 requests of classes that keep connections went out on a kept one (0.0%, limit 90.0%)"
        in missed.reason
    )
    assert "300 connections were opened, and the proxy closed 120 of them" in missed.reason


def test_one_that_keeps_them_is_well(verdict):
    """But for those that end by age."""
    v = verdict(of(KEPT, 95))
    assert ("pass", 0.95) == (v.verdict, next(o.value for o in v.objectives if o.name == "connections_kept"))


@pytest.mark.parametrize(
    ("traffic", "seconds"),
    [({**KEPT, "connection": "new"}, 60), (KEPT, 9)],
    ids=["none are kept", "few requests"],
)
def test_what_says_nothing_is_not_judged(verdict, traffic, seconds):
    """Classes that open a connection for each request; a handful of requests."""
    v = verdict(of(traffic, 0, seconds=seconds))
    assert ("pass", True) == (v.verdict, "connections_kept" in {n.name for n in v.not_judged})


def test_a_plan_may_have_a_proxy_that_keeps_none(verdict):
    """By its own wish."""
    run = of(KEPT, 0)
    run.plan = {**run.plan, "objectives": {"connections_kept": 0}}
    assert "pass" == verdict(run).verdict
