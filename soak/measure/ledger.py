"""Running totals of a live run, from worker reports alone. Pure and of constant memory: no clocks, no I/O.

Feeds the metrics, the live view and the checks of both identities while a run goes on. The store holds the same
numbers for later; nothing here is read back by the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

from soak.measure.histogram import DenseHistogram, Histogram
from soak.measure.window import Window, WorkerReport
from soak.model import ConnectionStats, Outcome, Phase, Scope

_Key = TypeVar("_Key", str, tuple[str, Phase])


@dataclass(slots=True)
class Slots:
    """Slots of one traffic class so far."""

    scheduled: int = 0
    sent: int = 0
    dropped: int = 0
    missed: int = 0

    def add(self, w: Window | Slots) -> None:
        """Count a window's slots, or another total's."""
        self.scheduled += w.scheduled
        self.sent += w.sent
        self.dropped += w.dropped
        self.missed += w.missed


@dataclass(slots=True)
class _Recent:
    """One of the last seconds, all classes and workers."""

    scheduled: int = 0
    sent: int = 0
    latency: Histogram = field(default_factory=Histogram)
    lag: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class _ClassOfWorker:
    """What one worker said of one class so far: the identities hold for each worker by itself."""

    slots: Slots = field(default_factory=Slots)
    done: int = 0
    in_flight: int = 0
    newest: int = -1


class Ledger:
    """Folds worker reports into totals.

    ``recent_s`` is how many of the last seconds the recent histograms and the rate look at. Scopes must be made known
    with ``scope`` before the reports that use them; a window of an unknown scope raises ``KeyError``.
    """

    def __init__(self, *, recent_s: int = 10) -> None:
        self.outcomes: dict[tuple[str, Outcome, Phase], int] = {}
        """Requests done, by class, outcome and phase."""
        self.latency: dict[tuple[str, Phase], Histogram] = {}
        """Latency from due, by class and phase, since the start."""
        self.service: dict[str, Histogram] = {}
        self.lag: dict[str, Histogram] = {}
        self.handshake: dict[str, Histogram] = {}
        """Time from connect to a usable connection, by class."""
        self.slots: dict[str, Slots] = {}
        self.connections = ConnectionStats()
        self.bytes_received = 0
        self.carried = 0
        self.stale_non_idempotent = 0
        self.evidence_dropped = 0
        self._phases: dict[int, Phase] = {0: Phase.STEADY}
        self._recent_s = recent_s
        self._recent: dict[int, _Recent] = {}
        self._newest: dict[int, WorkerReport] = {}
        self._by_worker: dict[tuple[int, str], _ClassOfWorker] = {}

    def scope(self, scope: Scope) -> None:
        """Make a scope's phase known. Old ones are forgotten: late reports are seconds old, not hours."""
        self._phases[scope.id] = scope.phase
        while len(self._phases) > 1000:
            del self._phases[min(self._phases)]

    def add(self, report: WorkerReport) -> None:
        """Count one worker's second."""
        for w in report.windows:
            self._window(report.worker, w)
        self.connections = _sum(self.connections, report.connections)
        self.evidence_dropped += report.evidence_dropped
        known = self._newest.get(report.worker)
        if known is None or report.second >= known.second:
            self._newest[report.worker] = report
        for second in [s for s in self._recent if s < self.newest_second - 2 * self._recent_s]:
            del self._recent[second]

    def _window(self, worker: int, w: Window) -> None:
        phase = self._phases[w.scope]
        self.slots.setdefault(w.traffic, Slots()).add(w)
        for outcome, n in w.outcomes.items():
            key = (w.traffic, outcome, phase)
            self.outcomes[key] = self.outcomes.get(key, 0) + n
        _total(self.latency, (w.traffic, phase)).merge(w.latency)
        _total(self.service, w.traffic).merge(w.service)
        _total(self.lag, w.traffic).merge(w.lag)
        _total(self.handshake, w.traffic).merge(w.handshake)
        self.bytes_received += w.bytes_received
        self.carried += w.carried
        self.stale_non_idempotent += w.stale_non_idempotent
        mine = self._by_worker.setdefault((worker, w.traffic), _ClassOfWorker())
        mine.slots.add(w)
        mine.done += sum(w.outcomes.values())
        if w.second >= mine.newest:
            mine.newest, mine.in_flight = w.second, w.in_flight
        if w.second >= self.newest_second - 2 * self._recent_s:
            recent = self._recent.setdefault(w.second, _Recent())
            recent.scheduled += w.scheduled
            recent.sent += w.sent
            recent.latency.merge(w.latency)
            recent.lag.merge(w.lag)

    # -- what is known -----------------------------------------------------------------------------------------------

    @property
    def newest_second(self) -> int:
        """The newest second that any worker reported; -1 before the first."""
        return max((r.second for r in self._newest.values()), default=-1)

    @property
    def complete_second(self) -> int:
        """The newest second that every worker known so far has reported; -1 before the first."""
        return min((r.second for r in self._newest.values()), default=-1)

    @property
    def newest(self) -> Mapping[int, WorkerReport]:
        """The newest report of each worker: its own health, open and idle connections."""
        return self._newest

    @property
    def open_connections(self) -> int:
        """Connections open now, all workers."""
        return sum(r.open_connections for r in self._newest.values())

    @property
    def idle_connections(self) -> int:
        """Connections open and idle now, all workers."""
        return sum(r.idle_connections for r in self._newest.values())

    def total(self) -> Slots:
        """Return the slots of all classes."""
        out = Slots()
        for slots in self.slots.values():
            out.add(slots)
        return out

    def in_flight(self, traffic: str | None = None) -> int:
        """Return requests in flight, of one class or all: each worker's newest word, summed."""
        return sum(c.in_flight for (_, name), c in self._by_worker.items() if traffic in (None, name))

    def by_outcome(self) -> dict[Outcome, int]:
        """Return requests done by outcome, all classes and phases."""
        out: dict[Outcome, int] = {}
        for (_, outcome, _), n in self.outcomes.items():
            out[outcome] = out.get(outcome, 0) + n
        return out

    def rate_now(self, seconds: int = 5) -> float:
        """Return requests sent per second over the last complete seconds; 0 before the first."""
        end = self.complete_second
        span = min(seconds, self._recent_s, end + 1)
        if span <= 0:
            return 0.0
        return sum(r.sent for s, r in self._recent.items() if end - span < s <= end) / span

    def recent_latency(self) -> Histogram:
        """Return latency from due over the last ``recent_s`` seconds."""
        return self._merged("latency")

    def recent_lag(self) -> Histogram:
        """Return send lag over the last ``recent_s`` seconds."""
        return self._merged("lag")

    def _merged(self, what: str) -> Histogram:
        out = Histogram()
        since = self.newest_second - self._recent_s
        for second, recent in self._recent.items():
            if second > since:
                out.merge(getattr(recent, what))
        return out

    def violations(self) -> list[str]:
        """Return each broken identity as a sentence; empty when both hold for every class and worker."""
        out: list[str] = []
        for (worker, name), c in sorted(self._by_worker.items()):
            who = f"class {name}, worker {worker}"
            out += broken_identities(who, c.slots, c.done, c.in_flight)
        return out


def broken_identities(who: str, slots: Slots, done: int, in_flight: int) -> list[str]:
    """Return a sentence for each of the two identities that does not hold for these sums."""
    out: list[str] = []
    if slots.scheduled != slots.sent + slots.dropped + slots.missed:
        out.append(
            f"{who}: scheduled {slots.scheduled} is not sent {slots.sent} + dropped {slots.dropped}"
            f" + missed {slots.missed}"
        )
    if slots.sent != done + in_flight:
        out.append(f"{who}: sent {slots.sent} is not done {done} + in flight {in_flight}")
    return out


def _total(totals: dict[_Key, Histogram], key: _Key) -> Histogram:
    """Return the total of a key, a new one when it is the first."""
    if (total := totals.get(key)) is None:
        total = totals[key] = DenseHistogram()
    return total


def _sum(a: ConnectionStats, b: ConnectionStats) -> ConnectionStats:
    return ConnectionStats(
        **{f.name: getattr(a, f.name) + getattr(b, f.name) for f in fields(ConnectionStats)}
    )
