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
        fault: Late(float(start), sum(t.ok + t.failed for t in reader.totals(start, end)), failed[fault])
        for fault, (start, end) in spans.items()
    }


def recovered_success(f: RunFacts) -> Objective | NotJudged:
    """Judge that traffic which had recovered from a fault stayed well while the fault went on."""
    name, limit = "recovered_success", f.objectives.success
    measured = "ok / ended after traffic had recovered and before the fault was over, worst kind of fault"
    ended, failed, first = Counter[str](), Counter[str](), dict[str, FaultRecord]()
    for x in f.faults:
        late = f.late.get(x.id)
        if late is None:
            continue
        ended[x.kind] += late.ended
        failed[x.kind] += late.failed
        if late.failed and x.kind not in first:
            first[x.kind] = x
    shares = {kind: 1 - failed[kind] / n for kind, n in ended.items() if n}
    if not shares:
        return NotJudged(name, "no fault held longer than traffic took to recover from it")
    kind = min(shares, key=lambda k: (failed[k] < _LEAST_FAILURES, shares[k]))
    if failed[kind] < _LEAST_FAILURES or shares[kind] >= limit:
        return Objective(name, measured, shares[kind], limit, "share")
    from soak.verdict.losses import lost_under  # noqa: PLC0415 - it needs the facts, which need this module

    x = first[kind]
    late = f.late[x.id]
    reason = (
        f"traffic had recovered from {kind}, but {failed[kind]} of {ended[kind]} requests failed while it went on: "
        f"first {late.failed} under {label(x)}, after {clock(late.from_s)}; in all it{lost_under(f, x).removeprefix(', and')}"
    )
    return Objective(
        *(name, measured, shares[kind], limit, "share", Word.FAIL, reason, late.from_s, x.id), (str(x.id),)
    )


CHECKS = (("recovered_success", recovered_success),)
