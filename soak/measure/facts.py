"""All traffic of one second in seven numbers: what recovery is judged from, live and offline alike. Pure.

Streaming classes count with what they sent, ended and failed. Their latency is left out, for it tells of a first byte that
came long before the second in which it is booked, and so are their requests in flight, which are many by design.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from soak.measure.histogram import Histogram
from soak.measure.window import WorkerReport
from soak.model import Outcome

_OURS = Outcome.CLIENT_RESOURCE


@dataclass(frozen=True, slots=True)
class SecondFacts:
    """One second, all classes and workers. ``p99_s`` is latency from due of the requests done in the second."""

    second: int
    sent: int
    done: int
    failed: int
    """Requests that did not end as promised, without our own failures (``client_resource``)."""
    p99_s: float
    last_failure_due_s: float | None = None
    in_flight: int = 0
    """Requests in flight at the end of the second, without those of streaming classes."""
    steady: bool = False
    """Whether nothing but phase ``steady`` was going on in this second."""
    unwell: bool = False
    """Whether soak itself was unwell, so that the second says nothing about the proxy."""


def blamed(outcomes: Mapping[Outcome, int]) -> int:
    """Return how many of the outcomes are failures that are not our own."""
    return sum(n for o, n in outcomes.items() if o.is_failure and o is not _OURS)


def facts_of(
    second: int, reports: Iterable[WorkerReport], *, steady: bool = False, unwell: bool = False
) -> SecondFacts:
    """Fold the reports of all workers about one second. The store keeps the same numbers."""
    latency = Histogram()
    sent = done = failed = in_flight = 0
    last: float | None = None
    for report in reports:
        flights: dict[str, int] = {}
        for w in report.windows:
            if not w.streaming:
                latency.merge(w.latency)
                flights[w.traffic] = w.in_flight
            sent += w.sent
            done += sum(w.outcomes.values())
            failed += blamed(w.outcomes)
            if w.last_failure_due_s is not None:
                last = w.last_failure_due_s if last is None else max(last, w.last_failure_due_s)
        in_flight += sum(flights.values())
    return SecondFacts(
        second=second,
        sent=sent,
        done=done,
        failed=failed,
        p99_s=latency.quantile_ns(0.99) / 1e9,
        last_failure_due_s=last,
        in_flight=in_flight,
        steady=steady,
        unwell=unwell,
    )
