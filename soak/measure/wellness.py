"""Whether soak itself was well in a second, from the workers' own reports. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from soak.measure.window import WorkerReport
from soak.model import Outcome
from soak.plan import SelfPlan

_MISSED_SHARE = 0.05
"""A second that missed more than this share of its slots held another load than the plan's."""


def unwell_because(reports: Sequence[WorkerReport], limits: SelfPlan) -> str:
    """Return why the proxy cannot be judged by this second; empty when it can."""
    reasons: list[str] = []
    missed = sum(w.missed for r in reports for w in r.windows)
    scheduled = sum(w.scheduled for r in reports for w in r.windows)
    if missed > _MISSED_SHARE * scheduled:
        reasons.append(f"{missed} of {scheduled} slots missed")
    lag_s = max((r.stats.lag_p99_s for r in reports), default=0.0)
    if lag_s > limits.max_lag_p99:
        reasons.append(f"send lag p99 {lag_s * 1e3:.0f} ms")
    gap_s = max((r.stats.loop_gap_s for r in reports), default=0.0)
    if gap_s > limits.max_loop_gap:
        reasons.append(f"event loop stood still for {gap_s * 1e3:.0f} ms")
    ours = sum(w.outcomes.get(Outcome.CLIENT_RESOURCE, 0) for r in reports for w in r.windows)
    if ours:
        reasons.append(f"{ours} requests failed for lack of our own resources")
    return ", ".join(reasons)
