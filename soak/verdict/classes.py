"""Objectives of single traffic classes: what a plan asks of one shape of requests beside what it asks of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from soak.model import Outcome
from soak.verdict.facts import RunFacts
from soak.verdict.losses import first_of, in_steady, in_transition, lost
from soak.verdict.objectives import Found, NotJudged, Objective, Word


def classes(f: RunFacts) -> list[Found]:
    """Judge each class by the limits that the plan gives to it alone: ``success[h2]``, ``p99[slow]``, ..."""
    found: list[Found] = []
    for name, limits in f.class_limits.items():
        if limits.success is not None:
            found.append(_class_success(f, name, limits.success))
        if limits.p99 is not None:
            found.append(_class_p99(f, name, limits.p99))
        for what, limit, where, inside in (
            ("steady_failures", limits.steady_failures, "in phase steady", in_steady),
            ("transition_failures", limits.transition_failures, "to reloads and rotations", in_transition),
        ):
            if limit is not None:
                found.append(
                    lost(
                        f, f"{what}[{name}]", limit, partial(_of_class, f, name, inside), f"of {name} {where}"
                    )
                )
    return found


def _of_class(
    f: RunFacts, name: str, inside: Callable[[RunFacts, int], bool], traffic: str, scope: int
) -> bool:
    return traffic == name and inside(f, scope)


def _class_success(f: RunFacts, name: str, limit: float) -> Found:
    ok = failed = 0
    worst = Counter[Outcome]()
    for t, good, failures in f.judged():
        if t.traffic == name:
            ok += good
            failed += failures.total() - failures[Outcome.CLIENT_RESOURCE]
            worst += failures
    what = f"success[{name}]"
    if ok + failed == 0:
        return NotJudged(what, f"no request of class {name} ended")
    value, measured = ok / (ok + failed), f"ok / ended of class {name}"
    if value >= limit:
        return Objective(what, measured, value, limit, "share")
    words = ", ".join(f"{n} {o}" for o, n in worst.most_common(3))
    when, at_s, fault, evidence = first_of(f, worst, lambda c, _: c == name)
    reason = f"only {value:.3%} of the requests of class {name} ended as promised; {words}{when}"
    return Objective(what, measured, value, limit, "share", Word.FAIL, reason, at_s, fault, evidence)


def _class_p99(f: RunFacts, name: str, limit_s: float) -> Found:
    what = f"p99[{name}]"
    latency = f.histograms[name][0] if name in f.histograms else None
    if latency is None or not latency.count:
        return NotJudged(what, f"no request of class {name} ended")
    value = latency.quantile_ns(0.99) / 1e9
    measured = f"p99 of latency of class {name}"
    if value <= limit_s:
        return Objective(what, measured, value, limit_s, "s")
    reason = f"p99 of class {name} was {value * 1e3:.1f} ms, the limit is {limit_s * 1e3:g} ms"
    return Objective(what, measured, value, limit_s, "s", Word.FAIL, reason)
