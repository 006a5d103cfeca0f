"""How long each part of a run may take, from the plan: faults, the end of what is in flight, the run as a whole. Pure."""

from __future__ import annotations

from chaos.lifecycle import Limits
from soak.load.traffic import STREAM_TIMEOUT_S
from soak.plan import Plan

LEAD_S = 0.3
"""Time for the slices to reach the load workers before the first slot is due."""
_DRAIN_MARGIN_S = 5.0
_GUARDIAN_MARGIN_S = 600.0
_LEAST_REMEMBERED_S = 1200
_AROUND_A_FAULT_S = 600
_ONES_SILENCE_S = 1.0
_ANSWERS_MISSED = 10
_AGE_JITTER = 1.2
"""A connection is retired at its ``max_age``, 20 % sooner or later."""


def fault_limits(plan: Plan) -> Limits:
    """Return how long a fault may wait, take effect, and be recovered from."""
    return Limits(
        effect_timeout_s=plan.objectives.effect_within,
        recovery_timeout_s=plan.chaos.recovery_timeout,
        max_defer_s=plan.chaos.max_defer,
    )


def drain_s(plan: Plan) -> float:
    """Return how long the end of what is in flight may take; an answer that is long by design may take long."""
    traffic = plan.traffic
    long_s = STREAM_TIMEOUT_S if any(c.streaming for c in traffic.classes) else 0.0
    first_byte_s = traffic.connect_timeout + traffic.tls_timeout + traffic.response_timeout
    return first_byte_s + long_s + _DRAIN_MARGIN_S


def longest_s(plan: Plan) -> float:
    """Return after how many seconds a run must be over whatever happens: the guardian's deadline."""
    starting_s = LEAD_S + plan.lab.start_timeout * (plan.lab.backends + 2)
    return starting_s + plan.length + drain_s(plan) + _GUARDIAN_MARGIN_S


def remembered_s(plan: Plan) -> int:
    """Return how many seconds of traffic are kept for judging recovery: the longest fault and what lies around it.

    At least 20 minutes, for faults that are injected by hand; of a longer one, recovery is judged from what is still there.
    """
    longest_hold_s = max((series.hold for series in plan.chaos.series), default=0.0)
    return max(_LEAST_REMEMBERED_S, int(longest_hold_s) + _AROUND_A_FAULT_S)


def silence_s(plan: Plan) -> float:
    """Return how long a backend must be missing from the answers to count as gone: ten of its turns, at least a second."""
    return max(_ONES_SILENCE_S, _ANSWERS_MISSED * plan.lab.backends / plan.rate)


def drained_s(plan: Plan) -> float:
    """Return how long an old worker of the proxy may live: its drain time, and that of the connections which clients keep."""
    return plan.objectives.drain_within + _AGE_JITTER * plan.traffic.max_age
