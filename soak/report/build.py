"""From a store to the report: one dict, the JSON contract. Everything else in this package only renders it.

Counts and sums come from ``soak.verdict.gather``; this module arranges them. Its keys are an interface: add, never rename.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from chaos.model import FaultRecord
from soak.measure.histogram import Histogram
from soak.model import CertificateRecord, Outcome, Phase, Sighting, SightKind, SightVia
from soak.plan import ObjectivesPlan
from soak.store import SlotTotals, StoreReader
from soak.verdict import RunFacts, judge_run
from soak.verdict.drifting import own_trends, p99_ratio, trends
from soak.verdict.facts import Histograms
from soak.verdict.faulting import effect_s, recovered_s, recovery_s

SCHEMA = 1
_QUANTILES = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))
_MOST_STRETCHES = 100


def build_report(
    reader: StoreReader, objectives: ObjectivesPlan | None = None, *, live: bool = False
) -> dict[str, Any]:
    """Return the report of a run as a JSON value.

    ``objectives`` judges it by other limits than its plan's; ``live`` says that its daemon still runs, so that a run
    without an end is told apart from a killed one. Raises ``StoreError`` for a store that cannot be read.
    """
    facts, verdict = judge_run(reader, objectives, live=live)
    worst = verdict.worst
    return {
        "schema": SCHEMA,
        "run": _run(facts),
        "verdict": verdict.verdict,
        "exit_code": verdict.exit_code,
        "dirty": verdict.dirty,
        "reasons": list(verdict.reasons),
        "worst": None if worst is None else worst.to_json(),
        "objectives": [o.to_json() for o in verdict.objectives],
        "not_judged": [n.to_json() for n in verdict.not_judged],
        "load": _load(facts),
        "phases": _phases(facts),
        "connections": _connections(facts),
        "origins": _origins(facts),
        "duplicates": facts.origins.total("duplicates") if facts.origins.counts else None,
        "cache": _cache(facts),
        "faults": [_fault(facts, f) for f in facts.faults],
        "certificates": _certificates(facts.certificates, facts.sightings),
        "vitals": _vitals(facts),
        "proxy_cpu": _proxy_cpu(facts),
        "drift": _drift(facts),
        "unwell": _unwell(facts),
        "self": {**_self(facts), **_priority(reader)},
        "evidence_dropped": facts.counters.get("evidence_dropped", 0),
    }


def _run(f: RunFacts) -> dict[str, Any]:
    keys = ("id", "started_at", "seed", "proxy", "proxy_version", "proxy_metrics_url", "lab", "rate")
    return {
        **{k: f.run.get(k) for k in keys},
        "seconds": f.elapsed_s,
        "length_s": f.length_s,
        "ended": None if f.ended is None else f.ended.get("reason"),
        "live": f.live,
    }


# -- traffic -------------------------------------------------------------------------------------------------------------


def _load(f: RunFacts) -> dict[str, Any]:
    names = sorted({t.traffic for t in f.totals}, key=list(f.histograms).index)
    classes = {
        name: _traffic(
            [t for t in f.totals if t.traffic == name],
            [c for (traffic, _), c in f.failures.items() if traffic == name],
            f.in_flight.get(name, 0),
            [f.histograms[name]],
        )
        for name in names
    }
    whole = _traffic(f.totals, f.failures.values(), sum(f.in_flight.values()), f.histograms.values())
    return {**whole, "classes": classes}


def _traffic(
    totals: Iterable[SlotTotals],
    failures: Iterable[Counter[Outcome]],
    in_flight: int,
    histograms: Iterable[Histograms],
) -> dict[str, Any]:
    totals = list(totals)
    outcomes: Counter[Outcome] = Counter({Outcome.OK: sum(t.ok for t in totals)})
    for c in failures:
        outcomes.update(c)
    merged = (Histogram(), Histogram(), Histogram(), Histogram())
    for four in histograms:
        for into, one in zip(merged, four, strict=True):
            into.merge(one)
    latency, service, lag, handshake = merged
    return {
        "scheduled": sum(t.scheduled for t in totals),
        "sent": sum(t.sent for t in totals),
        "dropped": sum(t.dropped for t in totals),
        "missed": sum(t.missed for t in totals),
        "ok": outcomes[Outcome.OK],
        "failed": outcomes.total() - outcomes[Outcome.OK],
        "in_flight": in_flight,
        "stale_non_idempotent": sum(t.stale_non_idempotent for t in totals),
        "bytes_received": sum(t.bytes_received for t in totals),
        "outcomes": _named(outcomes),
        "lag_ms": _quantiles(lag),
        "latency_ms": _quantiles(latency),
        "service_ms": _quantiles(service),
        "handshake_ms": {**_quantiles(handshake), "count": handshake.count},
    }


def _named(outcomes: Mapping[Outcome, int]) -> dict[str, int]:
    return {str(o): outcomes[o] for o in Outcome if outcomes.get(o, 0)}


def _quantiles(h: Histogram) -> dict[str, float]:
    return {name: round(h.quantile_ns(q) / 1e6, 6) for name, q in _QUANTILES}


def _phases(f: RunFacts) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for phase in Phase:
        totals = [t for t in f.totals if f.phase(t.scope) is phase]
        outcomes: Counter[Outcome] = Counter()
        for (_, scope), c in f.failures.items():
            if f.phase(scope) is phase:
                outcomes.update(c)
        out[str(phase)] = {
            "sent": sum(t.sent for t in totals),
            "ok": sum(t.ok for t in totals),
            "failed": outcomes.total(),
            "outcomes": _named(outcomes),
        }
    return out


def _connections(f: RunFacts) -> dict[str, int]:
    c = f.connections
    return {
        "opened": c.opened,
        "closed_by_peer": c.closed_by_peer,
        "closed_by_us": c.closed_by_us,
        "tls_full": c.tls_full,
        "tls_resumed": c.tls_resumed,
        "reused": c.reused,
    }


def _origins(f: RunFacts) -> dict[str, Any]:
    """Return the distribution over backends: as they counted themselves, and as answers name them."""
    answers = Counter[str]()
    for s in f.sightings:
        if s.kind is SightKind.ORIGIN and s.via is SightVia.TRAFFIC:
            answers[s.value] += s.count
    counts = f.origins.counts
    asked, answered = f.origins.total("requests"), answers.total()
    return {
        name: {
            "requests": counts[name].get("requests", 0) if name in counts else None,
            "share": round(counts[name].get("requests", 0) / asked, 6) if name in counts and asked else None,
            "answers": answers[name],
            "answers_share": round(answers[name] / answered, 6) if answered else None,
            "duplicates": counts[name].get("duplicates", 0) if name in counts else None,
        }
        for name in sorted({*counts, *answers})
    }


def _cache(f: RunFacts) -> dict[str, Any] | None:
    """Return how many requests for cacheable objects reached a backend; None when none could, or nobody asked them."""
    if not (f.origins.cached and f.origins.counts):
        return None
    requests = sum(t.sent for t in f.totals if t.traffic in f.origins.cached)
    answers = f.origins.cache_answers()
    return {
        "requests": requests,
        "origin_answers": answers,
        "revalidated": f.origins.cache_answers("not_modified"),
        "hit_ratio": round(1 - answers / requests, 6) if requests else None,
    }


# -- chaos ---------------------------------------------------------------------------------------------------------------


def _fault(f: RunFacts, fault: FaultRecord) -> dict[str, Any]:
    scopes = {s.id for s in f.scopes.values() if fault.id in s.faults}
    totals = [t for t in f.totals if t.scope in scopes]
    outcomes: Counter[Outcome] = Counter({Outcome.OK: sum(t.ok for t in totals)})
    for (_, scope), c in f.failures.items():
        if scope in scopes:
            outcomes.update(c)
    judged = f.recoveries.get(fault.id)
    return {
        "id": fault.id,
        "kind": fault.kind,
        "shape": f.shapes.get(fault.kind, "fault"),
        "target": fault.target,
        "source": str(fault.source),
        "planned_s": fault.planned_s,
        "injected_s": fault.injected_s,
        "active_s": fault.active_s,
        "reverted_s": fault.reverted_s,
        "recovered_s": recovered_s(f, fault),
        "recovery_s": recovery_s(f, fault),
        "effect_s": effect_s(fault) if f.is_transition(fault.kind) else None,
        "outcome": None if fault.outcome is None else str(fault.outcome),
        "reason": fault.reason,
        "requests": sum(t.sent + t.carried for t in totals),
        "failed": outcomes.total() - outcomes[Outcome.OK],
        "outcomes": _named(outcomes),
        "reload": fault.evidence.get("applied", {}).get("kind"),
        "evidence": dict(fault.evidence),
        "traffic": None if judged is None else judged.detail,
    }


def _certificates(
    certificates: Iterable[CertificateRecord], sightings: Iterable[Sighting]
) -> list[dict[str, Any]]:
    seen = {(s.value, s.via): s for s in sightings if s.kind is SightKind.SERIAL}
    out: list[dict[str, Any]] = []
    old: CertificateRecord | None = None
    for c in certificates:
        new = seen.get((c.serial, SightVia.PROBE)) or seen.get((c.serial, SightVia.TRAFFIC))
        before = None
        if old is not None:
            before = seen.get((old.serial, SightVia.PROBE)) or seen.get((old.serial, SightVia.TRAFFIC))
        traffic = seen.get((c.serial, SightVia.TRAFFIC))
        out.append(
            {
                "serial": c.serial,
                "installed_s": c.installed_s,
                "first_seen_s": None if new is None else new.first_s,
                "old_last_seen_s": None if before is None else before.last_s,
                "fingerprint": c.fingerprint,
                "fault": c.fault_id,
                "old_serial": None if old is None else old.serial,
                "traffic_first_seen_s": None if traffic is None else traffic.first_s,
                "traffic_last_seen_s": None if traffic is None else traffic.last_s,
            }
        )
        old = c
    return out


# -- the proxy and ourselves ---------------------------------------------------------------------------------------------


def _vitals(f: RunFacts) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, trend in trends(f).items():
        if trend is None:
            out[key] = {"first": None, "last": None, "slope_per_h": None}
            continue
        out[key] = {
            "first": trend.first,
            "last": trend.last,
            "slope_per_h": trend.slope_per_h,
            "slope_per_reload": trend.slope_per_reload,
            "p_value": trend.p_value,
            "significant": trend.significant,
        }
    return out


def _proxy_cpu(f: RunFacts) -> dict[str, Any]:
    """Return what the proxy used between the first look at it and the last; a restart only loses what lay between two looks."""
    if len(f.vitals) < 2 or f.elapsed_s <= 0:
        return {"seconds": None, "cores": None, "us_per_request": None}
    used_s = sum(max(0.0, new.cpu_s - old.cpu_s) for old, new in pairwise(f.vitals))
    span_s = f.vitals[-1].at_s - f.vitals[0].at_s
    requests = sum(t.sent for t in f.totals) * span_s / f.elapsed_s
    return {
        "seconds": used_s,
        "cores": used_s / span_s if span_s > 0 else None,
        "us_per_request": used_s / requests * 1e6 if requests else None,
    }


def _drift(f: RunFacts) -> dict[str, Any]:
    return {
        "p99_ratio": p99_ratio(f),
        "old_processes": f.vitals[-1].old_processes if f.vitals else None,
        "judged_after_s": f.objectives.drift_after,
    }


def _unwell(f: RunFacts) -> dict[str, Any]:
    outcomes: Counter[Outcome] = Counter()
    for c in f.excused_failures.values():
        outcomes.update(c)
    return {
        "seconds": f.stretches.seconds,
        "share": f.stretches.seconds / f.elapsed_s if f.elapsed_s else 0.0,
        "stretches": [
            {"from_s": u.from_s, "to_s": u.to_s, "reason": u.reason} for u in f.unwell[:_MOST_STRETCHES]
        ],
        "more_stretches": max(0, len(f.unwell) - _MOST_STRETCHES),
        "failed": outcomes.total(),
        "outcomes": _named(outcomes),
        "starved_seconds": f.starved.seconds,
    }


def _priority(reader: StoreReader) -> dict[str, Any]:
    """Say whether all load workers ran before ordinary programs; None for a run that tells nothing of it."""
    told = [event.data for event in reader.events("load.priority")]
    return {
        "realtime": all(one["realtime"] for one in told) if told else None,
        "ordinary_because": sorted({one["why_not"] for one in told} - {""}),
    }


def _self(f: RunFacts) -> dict[str, Any]:
    w = f.worker
    done = sum(t.ok + t.failed for t in f.totals)
    return {
        "cpu_s": round(w.cpu_s, 6),
        "rss_bytes": w.rss_bytes,
        "cpu_us_per_request": round(w.cpu_s / done * 1e6, 3) if done else None,
        "rss_max_bytes": w.rss_max_bytes,
        "workers": w.workers,
        "cores": round(w.cpu_s / f.elapsed_s, 6) if f.elapsed_s else None,
        "loop_gap_max_s": w.loop_gap_max_s,
        "processes": {
            subject: None
            if trend is None
            else {
                "rss_bytes": {"first": trend.first, "last": trend.last, "slope_per_h": trend.slope_per_h},
                "significant": trend.significant,
            }
            for subject, trend in own_trends(f).items()
        },
        "store_bytes": f.store_bytes,
        "store_bytes_per_h": round(f.store_bytes / f.elapsed_s * 3600) if f.elapsed_s else None,
    }
