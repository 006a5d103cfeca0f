"""Whether the proxy uses all of its backends, each for as long as it was there: by the names on answers.

A backend that is forgotten after it came back, or that gets next to nothing, fails no request, so nothing else shows it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from chaos.model import FaultRecord
from soak.model import SightKind, SightVia
from soak.plan import Plan, TrafficClassPlan
from soak.verdict.objectives import NotJudged, Objective, Word, clock, label

if TYPE_CHECKING:
    from soak.verdict.facts import RunFacts

NAME = "balance"
_MEASURED = "least part of its fair share of answers that a backend gave, while it was there"
_LEAST_ANSWERS = 200
"""For each backend: fewer say nothing about shares."""
_ONE_BACKEND = "/single/"


def balanced_classes(plan: Plan | None) -> frozenset[str]:
    """Return the classes of a plan whose requests go to all backends in turn, one by one."""
    return frozenset(c.name for c in plan.traffic.classes if _balanced(c)) if plan else frozenset()


def _balanced(c: TrafficClassPlan) -> bool:
    """Tell whether requests, and not connections or cached objects, are spread over the backends."""
    spread = c.through == "http" and c.protocol != "websocket" and not c.streaming and not c.cache_keys
    return spread and not c.path.startswith(_ONE_BACKEND)


def balance(f: RunFacts) -> Objective | NotJudged:
    """Judge that no backend is left out, for good or nearly."""
    answers, last_s = Counter[str](), dict[str, float]()
    for s in f.sightings:
        if s.kind is SightKind.ORIGIN and s.via is SightVia.TRAFFIC:
            answers[s.value] += s.count
            last_s[s.value] = max(last_s.get(s.value, 0.0), s.last_s)
    names = sorted({*answers, *f.origins.counts})
    spread = sum(t.ok for t in f.totals if t.traffic in f.balanced)
    total = min(spread, answers.total())
    limit = f.objectives.backend_share
    if len(names) < 2 or limit <= 0:
        return NotJudged(NAME, "there is one backend" if limit else "the plan asks for none")
    if total < _LEAST_ANSWERS * len(names) or total < answers.total() / 2:
        return NotJudged(NAME, "too few requests of this run are spread over the backends one by one")
    there = {name: max(f.elapsed_s - _away_s(f, name), 0.0) for name in names}
    whole_s = sum(there.values())
    parts = {
        name: answers[name] / (total * there[name] / whole_s) for name in names if there[name] > 0 < whole_s
    }
    if not parts:
        return NotJudged(NAME, "no backend was there")
    forgotten = {name: idle_s for name in parts if (idle_s := _idle_s(f, name, last_s.get(name))) > 0}
    name = max(forgotten, key=lambda n: forgotten[n]) if forgotten else min(parts, key=lambda n: parts[n])
    if not forgotten and parts[name] >= limit:
        return Objective(NAME, _MEASURED, parts[name], limit, "share")
    words = f"backend {name} gave {answers[name]} of {answers.total()} answers, {parts[name]:.1%} of its fair share"
    at_s = None
    fault = _last_fault(f, name)
    if forgotten:
        at_s = last_s.get(name, 0.0)
        seen = f"the last one at {clock(at_s)}" if name in last_s else "none at all"
        words += f", {seen}: it was not used for the last {forgotten[name]:.0f} s"
    after = "" if fault is None else f"; it was taken away last by {label(fault)}"
    evidence = () if fault is None else (str(fault.id),)
    return Objective(
        *(NAME, _MEASURED, 0.0 if forgotten else parts[name], limit, "share", Word.FAIL, words + after, at_s),
        fault=None if fault is None else fault.id,
        evidence=evidence,
    )


def _spans(f: RunFacts, name: str) -> list[tuple[float, float]]:
    """Return from when to when faults kept a backend away, with the time that it may take to be used again."""
    found = []
    for x in f.faults:
        if x.target == name and not f.is_transition(x.kind) and x.injected_s is not None:
            end_s = f.elapsed_s if x.reverted_s is None else x.reverted_s + f.objectives.effect_within
            found.append((x.injected_s, min(end_s, f.elapsed_s)))
    return found


def _away_s(f: RunFacts, name: str) -> float:
    return sum(max(0.0, b - a) for a, b in _spans(f, name))


def _idle_s(f: RunFacts, name: str, last_s: float | None) -> float:
    """Return for how long a backend had not been used at the end although it was there, when that is too long; else 0."""
    since_s = max([last_s or 0.0, *(b for _, b in _spans(f, name))])
    idle_s = f.elapsed_s - since_s - f.stretches.overlap_s(since_s, f.elapsed_s)
    return idle_s if idle_s > f.objectives.drain_within else 0.0


def _last_fault(f: RunFacts, name: str) -> FaultRecord | None:
    mine = [x for x in f.faults if x.target == name and x.injected_s is not None]
    return max(mine, key=lambda x: x.injected_s or 0.0, default=None)


CHECKS = ((NAME, balance),)
