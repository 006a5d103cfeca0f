"""When a second cannot be used to judge the proxy."""

from __future__ import annotations

import pytest

from soak.measure.wellness import unwell_because
from soak.model import Outcome
from soak.plan import SelfPlan
from tests.soak.windows import report, window


@pytest.mark.parametrize(
    ("what", "given", "reason"),
    [
        ("all slots sent on time", report(0), ""),
        (
            "a few slots missed are noise, counted but not a bad second",
            report(0, window(0, ok=95, missed=5)),
            "",
        ),
        ("more than that is another load", report(0, window(0, ok=94, missed=6)), "6 of 100 slots missed"),
        ("dropped slots are the proxy's doing", report(0, window(0, ok=50, dropped=50)), ""),
        ("late sends", report(0, lag_p99_s=0.06), "send lag p99 60 ms"),
        ("a loop that stood still", report(0, loop_gap_s=0.3), "event loop stood still for 300 ms"),
        (
            "no descriptors left",
            report(0, window(0, outcomes={Outcome.CLIENT_RESOURCE: 3})),
            "3 requests failed for lack of our own resources",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_a_second_is_unwell_for_our_own_trouble_only(what, given, reason):
    """The reason names the value."""
    assert unwell_because([given], SelfPlan()) == reason, what
