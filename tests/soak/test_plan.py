"""The plan's own rules: shares, holds, and what is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from soak.plan import Plan


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


def test_a_wait_as_long_as_the_lag_that_misses_slots_is_refused():
    """Nothing would ever be sent; shorter is spelled exactly."""
    with pytest.raises(ValidationError, match="coalesce is 5ms and max_lag 5ms: every slot would be missed"):
        Plan.model_validate({"traffic": {"coalesce": "5ms", "max_lag": "5ms"}})
    plan = Plan.model_validate({"traffic": {"coalesce": "0.2ms"}})
    assert "0.2ms" == plan.model_dump(mode="json")["traffic"]["coalesce"]
    assert Plan().traffic.coalesce is None
