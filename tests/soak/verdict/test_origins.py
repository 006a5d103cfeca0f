"""What the origins counted: one request that came twice fails the run, by name."""

from __future__ import annotations

import pytest

from soak.model import Event
from soak.plan import ObjectivesPlan
from soak.verdict.origins import COUNTED, NAMED, OriginFacts
from tests.soak.synthetic import SyntheticRun, record
from tests.soak.verdict.runs import only_missed


def posting(duplicates: int, *events: Event) -> SyntheticRun:
    """A run of 200 posts over two backends, with a backend away from 30 s to 35 s."""
    run = SyntheticRun(seconds=90)
    run.add_fault(record(1, "backend-down", 30.0, recovery_s=0.9, recovered_s=35.4))
    run.origins = {
        "b1": {"requests": 500, "non_idempotent": 100, "duplicates": 0},
        "b2": {"requests": 500, "non_idempotent": 100, "duplicates": duplicates},
    }
    run.events = list(events)
    return run


def named(sent_s: float, origin: str = "b2") -> Event:
    data = {"traffic": "post", "request": "ab.0.2.1f", "origin": origin, "sent_s": sent_s, "count": 1}
    return Event(sent_s + 1.5, 0.0, NAMED, data)


def counted(at_s: float) -> Event:
    return Event(at_s, 0.0, COUNTED, {"name": "b2", "more": 1, "total": 1, "since_s": at_s - 5})


def test_nothing_came_twice(verdict):
    """The objective holds, at 0."""
    v = verdict(posting(0))
    assert "pass" == v.verdict
    assert [(0, 0)] == [(o.value, o.limit) for o in v.objectives if o.name == "duplicates"]


def test_a_request_that_came_twice_fails_the_run_by_name(verdict):
    """Id, class, when it was sent, who got it again, under which fault; the first of them."""
    v = verdict(posting(2, named(31.25), named(40.0), counted(35.0)))
    missed = only_missed(v)
    assert ("fail", "duplicates", 2, 31.25, 1) == (
        v.verdict,
        missed.name,
        missed.value,
        missed.at_s,
        missed.fault,
    )
    assert ("1",) == missed.evidence
    assert (
        "2 of 200 requests that are not idempotent were delivered again (limit 0); first ab.0.2.1f of class post, "
        "sent at 31.2s and came again to b2 under backend-down #1 of b1 at 30.0s" == missed.reason
    )


def test_one_whose_answer_never_came_is_told_by_who_counted_it(verdict):
    """Between two looks; outside every fault there is none to blame."""
    missed = only_missed(verdict(posting(1, counted(20.0))))
    assert (20.0, None, ()) == (missed.at_s, missed.fault, missed.evidence)
    assert missed.reason.endswith("; first at b2, between 15.0s and 20.0s")


def test_without_any_event_the_count_is_enough(verdict):
    """A store whose events were lost still has the last totals."""
    missed = only_missed(verdict(posting(1)))
    assert (None, "1 of 200") == (missed.at_s, missed.reason[:8])


def test_an_answer_may_not_name_its_origin(verdict):
    """The header may have been dropped on the way."""
    assert "sent at 5.0s" in (reason := only_missed(verdict(posting(1, named(5.0, "")))).reason)
    assert "came again" not in reason


def test_a_limit_can_be_allowed(verdict):
    """By the plan, or afterwards."""
    run = posting(2, named(31.25))
    assert "pass" == verdict(run, ObjectivesPlan(duplicates=2)).verdict
    assert "fail" == verdict(run, ObjectivesPlan(duplicates=1)).verdict


@pytest.mark.parametrize(
    ("origins", "why"),
    [
        (None, "nobody asked the backends what they counted"),
        ({"b1": {"requests": 5, "non_idempotent": 0}}, "every request of this run was idempotent"),
    ],
)
def test_what_cannot_be_known_is_not_judged(verdict, origins, why):
    """It neither passes nor fails."""
    run = SyntheticRun(seconds=20)
    run.origins = origins
    v = verdict(run)
    assert ("pass", [why]) == (v.verdict, [n.reason for n in v.not_judged if n.name == "duplicates"])


def test_cache_answers_are_those_of_all_origins_and_kinds():
    """Full ones and revalidations, apart when asked for."""
    facts = OriginFacts(
        {
            "b1": {"cache.etag.full": 1, "cache.etag.not_modified": 2, "requests": 100},
            "b2": {"cache.no-store.full": 4},
        }
    )
    assert (7, 5, 2) == (
        facts.cache_answers(),
        facts.cache_answers("full"),
        facts.cache_answers("not_modified"),
    )
