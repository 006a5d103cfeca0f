"""What failed after traffic had recovered from a fault, while the fault still went on: a proxy that tries a dead backend again and again.

The time to recover does not show it, for it had recovered; phase ``steady`` does not, for the fault goes on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.model import FaultRecord
from soak.model import Scope
from soak.store import StoreReader
from soak.verdict.losses import lost_under
from soak.verdict.objectives import NotJudged, Objective, Word, clock, label
from soak.verdict.recovery import TrafficRecovery

if TYPE_CHECKING:
    from soak.verdict.facts import RunFacts, Stretches

_LEAST_FAILURES = 5
"""Of one kind of fault: fewer are the price of finding out whether a backend is back."""


@dataclass(frozen=True, slots=True)
class Late:
    """Requests of one fault from its recovery to its revert, in whole seconds."""

    from_s: float
    seconds: int
    ended: int
    failed: int
    """As the proxy's failures are counted: ``stale_reuse`` and ``tls_not_resumed`` apart."""


def late_of(
    reader: StoreReader,
    faults: Iterable[FaultRecord],
    recoveries: Mapping[int, TrafficRecovery],
    scopes: Mapping[int, Scope],
    stretches: Stretches,
) -> dict[int, Late]:
    """Count them for each fault that outlasted its recovery; seconds that are set apart are left out."""
    spans: dict[int, tuple[int, int]] = {}
    of_second: dict[int, int] = {}
    for x in faults:
        edges = recoveries[x.id].detail.get("edges", []) if x.id in recoveries else []
        settled_s = edges[0].get("settled_s") if len(edges) > 1 else None
        if settled_s is None or x.reverted_s is None:
            continue
        start, end = math.ceil(settled_s), math.floor(x.reverted_s)
        if start < end:
            spans[x.id] = (start, end)
            of_second.update({s: x.id for s in range(start, end) if not stretches.covers(s)})
    failed = Counter[int]()
    for row in reader.failures() if of_second else ():
        fault = of_second.get(row.second)
        if fault is not None and row.scope in scopes and fault in scopes[row.scope].faults:
            failed[fault] += sum(n for o, n in row.outcomes.items() if o.is_proxy_failure)
    return {
        fault: Late(
            float(start),
            end - start,
            sum(t.ok + t.failed for t in reader.totals(start, end)),
            failed[fault],
        )
        for fault, (start, end) in spans.items()
    }


@dataclass(slots=True)
class _Kind:
    """All faults of a kind."""

    name: str
    first: FaultRecord | None = None
    seconds: int = 0
    ended: int = 0
    failed: int = 0

    @property
    def share(self) -> float:
        return 1 - self.failed / self.ended if self.ended else 1.0

    @property
    def per_min(self) -> float:
        return self.failed / self.seconds * 60 if self.seconds else 0.0

    def add(self, x: FaultRecord, late: Late) -> None:
        self.seconds += late.seconds
        self.ended += late.ended
        self.failed += late.failed
        if late.failed and self.first is None:
            self.first = x


def recovered_success(f: RunFacts) -> Objective | NotJudged:
    """Judge that traffic which had recovered from a fault stayed well while the fault went on.

    By the share of requests, and by the minute: a proxy that finds out by live requests whether a backend is back spends as many
    at ten requests a second as at a thousand.
    """
    name, limit, most = "recovered_success", f.objectives.success, f.objectives.recovered_failures_per_min
    kinds: dict[str, _Kind] = {}
    for x in f.faults:
        if (late := f.late.get(x.id)) is not None and late.ended:
            kinds.setdefault(x.kind, _Kind(x.kind)).add(x, late)
    if not kinds:
        return NotJudged(name, "no fault held longer than traffic took to recover from it")
    bad = [k for k in kinds.values() if k.failed >= _LEAST_FAILURES and (k.share < limit or k.per_min > most)]
    worst = min(bad or kinds.values(), key=lambda k: k.share)
    measured = f"ok / ended after traffic had recovered and before {worst.name} was over; {worst.per_min:.1f} failures a minute"
    if not bad or worst.first is None:
        return Objective(name, measured, worst.share, limit, "share")
    x = worst.first
    late = f.late[x.id]
    reason = (
        f"traffic had recovered from {worst.name}, but {worst.failed} of {worst.ended} requests failed while it went on, "
        f"{worst.per_min:.1f} a minute (limits {1 - limit:.2%} and {most:g} a minute): "
        f"first {late.failed} under {label(x)}, after {clock(late.from_s)}; in all it{lost_under(f, x).removeprefix(', and')}"
    )
    value, unit = worst.share, "share"
    if worst.share >= limit:
        value, limit, unit = worst.per_min, most, "per_min"
    return Objective(
        *(name, measured, value, limit, unit, Word.FAIL, reason, late.from_s, x.id), evidence=(str(x.id),)
    )


CHECKS = (("recovered_success", recovered_success),)
