"""What one run says of one proxy: the few numbers of a report that belong into a table, or why there are none."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

TRANSITIONS = ("reload", "cert-rotate")


@dataclass(frozen=True, slots=True)
class FaultRow:
    """All instances of one kind of fault that a run injected."""

    n: int
    verified: int
    lost: Mapping[str, int]
    """Requests that ended otherwise than promised under it, by outcome."""
    p50_s: float | None
    """Until its effect was seen (a reload, a rotation), or until traffic had recovered (all others)."""
    max_s: float | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One proxy in the matrix."""

    proxy: str
    verdict: str
    """``pass``, ``fail``, ``invalid``; ``dirty``; or ``not run``."""
    reason: str = ""
    """The first reason of a verdict that is no pass, or why it was not run."""
    version: str = ""
    can: Sequence[str] = ()
    left_out: Sequence[str] = ()
    rate_held: float | None = None
    sent: int = 0
    failed: int = 0
    faults: Mapping[str, FaultRow] = field(default_factory=dict)
    p99_ms: float | None = None
    lag_p99_ms: float | None = None
    cpu_cores: float | None = None
    cpu_us_per_request: float | None = None
    rss_mib: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Entry:
        """Read what ``to_json`` wrote."""
        faults = {kind: FaultRow(**row) for kind, row in value["faults"].items()}
        lists = {name: tuple(value[name]) for name in ("can", "left_out")}
        return cls(**{**value, **lists, "faults": faults})


def not_run(proxy: str, reason: str, version: str = "", can: Sequence[str] = ()) -> Entry:
    """Return the row of a proxy of which there is no report."""
    return Entry(proxy, "not run", " ".join(reason.split()), version, tuple(can))


def entry_of(
    proxy: str, report: Mapping[str, Any], status: int, can: Sequence[str], left_out: Sequence[str] = ()
) -> Entry:
    """Fold a report (its JSON contract) and the exit status of its run. Raises ``KeyError`` for what is no report."""
    load, cpu = report["load"], report["proxy_cpu"]
    rss = report["vitals"]["rss_bytes"]["last"]
    verdict = "dirty" if status == 4 else report["verdict"]
    return Entry(
        proxy,
        verdict,
        "" if verdict == "pass" else next(iter(report["reasons"]), "the report gives no reason"),
        report["run"]["proxy_version"],
        tuple(can),
        tuple(left_out),
        rate_held=load["sent"] / load["scheduled"] if load["scheduled"] else None,
        sent=load["sent"],
        failed=load["failed"],
        faults=_faults(report["faults"]),
        p99_ms=load["latency_ms"]["p99"],
        lag_p99_ms=load["lag_ms"]["p99"],
        cpu_cores=cpu["cores"],
        cpu_us_per_request=cpu["us_per_request"],
        rss_mib=None if rss is None else rss / 2**20,
    )


def _faults(instances: Sequence[Mapping[str, Any]]) -> dict[str, FaultRow]:
    ran = [one for one in instances if one["outcome"] != "skipped"]
    kinds = dict.fromkeys(one["kind"] for one in ran)
    return {kind: _row(kind, [one for one in ran if one["kind"] == kind]) for kind in kinds}


def _row(kind: str, instances: Sequence[Mapping[str, Any]]) -> FaultRow:
    lost: Counter[str] = Counter()
    for one in instances:
        lost.update({outcome: n for outcome, n in one["outcomes"].items() if outcome != "ok"})
    took = [s for one in instances if (s := _took(kind, one)) is not None]
    return FaultRow(
        n=len(instances),
        verified=sum(one["outcome"] == "verified" for one in instances),
        lost={outcome: n for outcome, n in sorted(lost.items()) if n},
        p50_s=statistics.median(took) if took else None,
        max_s=max(took, default=None),
    )


def _took(kind: str, one: Mapping[str, Any]) -> float | None:
    """Return the seconds until the effect of a transition was seen, or until traffic had recovered from a fault."""
    if kind not in TRANSITIONS:
        recovery: float | None = one["recovery_s"]
        return recovery
    if one["injected_s"] is None or one["active_s"] is None:
        return None
    return max(0.0, float(one["active_s"]) - float(one["injected_s"]))
