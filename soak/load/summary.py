"""The result of a load run as a dictionary: the totals, the same for each class, what failed in words. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from soak.load.orders import LoadOrder
from soak.measure.histogram import Histogram, bucket_low_ns
from soak.measure.ledger import Ledger
from soak.measure.window import WorkerReport
from soak.model import Outcome, SightKind

_QUANTILES = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))
_MOST_NAMES = 64
_MOST_EXAMPLES = 40


@dataclass(slots=True)
class Told:
    """What workers tell beside their sums: who answered, what failed and how, what was delivered twice. Bounded."""

    answers: Counter[str] = field(default_factory=Counter)
    """By origin, as the answers name it."""
    examples: dict[tuple[str, Outcome], str] = field(default_factory=dict)
    """The first error of each class and outcome."""
    delivered_twice: int = 0
    deaths: list[dict[str, object]] = field(default_factory=list)
    ordinary: list[str] = field(default_factory=list)
    """Why workers run no earlier than other programs; empty when all of them do."""
    waited_s: float = 0.0
    """How long the end of what was in flight took after the last slot."""

    def add(self, report: WorkerReport) -> None:
        """Take one worker's second."""
        for sighting in report.sightings:
            known = sighting.value in self.answers or len(self.answers) < _MOST_NAMES
            if sighting.kind is SightKind.ORIGIN and known:
                self.answers[sighting.value] += sighting.count
        for failed in report.evidence:
            if len(self.examples) < _MOST_EXAMPLES:
                self.examples.setdefault((failed.traffic, failed.outcome), failed.error)
        for note in report.notes:
            if note["name"] == "load.delivered_twice":
                self.delivered_twice += note["count"]
            elif note["name"] == "load.priority" and not note["realtime"]:
                self.ordinary.append(note["why_not"])


def summarize(order: LoadOrder, ledger: Ledger, told: Told) -> dict[str, Any]:
    """Return the result. ``load.classes`` has the keys of ``load`` for each class."""
    newest = list(ledger.newest.values())
    cpu_s = sum(r.stats.cpu_s for r in newest)
    names = list(ledger.slots)
    whole = _traffic(ledger, names)
    done = whole["ok"] + whole["failed"]
    connections = ledger.connections
    answers = told.answers.total()
    return {
        "schema": 1,
        "url": order.url,
        "seconds": order.seconds,
        "rate": order.rate,
        "traffic": dict(order.traffic),
        "waited_s": round(told.waited_s, 3),
        "load": {
            **whole,
            "bytes_received": ledger.bytes_received,
            "histogram": [[low / 1e6, n] for low, n in coarse(_merged(ledger, "latency", names))],
            "classes": {name: _traffic(ledger, [name]) for name in names},
            "examples": [
                {"traffic": name, "outcome": str(outcome), "error": error}
                for (name, outcome), error in told.examples.items()
            ],
        },
        "origins": {
            name: {"answers": n, "share": round(n / answers, 4)} for name, n in sorted(told.answers.items())
        },
        "duplicates": told.delivered_twice,
        "connections": {
            "opened": connections.opened,
            "closed_by_peer": connections.closed_by_peer,
            "closed_by_us": connections.closed_by_us,
            "tls_full": connections.tls_full,
            "tls_resumed": connections.tls_resumed,
            "reused": connections.reused,
        },
        "self": {
            "cpu_s": round(cpu_s, 3),
            "rss_bytes": sum(r.stats.rss_bytes for r in newest),
            "cpu_us_per_request": round(cpu_s / done * 1e6, 2) if done else None,
            "realtime": not told.ordinary,
            "ordinary_because": sorted(set(told.ordinary)),
        },
        "workers_died": told.deaths,
        "violations": ledger.violations(),
    }


def _traffic(ledger: Ledger, names: Sequence[str]) -> dict[str, Any]:
    """Return counts and times of some classes together."""
    outcomes: Counter[Outcome] = Counter()
    for (name, outcome, _), n in ledger.outcomes.items():
        if name in names:
            outcomes[outcome] += n
    slots = [ledger.slots[name] for name in names]
    return {
        "scheduled": sum(s.scheduled for s in slots),
        "sent": sum(s.sent for s in slots),
        "dropped": sum(s.dropped for s in slots),
        "missed": sum(s.missed for s in slots),
        "ok": outcomes[Outcome.OK],
        "failed": outcomes.total() - outcomes[Outcome.OK],
        "in_flight": sum(ledger.in_flight(name) for name in names),
        "outcomes": {str(o): n for o, n in sorted(outcomes.items()) if n},
        "latency_ms": quantiles_ms(_merged(ledger, "latency", names)),
        "service_ms": quantiles_ms(_merged(ledger, "service", names)),
        "lag_ms": quantiles_ms(_merged(ledger, "lag", names)),
        "handshake_ms": {
            **quantiles_ms(shaken := _merged(ledger, "handshake", names)),
            "count": shaken.count,
        },
    }


def _merged(ledger: Ledger, what: str, names: Iterable[str]) -> Histogram:
    out = Histogram()
    wanted = set(names)
    if what == "latency":
        for (name, _), histogram in ledger.latency.items():
            if name in wanted:
                out.merge(histogram)
        return out
    by_class = {"service": ledger.service, "lag": ledger.lag, "handshake": ledger.handshake}[what]
    for name, histogram in by_class.items():
        if name in wanted:
            out.merge(histogram)
    return out


def quantiles_ms(histogram: Histogram) -> dict[str, float]:
    """Return p50, p99, p99.9 and the exact maximum in milliseconds."""
    return {name: round(histogram.quantile_ns(q) / 1e6, 4) for name, q in _QUANTILES}


def coarse(histogram: Histogram, per_octave: int = 2) -> list[tuple[int, int]]:
    """Return the histogram in few rows for a picture: (lower end in nanoseconds, count), ``per_octave`` rows per doubling."""
    step = 128 // per_octave
    rows: dict[int, int] = {}
    for bucket, n in histogram.counts.items():
        rows[bucket // step] = rows.get(bucket // step, 0) + n
    return [(bucket_low_ns(i * step), n) for i, n in sorted(rows.items())]
