"""Whether connections that clients keep are kept by the proxy, too: one that closes them fails no request and costs handshakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from soak.plan import Plan
from soak.verdict.objectives import NotJudged, Objective, Word

if TYPE_CHECKING:
    from soak.verdict.facts import RunFacts

NAME = "connections_kept"
_MEASURED = "requests on a connection that had carried one before, of classes that keep theirs"
_LEAST_REQUESTS = 1000


def keeping_classes(plan: Plan | None) -> frozenset[str]:
    """Return the classes of a plan that keep their connections."""
    return frozenset(c.name for c in plan.traffic.classes if c.connection == "reuse") if plan else frozenset()


def connections_kept(f: RunFacts) -> Objective | NotJudged:
    """Judge that most requests that could go out on a kept connection did."""
    ended = sum(t.ok for t in f.totals if t.traffic in f.keeping)
    limit = f.objectives.connections_kept
    if ended < _LEAST_REQUESTS:
        return NotJudged(NAME, "too few requests of this run were to go out on kept connections")
    value = min(f.connections.reused / ended, 1.0)
    if value >= limit:
        return Objective(NAME, _MEASURED, value, limit, "share")
    c = f.connections
    reason = (
        f"only {c.reused} of {ended} requests of classes that keep connections went out on a kept one ({value:.1%}, limit {limit:.1%}): "
        f"{c.opened} connections were opened, and the proxy closed {c.closed_by_peer} of them"
    )
    return Objective(NAME, _MEASURED, value, limit, "share", Word.FAIL, reason)


CHECKS = ((NAME, connections_kept),)
