"""What the origins counted themselves: whether anything was delivered twice, and what a cache in the proxy let through.

Neither can be seen from the client's side: a proxy that repeats a request hides it, and a cache's own header proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from soak.model import Event
from soak.plan import Plan
from soak.store import StoreReader
from soak.verdict.objectives import NotJudged, Objective, Word, clock, label

if TYPE_CHECKING:
    from soak.verdict.facts import RunFacts

NAMED = "load.delivered_twice"
"""Event: an answer told that its request had been delivered before."""
COUNTED = "origin.duplicates"
"""Event: an origin's counter of such requests had grown."""
_NAME = "duplicates"
_MEASURED = "requests that are not idempotent and that the backends got more than once"


@dataclass(frozen=True, slots=True)
class OriginFacts:
    """What the origins said, as the store tells it."""

    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By origin, by counter; empty when nobody asked them."""
    cached: frozenset[str] = frozenset()
    """Traffic classes that ask for cacheable objects."""
    named: Event | None = None
    """The first answer that told of a second delivery."""
    counted: Event | None = None
    """The first time at which an origin had counted one."""

    def total(self, counter: str) -> int:
        """Sum a counter over all origins."""
        return sum(counts.get(counter, 0) for counts in self.counts.values())

    def cache_answers(self, how: str = "") -> int:
        """Count answers of the origins for cacheable objects; ``how`` is ``full`` or ``not_modified``, else both."""
        return sum(
            n
            for counts in self.counts.values()
            for counter, n in counts.items()
            if counter.startswith("cache.") and counter.endswith(how)
        )


def origin_facts(reader: StoreReader, plan: Plan | None) -> OriginFacts:
    """Read what is known of the origins."""
    stored: Mapping[str, Any] = reader.meta("origins", {})
    return OriginFacts(
        counts=stored.get("counts", {}),
        cached=frozenset(c.name for c in plan.traffic.classes if c.cache_keys) if plan else frozenset(),
        named=next(reader.events(NAMED), None),
        counted=next(reader.events(COUNTED), None),
    )


def duplicates(f: RunFacts) -> Objective | NotJudged:
    """Judge that no request was delivered twice that a client may not repeat blindly (RFC 9110 section 9.2.2)."""
    origins, limit = f.origins, f.objectives.duplicates
    if not origins.counts:
        return NotJudged(_NAME, "nobody asked the backends what they counted")
    asked = origins.total("non_idempotent")
    if not asked:
        return NotJudged(_NAME, "every request of this run was idempotent")
    n = origins.total("duplicates")
    if n <= limit:
        return Objective(_NAME, _MEASURED, n, limit, "requests")
    words, at_s = _first(origins)
    fault = None
    if at_s is not None:
        ids = f.scope_faults(_scope_at(f, at_s))
        under = [fault for fault in f.faults if fault.id in ids]
        if under:
            fault = under[0].id
            words += f" under {' and '.join(map(label, under))}"
    reason = f"{n} of {asked} requests that are not idempotent were delivered again (limit {limit}){words}"
    evidence = () if fault is None else (str(fault),)
    return Objective(_NAME, _MEASURED, n, limit, "requests", Word.FAIL, reason, at_s, fault, evidence)


def _first(origins: OriginFacts) -> tuple[str, float | None]:
    """Return words for the first one, and when its request was sent, or at the latest when it was counted."""
    if (named := origins.named) is not None:
        data, at_s = named.data, float(named.data["sent_s"])
        to = f" and came again to {data['origin']}" if data.get("origin") else ""
        return f"; first {data['request']} of class {data['traffic']}, sent at {clock(at_s)}{to}", at_s
    if (counted := origins.counted) is not None:
        data = counted.data
        words = (
            f"; first at {data['name']}, between {clock(max(data['since_s'], 0.0))} and {clock(counted.at_s)}"
        )
        return words, counted.at_s
    return "", None


def _scope_at(f: RunFacts, at_s: float) -> int:
    """Return the scope in which a request was sent at this instant."""
    begun = [scope for scope in f.scopes.values() if scope.start_s <= at_s]
    return max(begun, key=lambda scope: scope.id).id if begun else 0


CHECKS = ((_NAME, duplicates),)
