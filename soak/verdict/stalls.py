"""Steady seconds in which requests hung, though none of them failed: a proxy that stands still for two seconds every minute.

Neither failures nor drift show it, and p99 over a whole run has no limit that fits every proxy. A second in which more than one
request of a hundred waited for a second or longer is no noise, unless requests always take that long.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from soak.measure.facts import SecondFacts
from soak.store import StoreReader
from soak.verdict.objectives import NotJudged, Objective, Word, clock

if TYPE_CHECKING:
    from soak.verdict.facts import RunFacts, Stretches

_WARM_UP_S = 5
"""A cold start, with all connections to be made at once, is no steady state."""
LEAST_LATE = 5
"""One request alone may have met a lost packet."""
_USUAL = 3.0
"""A stall takes so many times what is usual for this traffic, whatever the limit."""
_MOST_DECODED = 1000
_EVEN = 0.1
_LEAST_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Steady:
    """What steady seconds were like. ``worst_s`` is the largest p99 of one that was no stall."""

    seconds: int = 0
    limit_s: float = 0.0
    worst_s: float = 0.0
    stalls: Sequence[tuple[int, float]] = ()
    """(second, its p99), in order."""


def steady_of(
    reader: StoreReader,
    stretches: Stretches,
    *,
    until_s: float,
    limit_s: float,
    streaming: Collection[str] = (),
) -> Steady:
    """Look at all steady seconds in which soak was well, and well since the first of their requests was due."""
    calm = [f for f in reader.seconds() if _counts(f, stretches, until_s)]
    if not calm:
        return Steady()
    bar_s = max(limit_s, _USUAL * statistics.median(f.p99_s for f in calm))
    stalls: list[tuple[int, float]] = []
    for f in calm:
        if f.p99_s > bar_s and (
            len(stalls) >= _MOST_DECODED or _late(reader, f.second, bar_s, streaming) >= LEAST_LATE
        ):
            stalls.append((f.second, f.p99_s))
    stalled = {second for second, _ in stalls}
    worst_s = max((f.p99_s for f in calm if f.second not in stalled), default=0.0)
    return Steady(len(calm), bar_s, worst_s, stalls)


def _counts(f: SecondFacts, stretches: Stretches, until_s: float) -> bool:
    if not f.steady or not f.done or f.second < _WARM_UP_S or f.second + 1 > until_s:
        return False
    return stretches.overlap_s(f.second - f.p99_s - 1.0, f.second + 1.0) == 0


def _late(reader: StoreReader, second: int, bar_s: float, streaming: Collection[str]) -> int:
    late = 0
    for w in reader.windows(second, second + 1):
        if w.traffic not in streaming:
            latency = w.latency
            late += latency.count - latency.count_at_most(int(bar_s * 1e9))
    return late


def steady_p99(f: RunFacts) -> Objective | NotJudged:
    """Judge that nothing hangs while nothing is going on."""
    name, steady = "steady_p99", f.steady
    if not steady.seconds:
        return NotJudged(name, "no second of this run was steady")
    measured = f"largest p99 of one second in phase steady, at least {LEAST_LATE} requests in it"
    if not steady.stalls:
        value = min(steady.worst_s, steady.limit_s)
        return Objective(name, measured, value, steady.limit_s, "s")
    second, worst_s = max(steady.stalls, key=lambda s: s[1])
    first = steady.stalls[0][0]
    reason = (
        f"requests hung in {len(steady.stalls)} of {steady.seconds} steady seconds: p99 was above {steady.limit_s:.3g} s, "
        f"first at {clock(first)}{_rhythm(steady.stalls)}, worst {worst_s:.2f} s at {clock(second)}"
    )
    return Objective(name, measured, worst_s, steady.limit_s, "s", Word.FAIL, reason, float(first))


def _rhythm(stalls: Sequence[tuple[int, float]]) -> str:
    """Tell a period when the stalls have one: it says where to look."""
    starts = [s for i, (s, _) in enumerate(stalls) if i == 0 or s - stalls[i - 1][0] > 1]
    gaps = [b - a for a, b in pairwise(starts)]
    if len(gaps) < _LEAST_REPEATS:
        return ""
    usual = statistics.median(gaps)
    even = all(abs(gap - usual) <= max(1.0, _EVEN * usual) for gap in gaps)
    return f" and again about every {usual:g} s" if even else ""


CHECKS = (("steady_p99", steady_p99),)
