"""Check of how long traffic was disturbed by a fault, its revert, a reload or a rotation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from chaos.model import FaultRecord
from soak.verdict.facts import RunFacts, edges_of
from soak.verdict.faulting import Timed, hidden, recovery_hidden, recovery_s, within
from soak.verdict.losses import lost_under
from soak.verdict.objectives import NotJudged, Objective, label


def recovery(f: RunFacts) -> Objective | NotJudged:
    """Judge how long traffic was disturbed by a change, after a backend went, and after it came back."""
    unseen = {fault.id for fault, _ in hidden(f)}
    timed = [found for x in f.faults if x.id not in unseen and (found := _disturbance(f, x)) is not None]
    return within(
        "recovery",
        "longest disturbance of traffic after a fault, its revert, a reload or a rotation",
        f.objectives.recovery_within,
        timed,
        "no fault of this run was seen to its end",
    )


def _disturbance(f: RunFacts, x: FaultRecord) -> Timed | None:
    """Return how long a fault disturbed traffic, or what is known of it; None when nothing is."""
    if not _watched(f, x):
        return None
    took_s, began_s = recovery_s(f, x), x.injected_s or 0.0
    if took_s is not None and took_s > f.objectives.recovery_within:
        return Timed(x, took_s, began_s, f"{label(x)} disturbed traffic for {took_s:.2f} s{lost_under(f, x)}")
    if (cut := _cut_by_its_end(f, x)) is not None:
        return cut
    if took_s is not None:
        return Timed(x, took_s, began_s, "")
    return _unrecovered(f, x)


def _watched(f: RunFacts, x: FaultRecord) -> bool:
    """Whether traffic had an end to recover from. What hides that of a transition is no reason to doubt the run."""
    if x.injected_s is None:
        return False
    return not recovery_hidden(f, x) if f.is_transition(x.kind) else x.reverted_s is not None


def _edges(f: RunFacts, x: FaultRecord) -> Sequence[Mapping[str, Any]]:
    judged = f.recoveries.get(x.id)
    return judged.detail.get("edges", ()) if judged is not None else ()


def _cut_by_its_end(f: RunFacts, x: FaultRecord) -> Timed | None:
    """Tell of a fault that disturbed traffic until its revert: the revert ended that, and not the proxy."""
    for this, then in pairwise(_edges(f, x)):
        held_s = then["at_s"] - this["at_s"]
        if this["until_next"] and held_s >= f.objectives.recovery_within:
            words = f"{label(x)} disturbed traffic as long as it lasted, {held_s:.1f} s{lost_under(f, x)}"
            return Timed(x, held_s, x.injected_s or 0.0, words, at_least=True)
    return None


def _unrecovered(f: RunFacts, x: FaultRecord) -> Timed | None:
    """Tell of a fault from which traffic had not recovered when it was given up, or when the run ended."""
    began_s = x.injected_s or 0.0
    if f.elapsed_s >= _watched_until_s(f, x):
        of = label(x) if f.is_transition(x.kind) else f"the revert of {label(x)}"
        words = f"traffic did not recover within {f.recovery_timeout_s:g} s of {of}{lost_under(f, x)}"
        return Timed(x, f.recovery_timeout_s, began_s, words)
    known_s = max((e["disturbance_s"] for e in _edges(f, x)), default=0.0)
    if known_s <= f.objectives.recovery_within:
        return None
    words = f"{label(x)} had disturbed traffic for {known_s:.2f} s when the run ended{lost_under(f, x)}"
    return Timed(x, known_s, began_s, words, at_least=True)


def _watched_until_s(f: RunFacts, x: FaultRecord) -> float:
    return edges_of(x, transition=f.is_transition(x.kind))[-1] + f.recovery_timeout_s


CHECKS: tuple[tuple[str, Callable[[RunFacts], Objective | NotJudged]], ...] = (("recovery", recovery),)
