"""When traffic was back to normal after a fault, from traffic alone. Pure: the daemon feeds it live, the report again.

The *steady band* comes from the last steady seconds before the fault: an error ratio at the steady level, and p99
at most twice its steady median, its own 99th percentile, or 25 ms, whichever is largest. Little's law gives a third
bound, so that requests which hang count before they time out: no more in flight than the steady rate times that p99.

An *edge* is an injection or a revert. Its disturbance lasts from the edge to the last request that failed or was slow
before three seconds running lie in the band. A failure is known by its due instant, so that end is exact; of a slow
second only the second is known, so its end counts. Seconds in which soak was unwell, and seconds that nobody reported,
are neither calm nor bad; when they hide where a disturbance ended, ``upper_s`` says how long it may have been.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from soak.measure.facts import SecondFacts

CALM_S = 3
"""So many seconds running must lie in the band."""
STEADY_S = 60
"""How many steady seconds before the fault make the band."""
LEAST_P99_S = 0.025
_P99_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Band:
    """What counts as normal."""

    failed_ratio: float
    p99_s: float
    in_flight: float
    seconds: int
    """How many steady seconds it was made of; 0 means that nothing but the fixed bounds is known."""

    def failing(self, f: SecondFacts) -> bool:
        """Whether more requests failed than at the steady level, rounded up to whole requests."""
        return f.failed > math.ceil(self.failed_ratio * f.done)

    def slow(self, f: SecondFacts) -> bool:
        """Whether requests were slow, or hang."""
        return f.p99_s > self.p99_s or f.in_flight > self.in_flight

    def bad(self, f: SecondFacts) -> bool:
        """Whether the second lies outside the band."""
        return self.failing(f) or self.slow(f)


def band_of(steady: Sequence[SecondFacts]) -> Band:
    """Return the band that these steady seconds make; fixed bounds and no errors when there are none."""
    if not steady:
        return Band(0.0, LEAST_P99_S, math.inf, 0)
    p99s = sorted(f.p99_s for f in steady)
    p99_s = max(2 * statistics.median(p99s), _percentile(p99s, 0.99), LEAST_P99_S)
    flights = sorted(float(f.in_flight) for f in steady)
    done = sum(f.done for f in steady)
    in_flight = max(
        2 * statistics.median(flights), _percentile(flights, 0.99), done / len(steady) * p99_s + 1
    )
    return Band(sum(f.failed for f in steady) / max(done, 1), p99_s, in_flight, len(steady))


def _percentile(ordered: Sequence[float], q: float) -> float:
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


@dataclass(frozen=True, slots=True)
class TrafficRecovery:
    """What traffic showed after the edges of one fault; the same fields as ``chaos.target.Recovery``, and more.

    ``recovered_s`` is the instant from which traffic stayed in the band, None while that is not known;
    ``recovery_s`` is the longest disturbance after an edge; ``upper_s`` is what it may have been at most.
    """

    recovered_s: float | None
    recovery_s: float | None
    upper_s: float | None
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether traffic is known to have recovered."""
        return self.recovered_s is not None


@dataclass(slots=True)
class _Edge:
    """The disturbance after one edge, while it is being found out."""

    at_s: float
    next_s: float
    end_s: float
    calm_s: int | None = None
    """First second of the calm streak."""
    calm: int = 0
    bad_seconds: int = 0
    ongoing: bool = False
    relapses: int = 0
    """Bad seconds after it had settled and before the next edge."""
    settled: bool = False
    doubt: bool = False
    """Unwell or unreported seconds lie between the last bad second and the calm ones."""

    @property
    def until_next(self) -> bool:
        """Whether it went on until the next edge: what ended it is that edge, not the proxy."""
        return self.bad_seconds > 0 and self.calm == 0 and not self.doubt and math.isfinite(self.next_s)

    @property
    def settled_s(self) -> float | None:
        """When the seconds that show it to be over had passed."""
        return float(self.calm_s + CALM_S) if self.settled and self.calm_s is not None else None

    @property
    def upper_s(self) -> float:
        """The longest it may have lasted."""
        if not self.doubt:
            return self.end_s - self.at_s
        calm_s = self.next_s if self.calm_s is None else float(self.calm_s)
        return max(min(calm_s, self.next_s), self.end_s) - self.at_s


class RecoveryTracker:
    """Keeps the last seconds of a run and judges recovery from them.

    ``capacity_s`` must cover the longest fault with its recovery and the steady seconds before it; when seconds after
    the first edge are no longer there, ``detail["truncated"]`` says so.
    """

    def __init__(self, capacity_s: int = 4 * 3600) -> None:
        self._facts: deque[SecondFacts] = deque(maxlen=capacity_s)

    def add(self, facts: SecondFacts) -> None:
        """Take the next second. Raises ``ValueError`` when it is not newer than the last one."""
        if self._facts and facts.second <= self._facts[-1].second:
            raise ValueError(
                f"second {facts.second} came after second {self._facts[-1].second}; seconds must be fed in order"
            )
        self._facts.append(facts)

    @property
    def newest(self) -> int:
        """The newest second; -1 before the first."""
        return self._facts[-1].second if self._facts else -1

    def judge(self, edges_s: Sequence[float], until_s: float = math.inf) -> TrafficRecovery:
        """Judge the recovery after these edges from the seconds so far that end by ``until_s``.

        Not settled yet: ask again after the next second. Raises ``ValueError`` without an edge.
        """
        if not edges_s:
            raise ValueError("recovery has no edge to start from; give the injection and, if any, the revert")
        edges = sorted(edges_s)
        first = math.floor(edges[0])
        before: deque[SecondFacts] = deque(maxlen=STEADY_S)
        after: list[SecondFacts] = []
        for f in self._facts:
            if f.second + 1 <= edges[0]:
                if f.steady and not f.unwell:
                    before.append(f)
            elif f.second + 1 <= until_s:
                after.append(f)
        truncated = len(self._facts) == self._facts.maxlen and self._facts[0].second > first
        return judge_recovery(band_of(before), after, edges, truncated=truncated)


def judge_recovery(
    band: Band, after: Sequence[SecondFacts], edges_s: Sequence[float], *, truncated: bool = False
) -> TrafficRecovery:
    """Judge from the seconds that end after the first edge, in order. See ``RecoveryTracker``."""
    ends = [*edges_s[1:], math.inf]
    edges = [_follow(band, after, at_s, next_s) for at_s, next_s in zip(edges_s, ends, strict=True)]
    detail = {
        "edges": [
            {
                "at_s": e.at_s,
                "disturbance_s": max(e.end_s - e.at_s, 0.0),
                "bad_seconds": e.bad_seconds,
                "relapsed_seconds": e.relapses,
                "settled_s": e.settled_s,
                "until_next": e.until_next,
                "settled": e.settled,
            }
            for e in edges
        ],
        "band": {"failed_ratio": band.failed_ratio, "p99_s": band.p99_s, "steady_seconds": band.seconds},
        "truncated": truncated,
    }
    if not edges[-1].settled:
        return TrafficRecovery(None, None, None, detail)
    longest = max(e.end_s - e.at_s for e in edges)
    return TrafficRecovery(edges[-1].end_s, longest, max(e.upper_s for e in edges), detail)


def _follow(band: Band, after: Sequence[SecondFacts], at_s: float, next_s: float) -> _Edge:
    """Find the disturbance between one edge and the next."""
    edge = _Edge(at_s, next_s, end_s=at_s)
    expected = math.floor(at_s)
    before_bad = False
    for f in after:
        if f.second >= next_s:
            break
        if f.second + 1 <= at_s:
            before_bad = not f.unwell and band.bad(f)
            continue
        if f.unwell or f.second > expected:
            edge.doubt = edge.doubt or edge.calm == 0
        expected = f.second + 1
        if not f.unwell:
            _second(band, edge, f, before_bad=before_bad)
    return edge


def _second(band: Band, edge: _Edge, f: SecondFacts, *, before_bad: bool) -> None:
    due_s = f.last_failure_due_s
    straddles, leaves = f.second < edge.at_s, f.second + 1 > edge.next_s
    failing = band.failing(f) and (due_s is None or edge.at_s <= due_s < edge.next_s)
    # A slow second on the border belongs to the disturbance that was already under way, else to the new edge.
    slow = band.slow(f) and not (straddles and before_bad) and (not leaves or edge.ongoing)
    if not failing and not slow:
        if not straddles and not leaves:
            edge.ongoing = False
            edge.calm_s = f.second if edge.calm == 0 else edge.calm_s
            edge.calm += 1
            edge.settled = edge.settled or edge.calm >= CALM_S
        return
    if edge.settled:
        edge.relapses += 1
        return
    explained = failing and due_s is not None and (not slow or f.failed >= _P99_SHARE * f.done)
    end_s = due_s if explained and due_s is not None else min(f.second + 1.0, edge.next_s)
    edge.end_s = max(edge.end_s, end_s)
    edge.bad_seconds += 1
    edge.calm, edge.calm_s, edge.doubt, edge.ongoing = 0, None, False, True
