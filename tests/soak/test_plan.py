"""The plan's own rules: durations, shares, holds, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from soak.plan import Plan, format_duration, parse_duration


@pytest.mark.parametrize(
    ("spelled", "seconds"),
    [
        ("15m", 900.0),
        ("1h30m", 5400.0),
        ("250ms", 0.25),
        ("2d", 172_800.0),
        ("90", 90.0),
        (1.5, 1.5),
        ("1.5h", 5400.0),
    ],
)
def test_a_duration_reads_as_people_write_it(spelled, seconds):
    """Units from days to milliseconds, or plain seconds."""
    assert parse_duration(spelled) == seconds


@pytest.mark.parametrize("wrong", ["", "soon", "5 parsecs", "-1s", -1, "inf", "nan", True, None, "1h 2x"])
def test_what_is_no_duration_is_refused_with_its_value(wrong):
    """The message shows the value."""
    with pytest.raises(ValueError, match="duration"):
        parse_duration(wrong)


@given(st.integers(0, 10_000_000_000))
def test_a_duration_survives_its_spelling(ms):
    """Spelled and read again, to the millisecond."""
    assert abs(parse_duration(format_duration(ms / 1000)) - ms / 1000) < 0.0005


@pytest.mark.parametrize(
    ("seconds", "spelled"), [(0, "0s"), (90, "1m30s"), (0.25, "250ms"), (0.0001, "0.0001s")]
)
def test_a_duration_is_spelled_shortly(seconds, spelled):
    """The shortest exact form; below a millisecond, as a fraction of a second."""
    assert format_duration(seconds) == spelled


def test_the_default_plan_is_the_mission():
    """1,000 req/s for a day; shares add up."""
    plan = Plan()
    assert (86_400.0, 1000.0) == (plan.length, plan.rate)
    assert sum(c.share for c in plan.traffic.classes) == pytest.approx(1.0)
    assert [True, True, False] == [c.idempotent for c in plan.traffic.classes]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"traffic": {"classes": [{"name": "a", "share": 0.5}]}}, "add up to 0.5"),
        ({"traffic": {"classes": [{"name": "a", "share": 0.5}, {"name": "a", "share": 0.5}]}}, "used twice"),
        (
            {"chaos": {"series": [{"fault": "backend-down", "every": "5m", "hold": "5m"}]}},
            "is not shorter than",
        ),
        ({"rate": 0}, "greater than 0"),
        ({"surprise": 1}, "Extra inputs"),
        ({"traffic": {"classes": [{"name": "Not A Name", "share": 1}]}}, "pattern"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused(wrong, words):
    """With the value and the rule."""
    with pytest.raises(ValidationError, match=words):
        Plan.model_validate(wrong)
