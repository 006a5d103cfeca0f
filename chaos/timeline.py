"""Turns series ("backend-down every 15 minutes for a minute") into the whole timeline, before anything runs.

Pure: the same series, length and seed give the same timeline. Conflicts are resolved here, by moving a fault to the
nearest free slot, so that at run time nothing has to wait: the rarest series are placed first, each item moves at
most half its period, and what finds no slot is listed with its reason. Nothing begins so late that its recovery
could not be seen before the end.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos.model import FaultRequest, Source

EARLIEST_S = 2.0
"""No fault begins before: traffic needs a moment of steady state to be compared with."""
SETTLE_S = 1.0
"""Traffic's own time to calm after a revert or a transition, added to the gap."""
END_MARGIN_S = 10.0
"""Time kept free before the end of the run after the last revert, so that recovery can be seen."""


@dataclass(frozen=True, slots=True)
class Series:
    """One fault on a period. Times in seconds; ``targets`` in turn; ``first_s`` None: one period after the start."""

    kind: str
    every_s: float
    hold_s: float = 0.0
    targets: Sequence[str] = ()
    first_s: float | None = None
    jitter_s: float = 0.0
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault of the timeline. ``moved_from_s`` is where the period alone would have put it, None if there."""

    request: FaultRequest
    moved_from_s: float | None = None

    @property
    def planned_s(self) -> float:
        """When it begins, in seconds since run start."""
        return self.request.planned_s

    @property
    def end_s(self) -> float:
        """When it is reverted."""
        return self.request.planned_s + self.request.hold_s


@dataclass(frozen=True, slots=True)
class SkippedFault:
    """One that found no slot, and why."""

    request: FaultRequest
    reason: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """All faults of a run, in order of time."""

    planned: tuple[PlannedFault, ...]
    skipped: tuple[SkippedFault, ...]
    length_s: float
    end_margin_s: float
    """No fault is planned to end later than this long before the end of the run."""


def plan_timeline(
    series: Iterable[Series],
    *,
    length_s: float,
    seed: int,
    gap_s: float = 4.0,
    settle_s: float = SETTLE_S,
    end_margin_s: float = END_MARGIN_S,
) -> Timeline:
    """Place every series in a run of ``length_s`` seconds. ``gap_s`` is the arbiter's gap.

    Raises ``ValueError`` for a series whose period is not positive or not longer than its hold.
    """
    ordered = sorted(enumerate(series), key=lambda pair: (-pair[1].every_s, pair[0]))
    slots = _Slots(EARLIEST_S, length_s - end_margin_s)
    planned: list[PlannedFault] = []
    skipped: list[SkippedFault] = []
    for number, one in ordered:
        if not 0 <= one.hold_s < one.every_s:
            raise ValueError(f"{one.kind}: hold {one.hold_s:g} s is not shorter than every {one.every_s:g} s")
        rng = random.Random(f"{seed}/{number}/{one.kind}")
        for due_s, request in _due(one, length_s, rng):
            start_s = slots.take(due_s, one.hold_s, gap_s + settle_s, reach=one.every_s / 2)
            if start_s is None:
                skipped.append(SkippedFault(request, slots.why_not(due_s, one)))
                continue
            moved_from_s = due_s if start_s != due_s else None
            planned.append(PlannedFault(_at(request, start_s), moved_from_s))
    planned.sort(key=lambda p: (p.planned_s, p.request.kind))
    skipped.sort(key=lambda s: (s.request.planned_s, s.request.kind))
    return Timeline(tuple(planned), tuple(skipped), length_s, end_margin_s)


def _due(series: Series, length_s: float, rng: random.Random) -> Iterable[tuple[float, FaultRequest]]:
    """Yield what the period alone would give, jittered, each with its target in turn from a seeded start."""
    turn = rng.randrange(len(series.targets)) if series.targets else 0
    first_s = series.every_s if series.first_s is None else series.first_s
    number = 0
    while (nominal_s := first_s + number * series.every_s) < length_s:
        jitter_s = rng.uniform(-series.jitter_s, series.jitter_s) if series.jitter_s else 0.0
        due_s = round(max(0.0, nominal_s + jitter_s), 3)
        target = series.targets[(turn + number) % len(series.targets)] if series.targets else None
        yield due_s, FaultRequest(series.kind, Source.SCHEDULE, due_s, series.hold_s, target, series.params)
        number += 1


def _at(request: FaultRequest, start_s: float) -> FaultRequest:
    return FaultRequest(request.kind, request.source, start_s, request.hold_s, request.target, request.params)


class _Slots:
    """Intervals that are taken, sorted and disjoint: each is a hold and the quiet time after it."""

    def __init__(self, earliest_s: float, latest_end_s: float) -> None:
        self._earliest_s = earliest_s
        self._latest_end_s = latest_end_s
        self._starts: list[float] = []
        self._ends: list[float] = []

    def take(self, due_s: float, hold_s: float, quiet_s: float, *, reach: float) -> float | None:
        """Take the free slot that is nearest to ``due_s``, at most ``reach`` away; returns its start, or None."""
        length = hold_s + quiet_s
        low = max(self._earliest_s, due_s - reach)
        high = min(self._latest_end_s - hold_s, due_s + reach)
        found = [
            s
            for s in (self._later(due_s, low, high, length), self._sooner(due_s, low, high, length))
            if s is not None
        ]
        if not found:
            return None
        start_s = min(found, key=lambda s: (abs(s - due_s), s))
        at = bisect.bisect(self._starts, start_s)
        self._starts.insert(at, start_s)
        self._ends.insert(at, round(start_s + length, 3))
        return start_s

    def why_not(self, due_s: float, series: Series) -> str:
        """Return why ``take`` found nothing."""
        if self._latest_end_s < series.hold_s:
            return f"too late: the run is too short for its hold of {series.hold_s:g} s and the time after it"
        if due_s + series.hold_s > self._latest_end_s:
            return (
                f"too late: it could not end by {self._latest_end_s:g} s, and moving it half a period "
                f"({series.every_s / 2:g} s) earlier finds no free slot"
            )
        return f"no free slot within half a period ({series.every_s / 2:g} s) of {due_s:g} s"

    def _later(self, due_s: float, low: float, high: float, length: float) -> float | None:
        start = max(due_s, low)
        while start <= high:
            at = self._blocking(start, length)
            if at is None:
                return start
            start = self._ends[at]
        return None

    def _sooner(self, due_s: float, low: float, high: float, length: float) -> float | None:
        start = min(due_s, high)
        while start >= low:
            at = self._blocking(start, length)
            if at is None:
                return round(start, 3)
            # Rounded to the millisecond the place before may overlap still: each step must lead away, or it would never end.
            start = min(round(self._starts[at] - length, 3), round(start - 0.001, 3))
        return None

    def _blocking(self, start: float, length: float) -> int | None:
        """Return the index of an interval that overlaps [start, start + length), or None."""
        at = bisect.bisect_right(self._starts, start) - 1
        if at >= 0 and self._ends[at] > start:
            return at
        if at + 1 < len(self._starts) and self._starts[at + 1] < round(start + length, 3):
            return at + 1
        return None
