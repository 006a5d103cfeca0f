"""Whether old workers of the proxy end after a reload: judged by the census from the first minutes on, not by a slope.

A worker that outlives its drain time keeps memory, files and a configuration that nobody wants any more. It may finish the
connections it has, and clients keep theirs for a while, so its time is both together. Where reloads come faster than that there are
always some; then they must not be more than these reloads explain.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from soak.model import Vital
from soak.verdict.objectives import NotJudged, Objective, Word, clock, label

if TYPE_CHECKING:
    from chaos.model import FaultRecord
    from soak.verdict.facts import RunFacts

NAME = "old_workers_gone"
_MEASURED = "old workers of the proxy that should have ended"
_OTHER = "other"


def old_workers_gone(f: RunFacts) -> Objective | NotJudged:
    """Judge that workers of earlier configurations are gone once their drain time and that of clients' connections are over."""
    changes = _Changes.of(x for x in f.faults if f.is_transition(x.kind))
    seen = [v for v in f.vitals if v.processes and not f.stretches.covers(int(v.at_s))]
    if not changes.instants:
        return NotJudged(NAME, "no reload or rotation in this run")
    if not any(set(v.detail.get("roles") or ()) - {_OTHER} or v.old_processes for v in seen):
        return NotJudged(NAME, "nobody can tell the old workers of this proxy from its new ones")
    worst: tuple[int, Vital, str] | None = None
    each = statistics.median(v.processes - v.old_processes for v in seen)
    limit_s = f.objectives.drain_within + f.connection_age_s
    since_s = 0.0  # of the looks that saw some without a break: who else reloads a proxy is not ours to know
    for v in seen:
        since_s = since_s if v.old_processes else v.at_s
        left, words = _left(v, changes, each, limit_s, since_s)
        if left and (worst is None or left >= worst[0]):
            worst = (left, v, words)
    if worst is None:
        return Objective(NAME, _MEASURED, 0, 0, "processes")
    left, v, words = worst
    fault = changes.last(v.at_s)[1].id
    return Objective(
        NAME, _MEASURED, left, 0, "processes", Word.FAIL, words, v.at_s, fault, evidence=(str(fault),)
    )


@dataclass(frozen=True, slots=True)
class _Changes:
    """When transitions asked for new workers: applied, in effect, taken back. A day has hundreds, and thousands of looks."""

    instants: list[tuple[float, FaultRecord]]
    began_s: list[float]
    over_s: list[float]

    @classmethod
    def of(cls, transitions: Iterable[FaultRecord]) -> _Changes:
        by_fault = {
            x.id: ([t for t in (x.injected_s, x.active_s, x.reverted_s) if t is not None], x)
            for x in transitions
            if x.injected_s is not None
        }
        return cls(
            sorted(((t, x) for times, x in by_fault.values() for t in times), key=lambda change: change[0]),
            sorted(min(times) for times, _ in by_fault.values()),
            sorted(max(times) for times, _ in by_fault.values()),
        )

    def last(self, at_s: float) -> tuple[float, FaultRecord]:
        """Return the last instant until then, and whose it was; there must be one."""
        return self.instants[bisect_right(self.instants, at_s, key=lambda change: change[0]) - 1]

    def lately(self, at_s: float, within_s: float) -> int:
        """Count those that were under way at some time between ``at_s - within_s`` and ``at_s``."""
        return bisect_right(self.began_s, at_s) - bisect_right(self.over_s, at_s - within_s)


def _left(v: Vital, changes: _Changes, each: float, limit_s: float, since_s: float) -> tuple[int, str]:
    """Return how many old workers one look shows too many, and what to say of them."""
    if not v.old_processes or v.at_s < changes.began_s[0]:
        return 0, ""
    asked_s, last = changes.last(v.at_s)
    if (age_s := v.at_s - max(asked_s, since_s)) > limit_s:
        words = f"{v.old_processes} old workers still lived {age_s:.0f} s after {label(last)} (limit {limit_s:g} s)"
        return v.old_processes, words
    # One more than began within the drain time: a look may come just as it ends.
    lately = changes.lately(v.at_s, limit_s)
    left = v.old_processes - int(each * (lately + 1))
    if left <= 0:
        return 0, ""
    words = (
        f"{v.old_processes} old workers lived at {clock(v.at_s)}, of {each:g} processes that serve; only {lately} reloads "
        f"and rotations came in the last {limit_s:g} s, so they pile up"
    )
    return left, words


CHECKS = ((NAME, old_workers_gone),)
