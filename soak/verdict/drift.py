"""Whether something grows: robust slopes with a test of significance, in plain Python. Pure.

The slope is Theil and Sen's median of the slopes of all pairs, so a reload's short bump or a scrape gone wrong does not
move it; Mann and Kendall's test (with their correction for ties) says whether there is a trend at all. A day of vitals
is first folded into medians of equal stretches of time, which also takes away most of the correlation between neighbours.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

POINTS = 240
"""Pairs grow with the square: 240 points make 28,680 slopes."""
SIGNIFICANT = 0.01
"""Least confidence against chance: a trend that would appear in fewer than 1 of 100 runs that have none."""
_LEAST_POINTS = 8
_STEPS = 8
_HOUR_S = 3600.0

Series = Sequence[tuple[float, float]]
"""(instant in seconds, value), in order of time."""


@dataclass(frozen=True, slots=True)
class Trend:
    """The trend of a series. ``first`` and ``last`` are medians of its first and last tenth."""

    first: float
    last: float
    slope_per_h: float
    p_value: float
    """How likely such an order of the values is when there is no trend; 1.0 when there are too few points to say."""
    slope_per_reload: float | None = None
    climbs: bool = True
    """Whether at most one eighth of its time is lower than the one before: true of a leak, hardly of what wanders about.

    The test of significance takes neighbours for strangers, which memory is not. True when there are too few points to say.
    """
    late_per_h: float | None = None
    """Slope of the second half alone; None when that is too short to have one."""

    @property
    def lasting_per_h(self) -> float:
        """The growth that goes on: what only fills up (a heap, a pool, a cache) has a slope, too, but not to the end."""
        return self.slope_per_h if self.late_per_h is None else min(self.slope_per_h, self.late_per_h)

    @property
    def significant(self) -> bool:
        """Whether there is a trend beyond chance."""
        return self.p_value < SIGNIFICANT

    @property
    def grows(self) -> bool:
        """Whether there is a significant trend upwards that goes on."""
        return self.significant and self.climbs and self.lasting_per_h > 0


def trend_of(series: Series, *, reloads_s: Sequence[float] = (), warm_up_s: float = 0.0) -> Trend | None:
    """Return the trend of a series, leaving out its first ``warm_up_s``; None when nothing is left of it.

    ``reloads_s`` are the instants of the reloads, in order; with at least two of them inside the series, the growth
    per reload is told too.
    """
    start = series[0][0] + warm_up_s if series else 0.0
    points = fold([p for p in series if p[0] >= start])
    if not points:
        return None
    values = [v for _, v in points]
    tenth = max(1, len(values) // 10)
    late = points[len(points) // 2 :]
    per_reload = None
    if sum(points[0][0] < r <= points[-1][0] for r in reloads_s) > 1:
        per_reload = theil_sen([(float(bisect_right(reloads_s, t)), v) for t, v in points])
    return Trend(
        first=statistics.median(values[:tenth]),
        last=statistics.median(values[-tenth:]),
        slope_per_h=theil_sen(points) * _HOUR_S,
        p_value=mann_kendall(values),
        slope_per_reload=per_reload,
        climbs=_climbs(values),
        late_per_h=theil_sen(late) * _HOUR_S if len(late) >= _LEAST_POINTS else None,
    )


def _climbs(values: Sequence[float]) -> bool:
    if len(values) < _STEPS * _LEAST_POINTS:
        return True
    at = [len(values) * i // _STEPS for i in range(_STEPS + 1)]
    steps = [statistics.median(values[a:b]) for a, b in pairwise(at)]
    return sum(b < a for a, b in pairwise(steps)) <= 1 and steps[-1] > steps[0]


def fold(series: Series, points: int = POINTS) -> list[tuple[float, float]]:
    """Return at most ``points`` medians over equal stretches of time."""
    if len(series) <= points:
        return list(series)
    start, end = series[0][0], series[-1][0]
    width = (end - start) / points or 1.0
    stretches: dict[int, list[tuple[float, float]]] = {}
    for t, v in series:
        stretches.setdefault(min(int((t - start) / width), points - 1), []).append((t, v))
    return [
        (statistics.median(t for t, _ in part), statistics.median(v for _, v in part))
        for _, part in sorted(stretches.items())
    ]


def theil_sen(points: Series) -> float:
    """Return the median slope of all pairs with different x; 0 when there is none."""
    slopes = [
        (v2 - v1) / (t2 - t1) for i, (t1, v1) in enumerate(points) for t2, v2 in points[i + 1 :] if t2 != t1
    ]
    return statistics.median(slopes) if slopes else 0.0


def mann_kendall(values: Sequence[float]) -> float:
    """Return the two-sided p-value against "no trend" (normal approximation, corrected for ties)."""
    n = len(values)
    if n < _LEAST_POINTS:
        return 1.0
    s = sum((b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1 :])
    ties: dict[float, int] = {}
    for v in values:
        ties[v] = ties.get(v, 0) + 1
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties.values())) / 18
    if variance <= 0 or s == 0:
        return 1.0
    z = (abs(s) - 1) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))
