"""Requests that the proxy lost, by class and scope: how many, which kind, where the first one was. Used by the checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from chaos.model import FaultRecord
from soak.model import Outcome, Phase
from soak.verdict.objectives import Objective, Word, clock, label

if TYPE_CHECKING:
    from soak.verdict.facts import RunFacts

_AFTER_S = 60.0
"""What fails so soon after a fault may still come from it: an old worker that is ended, a connection that was opened then."""
Wanted = Callable[[str, int], bool]
"""Whether a class and a scope count."""


def lost(f: RunFacts, name: str, limit: int, wanted: Wanted, where: str) -> Objective:
    """Judge the proxy's failures in some classes and scopes, those with budgets of their own apart."""
    found = Counter[Outcome]()
    for t, _, failures in f.judged():
        if wanted(t.traffic, t.scope):
            found += Counter({o: n for o, n in failures.items() if o.is_proxy_failure})
    n = found.total()
    if n <= limit:
        return Objective(name, f"requests lost {where}", n, limit, "requests")
    words = ", ".join(f"{k} {o}" for o, k in found.most_common(3))
    when, at_s, fault, evidence = first_of(f, found, wanted)
    reason = f"{n} requests lost {where} (limit {limit}): {words}{when}"
    return Objective(
        name,
        f"requests lost {where}",
        n,
        limit,
        "requests",
        Word.FAIL,
        reason,
        at_s,
        fault,
        evidence,
    )


def lost_under(f: RunFacts, fault: FaultRecord) -> str:
    """Say what was lost while a fault was going on, for that is what an engineer looks for first."""
    found = Counter[Outcome]()
    for (_, scope), failures in f.failures.items():
        if fault.id in f.scope_faults(scope):
            found += Counter({o: n for o, n in failures.items() if o.is_proxy_failure})
    if not found:
        return ", and lost no request"
    return ", and lost " + ", ".join(f"{n} {o}" for o, n in found.most_common(3))


def in_steady(f: RunFacts, scope: int) -> bool:
    """Whether nothing was going on in a scope."""
    return f.phase(scope) is Phase.STEADY


def in_transition(f: RunFacts, scope: int) -> bool:
    """Whether reloads and rotations alone explain a scope. One that a disturbance shares is explained by that."""
    kinds = {fault.id: fault.kind for fault in f.faults}
    ids = f.scope_faults(scope)
    return bool(ids) and all(f.is_transition(kinds.get(i, "")) for i in ids)


def first_of(
    f: RunFacts, outcomes: Iterable[Outcome], wanted: Wanted = lambda _class, _scope: True
) -> tuple[str, float | None, int | None, tuple[str, ...]]:
    """Return words for when and where the first of these failures was, its instant, fault, and evidence."""
    kinds = set(outcomes)
    found = [
        (w.second, scope, o, w) for (c, scope, o), w in f.firsts.items() if o in kinds and wanted(c, scope)
    ]
    if not found:
        return "", None, None, ()
    second, scope, outcome, first = min(found, key=lambda x: x[:3])
    by_id = {fault.id: fault for fault in f.faults}
    ids = [i for i in f.scope_faults(scope) if i in by_id]
    under = f" under {' and '.join(label(by_id[i]) for i in ids)}" if ids else _beside(f, scope, second)
    words = f"; first a {outcome} of class {first.traffic} at {clock(second)}{under}"
    look = [str(ids[0])] if ids else ["steady"]
    if first.evidence is not None:
        look.append(f"e{first.evidence}")
    return words, float(second), ids[0] if ids else None, tuple(look)


def _beside(f: RunFacts, scope: int, second: int) -> str:
    """Return words for what was under way: nothing, and what began last before."""
    began = [x for x in f.faults if x.injected_s is not None and x.injected_s <= second + 1]
    last = max(began, key=lambda x: x.injected_s or 0.0, default=None)
    words = f" in phase {f.phase(scope)}"
    if last is None or (ago_s := second - (last.injected_s or 0.0)) > _AFTER_S:
        return words
    return f"{words}, {max(ago_s, 0.0):.0f} s after {label(last)}"
