"""How long the parts of a run may take."""

from __future__ import annotations

from typing import Any

import pytest

from soak.bounds import drain_s, drained_s, fault_limits, longest_s, remembered_s, silence_s
from soak.plan import Plan


def plan(**fields: Any) -> Plan:
    return Plan.model_validate(fields)


def test_a_fault_may_take_what_the_plan_says():
    """Effect, recovery, waiting: each from its own field."""
    limits = fault_limits(
        plan(objectives={"effect_within": "3s"}, chaos={"recovery_timeout": "20s", "max_defer": "50s"})
    )
    assert (3.0, 20.0, 50.0) == (limits.effect_timeout_s, limits.recovery_timeout_s, limits.max_defer_s)


def test_the_drain_waits_for_the_slowest_first_byte():
    """5 s to connect, 5 s for TLS, 10 s for the answer, and a margin."""
    assert 25.0 == drain_s(plan())


def test_the_drain_waits_longer_for_an_answer_that_is_long_by_design():
    """A download dribbled over 30 s is in flight for at least that."""
    streaming = plan(traffic={"classes": [{"shape": "stream", "share": 1}]})
    assert drain_s(streaming) > drain_s(plan()) + 30


def test_the_deadline_lies_after_the_end_of_the_run():
    """A guardian that fires early would end a healthy run."""
    long = plan(length="24h", lab={"backends": 3, "start_timeout": "15s"})
    assert longest_s(long) > 24 * 3600 + 5 * 15 + drain_s(long)


@pytest.mark.parametrize(("rate", "backends", "expected"), [(1000, 3, 1.0), (2, 4, 20.0)])
def test_a_backend_counts_as_silent_after_ten_of_its_turns(rate, backends, expected):
    """At a low rate a pause between answers proves nothing yet."""
    assert expected == silence_s(plan(rate=rate, lab={"backends": backends}))


@pytest.mark.parametrize(("hold", "expected"), [("60s", 1200), ("30m", 2400)])
def test_traffic_is_remembered_for_the_longest_fault(hold, expected):
    """Its steady minute before, its hold, its recovery."""
    series = [{"fault": "backend-down", "every": "1h", "hold": hold}]
    assert expected == remembered_s(plan(chaos={"series": series}))


def test_an_old_worker_may_drain_and_keep_what_clients_keep():
    """30 s by the objective, and connections of a minute, which live up to 20 % longer."""
    assert pytest.approx(102.0) == drained_s(plan(traffic={"max_age": "60s"}))
