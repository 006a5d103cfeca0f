"""Everything that a verdict and a report need to know of a run, gathered from its store in one go.

Streams the store once and keeps sums, so memory does not grow with traffic. Decides nothing: the one judgement made
here is arithmetic (which seconds are set apart because soak was unwell, which identity does not hold).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chaos.model import FaultRecord, FaultShape
from soak.measure.histogram import Histogram
from soak.measure.ledger import Slots, broken_identities
from soak.model import CertificateRecord, ConnectionStats, Outcome, Phase, Scope, Sighting, Unwell, Vital
from soak.plan import ClassObjectivesPlan, ObjectivesPlan, Plan, SelfPlan, TrafficPlan
from soak.store import SlotTotals, StoreReader
from soak.verdict.aftermath import Late, late_of
from soak.verdict.balance import balanced_classes
from soak.verdict.happenings import Happenings, bereft, happenings_of
from soak.verdict.keeping import keeping_classes
from soak.verdict.origins import OriginFacts, origin_facts
from soak.verdict.quarters import Quarters, quarters_of
from soak.verdict.recovery import RecoveryTracker, TrafficRecovery
from soak.verdict.stalls import Steady, steady_of
from soak.verdict.starving import starved

Key = tuple[str, int]
"""(traffic class, scope)."""
Histograms = tuple[Histogram, Histogram, Histogram, Histogram]
"""Latency, service time, lag, time of handshakes."""
_RECOVERY_TIMEOUT_S = 30.0
_MOST_SENTENCES = 10
_AGE_JITTER = 1.2
"""A connection is retired at its ``max_age``, 20 % sooner or later."""
MISMATCHES = (Outcome.IDENTITY_MISMATCH, Outcome.BODY_MISMATCH)
"""Answers that are wrong whatever soak or its host went through."""


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """When a kind of failure was seen first in a scope, and the first evidence row that shows it."""

    second: int
    traffic: str
    evidence: int | None


@dataclass(frozen=True, slots=True)
class SelfTotals:
    """The load workers, summed."""

    workers: int
    cpu_s: float
    rss_bytes: int
    rss_max_bytes: int
    loop_gap_max_s: float


@dataclass(frozen=True, slots=True)
class Stretches:
    """Whole seconds in which soak was unwell, as joined half-open ranges in order."""

    ranges: Sequence[tuple[int, int]] = ()

    @property
    def seconds(self) -> int:
        """How many seconds are set apart."""
        return sum(b - a for a, b in self.ranges)

    def covers(self, second: int) -> bool:
        """Whether this second is set apart."""
        i = bisect_right(self.ranges, (second, math.inf)) - 1
        return i >= 0 and self.ranges[i][0] <= second < self.ranges[i][1]

    def overlap_s(self, from_s: float, to_s: float) -> float:
        """Return how much of a stretch of time is set apart, in seconds."""
        return sum(max(0.0, min(b, to_s) - max(a, from_s)) for a, b in self.ranges)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run as the store tells it."""

    run: Mapping[str, Any]
    objectives: ObjectivesPlan
    self_limits: SelfPlan
    recovery_timeout_s: float
    connection_age_s: float
    """How long clients keep a connection at most."""
    length_s: float
    elapsed_s: float
    """How long the load was held: to the end of the run, or to the last second known; its drain is left out."""
    traffic_end_s: float
    """End of the last second in which anything was sent or done."""
    ended: Mapping[str, Any] | None
    """``{"at_s", "reason", "dirty"}``; None while the run goes on, and for a run that was killed."""
    live: bool
    scopes: Mapping[int, Scope]
    faults: Sequence[FaultRecord]
    shapes: Mapping[str, str]
    """Fault kind -> ``fault`` or ``transition``, as the daemon that ran them said (meta ``fault_shapes``)."""
    totals: Sequence[SlotTotals]
    excused_totals: Sequence[SlotTotals]
    """The part of ``totals`` that lies in unwell seconds."""
    failures: Mapping[Key, Counter[Outcome]]
    excused_failures: Mapping[Key, Counter[Outcome]]
    firsts: Mapping[tuple[str, int, Outcome], FirstFailure]
    """First failure by class, scope and outcome; of what is not a mismatch, unwell seconds left out."""
    stale_kept: Sequence[tuple[int, float]]
    """Scope of each evidence row of ``stale_reuse``, and how long after its send the connection closed, in seconds."""
    class_limits: Mapping[str, ClassObjectivesPlan]
    """Objectives of single classes, from the plan."""
    in_flight: Mapping[str, int]
    histograms: Mapping[str, Histograms]
    quarters: Quarters | None
    """Latency in the first and the last quarter of the run; None when it was too short."""
    steady: Steady
    """What the steady seconds were like."""
    connections: ConnectionStats
    worker: SelfTotals
    unwell: Sequence[Unwell]
    starved: Stretches
    """Seconds in which the host starved the lab, whether they are excused or not."""
    excusable: Stretches
    """Seconds that are set apart only when the run fails with them: the lab was starved, or had lost a backend."""
    stretches: Stretches
    sightings: Sequence[Sighting]
    certificates: Sequence[CertificateRecord]
    vitals: Sequence[Vital]
    """Of the proxy."""
    own_vitals: Mapping[str, Sequence[Vital]]
    """Of the daemon and each load worker, by subject."""
    store_bytes: int
    """Size of the store on disk."""
    recoveries: Mapping[int, TrafficRecovery]
    """By fault id, judged again from the store."""
    violations: Sequence[str]
    counters: Mapping[str, int] = field(default_factory=dict)
    origins: OriginFacts = field(default_factory=OriginFacts)
    late: Mapping[int, Late] = field(default_factory=dict)
    """By fault id: requests after recovery and before the revert."""
    keeping: frozenset[str] = frozenset()
    """Traffic classes that keep their connections."""
    balanced: frozenset[str] = frozenset()
    """Traffic classes whose requests are spread over all backends."""
    happened: Happenings = field(default_factory=Happenings)

    def is_transition(self, kind: str) -> bool:
        """Whether a fault kind is a change without a revert."""
        return self.shapes.get(kind) == FaultShape.TRANSITION

    def phase(self, scope: int) -> Phase:
        """Return the phase of a scope."""
        known = self.scopes.get(scope)
        return Phase.STEADY if known is None else known.phase

    def scope_faults(self, scope: int) -> tuple[int, ...]:
        """Return the ids of the faults of a scope."""
        known = self.scopes.get(scope)
        return () if known is None else known.faults

    def judged(self) -> Iterator[tuple[SlotTotals, int, Counter[Outcome]]]:
        """Yield (slots, ok, failures) by class and scope without the unwell seconds; slots are of the whole run."""
        excused: Counter[Key] = Counter()
        for t in self.excused_totals:
            excused[t.traffic, t.scope] += t.ok
        for t in self.totals:
            key = (t.traffic, t.scope)
            failures = self.failures.get(key, Counter()) - self.excused_failures.get(key, Counter())
            yield t, t.ok - excused[key], failures


def gather(
    reader: StoreReader,
    objectives: ObjectivesPlan | None = None,
    *,
    live: bool = False,
    excuse: bool = False,
) -> RunFacts:
    """Read a run. ``objectives`` replaces those of its plan. Raises ``StoreError`` or ``sqlite3.Error`` on a bad file.

    ``excuse`` sets the ``excusable`` seconds apart, as those in which soak was unwell.
    """
    with reader.snapshot():
        return _gather(reader, objectives, live=live, excuse=excuse)


def _gather(reader: StoreReader, objectives: ObjectivesPlan | None, *, live: bool, excuse: bool) -> RunFacts:
    stored = reader.meta("plan")
    plan = None if stored is None else Plan.model_validate(stored)
    run, ended = reader.meta("run", {}), reader.meta("ended")
    newest = reader.last_second()
    traffic_end_s = float(0 if newest is None else newest + 1)
    length_s = float(run.get("length_s") or (plan.length if plan else traffic_end_s))
    elapsed_s = min(float(ended["at_s"]) if ended else traffic_end_s, length_s)
    happened, hungry = happenings_of(reader), starved(reader)
    troubles = [*hungry, *bereft(happened, traffic_end_s)]
    unwell = sorted([*reader.unwell(), *(troubles if excuse else [])], key=lambda u: u.from_s)
    stretches = stretches_of(unwell)
    wanted = objectives or (plan.objectives if plan else ObjectivesPlan())
    faults, shapes = list(reader.faults()), reader.meta("fault_shapes", {})
    timeout_s = plan.chaos.recovery_timeout if plan else _RECOVERY_TIMEOUT_S
    failures, excused, firsts = _failures(reader, stretches)
    scopes = {s.id: s for s in reader.scopes()}
    recoveries = judge_recoveries(
        reader,
        {f.id: edges_of(f, transition=shapes.get(f.kind) == FaultShape.TRANSITION) for f in faults},
        stretches,
        timeout_s,
    )
    violations, in_flight = _identities(reader)
    return RunFacts(
        run=run,
        objectives=wanted,
        self_limits=plan.self_limits if plan else SelfPlan(),
        recovery_timeout_s=timeout_s,
        connection_age_s=_AGE_JITTER * (plan.traffic if plan else TrafficPlan()).max_age,
        length_s=length_s,
        elapsed_s=elapsed_s,
        traffic_end_s=traffic_end_s,
        ended=ended,
        live=live,
        scopes=scopes,
        faults=faults,
        shapes=shapes,
        totals=reader.totals(),
        excused_totals=[t for a, b in stretches.ranges for t in reader.totals(a, b)],
        failures=failures,
        excused_failures=excused,
        firsts=firsts,
        stale_kept=_stale_kept(reader, stretches),
        class_limits={c.name: c.objectives for c in plan.traffic.classes} if plan else {},
        in_flight=in_flight,
        histograms=reader.histograms(),
        quarters=quarters_of(reader, elapsed_s, stretches.ranges),
        steady=steady_of(
            reader,
            stretches,
            until_s=elapsed_s,
            limit_s=wanted.steady_p99,
            streaming={c.name for c in plan.traffic.classes if c.streaming} if plan else (),
        ),
        connections=reader.connections(),
        worker=_worker(reader),
        unwell=unwell,
        starved=stretches_of(hungry),
        excusable=stretches_of(troubles),
        stretches=stretches,
        sightings=list(reader.sightings()),
        certificates=list(reader.certificates()),
        vitals=list(reader.vitals("proxy")),
        own_vitals=_own_vitals(reader),
        store_bytes=reader.size_bytes(),
        recoveries=recoveries,
        late=late_of(reader, faults, recoveries, scopes, stretches),
        violations=violations,
        counters=reader.counters(),
        origins=origin_facts(reader, plan),
        keeping=keeping_classes(plan),
        balanced=balanced_classes(plan),
        happened=happened,
    )


def _own_vitals(reader: StoreReader) -> dict[str, list[Vital]]:
    """Return what soak saw of itself; backends and the proxy are the lab's."""
    found: dict[str, list[Vital]] = {}
    for vital in reader.vitals():
        if vital.subject == "daemon" or vital.subject.startswith("worker-"):
            found.setdefault(vital.subject, []).append(vital)
    return found


def stretches_of(unwell: Iterable[Unwell]) -> Stretches:
    """Round stretches out to whole seconds and join those that touch."""
    ranges: list[tuple[int, int]] = []
    for u in sorted(unwell, key=lambda u: u.from_s):
        a, b = math.floor(u.from_s), max(math.ceil(u.to_s), math.floor(u.from_s) + 1)
        if ranges and a <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(b, ranges[-1][1]))
        else:
            ranges.append((a, b))
    return Stretches(tuple(ranges))


def judge_recoveries(
    reader: StoreReader, edges_by_fault: Mapping[int, Sequence[float]], stretches: Stretches, timeout_s: float
) -> dict[int, TrafficRecovery]:
    """Judge the recovery of faults by their edges from the stored seconds, as the daemon did while the run went on.

    Traffic has until ``timeout_s`` after the last edge. Faults without an edge never ran and are left out.
    """
    ran = [(edges, fault) for fault, edges in edges_by_fault.items() if edges]
    waiting = sorted(ran, key=lambda e: e[0][-1], reverse=True)
    tracker = RecoveryTracker()
    out: dict[int, TrafficRecovery] = {}
    for facts in reader.seconds():
        while waiting and facts.second >= waiting[-1][0][-1] + timeout_s:
            edges, fault = waiting.pop()
            out[fault] = tracker.judge(edges, edges[-1] + timeout_s)
        if not waiting:
            break
        tracker.add(replace(facts, unwell=True) if stretches.covers(facts.second) else facts)
    for edges, fault in waiting:
        out[fault] = tracker.judge(edges, edges[-1] + timeout_s)
    return out


def edges_of(fault: FaultRecord, *, transition: bool) -> list[float]:
    """Return the edges of a fault that ran: injection, revert, and the instant at which a transition took effect."""
    active_s = fault.active_s if transition else None
    return sorted(at_s for at_s in (fault.injected_s, active_s, fault.reverted_s) if at_s is not None)


def _failures(
    reader: StoreReader, stretches: Stretches
) -> tuple[
    dict[Key, Counter[Outcome]], dict[Key, Counter[Outcome]], dict[tuple[str, int, Outcome], FirstFailure]
]:
    rows: dict[tuple[str, int, Outcome], int] = {}
    for e in reader.evidence(limit=2**31):
        if e.request.outcome in MISMATCHES or not stretches.covers(int(e.request.done_s)):
            rows.setdefault((e.request.traffic, e.request.scope, e.request.outcome), e.id)
    all_failures: dict[Key, Counter[Outcome]] = {}
    excused: dict[Key, Counter[Outcome]] = {}
    firsts: dict[tuple[str, int, Outcome], FirstFailure] = {}
    for row in reader.failures():
        key = (row.traffic, row.scope)
        all_failures.setdefault(key, Counter()).update(row.outcomes)
        apart = stretches.covers(row.second)
        if apart:
            excused.setdefault(key, Counter()).update(row.outcomes)
        for outcome in row.outcomes:
            what = (row.traffic, row.scope, outcome)
            if what not in firsts and (not apart or outcome in MISMATCHES):
                firsts[what] = FirstFailure(row.second, row.traffic, rows.get(what))
    return all_failures, excused, firsts


def _stale_kept(reader: StoreReader, stretches: Stretches) -> list[tuple[int, float]]:
    rows = [e.request for e in reader.evidence(limit=2**31) if e.request.outcome is Outcome.STALE_REUSE]
    return [(r.scope, r.done_s - r.sent_s) for r in rows if not stretches.covers(int(r.done_s))]


def _identities(reader: StoreReader) -> tuple[list[str], dict[str, int]]:
    """Check both identities for every class at every second; return the first breaks and what is in flight."""
    slots: dict[str, Slots] = {}
    done: Counter[str] = Counter()
    flying: dict[tuple[int, str], int] = {}
    broken: dict[str, str] = {}
    workers = reader.worker_seconds()
    said = next(workers, None)
    for second, traffic, scheduled, sent, dropped, missed, ended in reader.class_seconds():
        while said is not None and said.second <= second:
            for name, n in said.in_flight.items():
                flying[said.worker, name] = n
            said = next(workers, None)
        mine = slots.setdefault(traffic, Slots())
        mine.scheduled += scheduled
        mine.sent += sent
        mine.dropped += dropped
        mine.missed += missed
        done[traffic] += ended
        if traffic not in broken:
            now = sum(n for (_, name), n in flying.items() if name == traffic)
            if sentences := broken_identities(
                f"class {traffic} at second {second}", mine, done[traffic], now
            ):
                broken[traffic] = "; ".join(sentences)
    while said is not None:
        for name, n in said.in_flight.items():
            flying[said.worker, name] = n
        said = next(workers, None)
    in_flight: Counter[str] = Counter()
    for (_, name), n in flying.items():
        in_flight[name] += n
    return list(broken.values())[:_MOST_SENTENCES], dict(in_flight)


def _worker(reader: StoreReader) -> SelfTotals:
    cpu: dict[int, list[float]] = {}
    rss: dict[int, int] = {}
    most: Counter[int] = Counter()
    gap_s = 0.0
    for w in reader.worker_seconds():
        times = cpu.setdefault(w.worker, [0.0])
        if w.cpu_s < times[-1]:  # a worker that replaced a dead one starts from zero
            times.append(0.0)
        times[-1] = w.cpu_s
        rss[w.worker] = w.rss_bytes
        most[w.worker] = max(most[w.worker], w.rss_bytes)
        gap_s = max(gap_s, w.loop_gap_s)
    return SelfTotals(
        len(rss), sum(sum(times) for times in cpu.values()), sum(rss.values()), sum(most.values()), gap_s
    )
