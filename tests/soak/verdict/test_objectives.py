"""How an objective and an instant are said."""

from __future__ import annotations

import pytest

from soak.verdict import Word
from soak.verdict.objectives import NotJudged, Objective, clock, label
from tests.soak.synthetic import record


@pytest.mark.parametrize(("at_s", "words"), [(41.26, "41.3s"), (725, "12m05s"), (33_600, "9h20m00s")])
def test_instants_are_said_as_people_do(at_s, words):
    """Hours, minutes, seconds."""
    assert words == clock(at_s)


def test_an_objective_says_where_to_look():
    """The first piece of evidence, as the command line takes it."""
    o = Objective("recovery", "m", 11.0, 10.0, "s", Word.FAIL, "too slow", 5.0, 3, ("3", "e7"))
    assert "recovery: too slow (see: soak report --evidence 3)" == o.sentence
    assert {
        "name": "recovery",
        "value": 11.0,
        "limit": 10.0,
        "ok": False,
        "evidence": ["3", "e7"],
    }.items() <= o.to_json().items()
    assert {"name": "x", "reason": "y"} == NotJudged("x", "y").to_json()


def test_a_fault_is_called_by_kind_number_target_and_instant():
    """The proxy is the only one of its kind, so it is not named."""
    assert "reload #1 at 1m00s" == label(record(1, "reload", 60.0))
    assert "backend-down #2 of b1 at 5.0s" == label(record(2, "backend-down", 5.0))
    assert "reload #3 at 7.0s" == label(record(3, "reload", 7.0, injected_s=None))
