"""Backends that are left out are named; those that were away, or need not be used, are not."""

from __future__ import annotations

from typing import Any

import pytest

from soak.model import Sighting, SightKind, SightVia, Unwell
from tests.soak.synthetic import SyntheticRun, record
from tests.soak.verdict.runs import only_missed

ALL = {"name": "get", "share": 1}


def used(
    seconds: int = 300, traffic: dict[str, Any] | None = None, **answers: tuple[int, float]
) -> SyntheticRun:
    """A run whose backends gave so many answers, the last one then."""
    run = SyntheticRun(seconds=seconds, plan={"traffic": {"classes": [traffic or ALL]}})
    run.sightings = [
        Sighting(SightKind.ORIGIN, name, SightVia.TRAFFIC, 0.0, last_s, n)
        for name, (n, last_s) in answers.items()
    ]
    run.origins = {name: {"requests": n} for name, (n, _) in answers.items()}
    return run


def test_a_backend_that_is_never_used_again_is_named_with_its_fault(verdict):
    """It came back, answered once, and was forgotten: nothing failed."""
    run = used(b1=(12_000, 299.9), b2=(3_000, 80.0), b3=(15_000, 299.9))
    run.add_fault(record(1, "backend-down", 60.0, target="b2"))
    missed = only_missed(v := verdict(run))
    assert ("fail", "balance", 1, 80.0) == (v.verdict, missed.name, missed.fault, missed.at_s)
    assert (
        "backend b2 gave 3000 of 30000 answers, 31.1% of its fair share, the last one at 1m20s"
        in missed.reason
    )
    assert (
        "not used for the last 220 s; it was taken away last by backend-down #1 of b2 at 1m00s"
        in missed.reason
    )


def test_a_backend_that_was_never_used_at_all(verdict):
    """The origins know of it, traffic never saw it."""
    run = used(b1=(15_000, 299.9), b2=(15_000, 299.9))
    run.origins = {**(run.origins or {}), "b3": {"requests": 2}}
    missed = only_missed(verdict(run))
    assert "backend b3 gave 0 of 30000 answers, 0.0% of its fair share, none at all" in missed.reason


def test_a_backend_that_gets_next_to_nothing(verdict):
    """Used to the end, with a hundredth of its share."""
    missed = only_missed(verdict(used(b1=(14_000, 299.9), b2=(15_900, 299.9), b3=(100, 299.0))))
    assert "backend b3 gave 100 of 30000 answers, 1.0% of its fair share" == missed.reason


def test_a_backend_that_was_away_has_a_smaller_share(verdict):
    """Half of the run it was not there, and the run ended before it could be used again."""
    run = used(b1=(12_500, 299.9), b2=(5_000, 99.0), b3=(12_500, 299.9))
    run.add_fault(record(1, "backend-down", 100.0, target="b2", reverted_s=290.0))
    assert "pass" == verdict(run).verdict


def test_one_that_could_not_be_seen_is_not_called_idle(verdict):
    """Soak was stopped meanwhile."""
    run = used(b1=(10_000, 299.9), b2=(10_000, 265.0), b3=(10_000, 299.9))
    run.unwell = [Unwell(266.0, 300.0, "stopped")]
    assert not [o for o in verdict(run).objectives if o.name == "balance" and not o.ok]


@pytest.mark.parametrize(
    "traffic",
    [
        {**ALL, "path": "/single/bytes/1024", "tls": False},
        {**ALL, "through": "l4"},
        {**ALL, "protocol": "websocket", "path": "/ws", "request_bytes": 64, "response_bytes": 64},
        {**ALL, "streaming": True, "connection": "new"},
    ],
    ids=["one backend", "pipe", "websocket", "stream"],
)
def test_traffic_that_is_not_spread_request_by_request_is_not_judged(verdict, traffic):
    """It goes where its connection goes, or to one backend by design."""
    v = verdict(used(traffic=traffic, b1=(30_000, 299.9), b2=(10, 5.0)))
    assert ("pass", True) == (v.verdict, "balance" in {n.name for n in v.not_judged})


def test_a_plan_may_have_backends_that_need_not_be_used(verdict):
    """A spare one, before a proxy that somebody else configured."""
    run = used(b1=(30_000, 299.9), b2=(10, 5.0))
    run.plan = {**run.plan, "objectives": {"backend_share": 0}}
    assert "pass" == verdict(run).verdict


def test_few_requests_say_nothing(verdict):
    """A handful may fall anywhere."""
    assert "pass" == verdict(used(b1=(300, 299.9), b2=(3, 299.9))).verdict
