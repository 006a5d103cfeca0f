"""The Prometheus exporter: renders, at each scrape, what the ledger and the last records say. A leaf; nothing reads it back.

No work per request: traffic is read from the ledger's totals when somebody scrapes. Every series that can exist is there
at 0 from the first scrape. What each metric means is in ``soak.metric_catalog``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from chaos.model import FaultOutcome, FaultRecord
from soak.measure.histogram import Histogram, bucket_of
from soak.measure.ledger import Ledger, Slots
from soak.measure.window import WorkerReport
from soak.metric_catalog import CATALOG, LAG_BOUNDS_S, LATENCY_BOUNDS_S, RECOVERY_BOUNDS_S, MetricSpec, ladder
from soak.model import (
    CertificateRecord,
    Event,
    OriginTotals,
    Outcome,
    Phase,
    Sighting,
    SightKind,
    SightVia,
    Unwell,
    Vital,
)
from soak.plan import Plan
from soak.status import Status

STATES = ("starting", "running", "stopping", "finished")
EVENT_COUNTERS = {
    "clock.stepped": "soak_clock_steps_total",
    "schedule.misfired": "soak_schedule_misfires_total",
}
MAX_HISTOGRAMS = 30
"""Label sets of all histograms together: what keeps a scrape cheap. Above it handshakes, then latency, have no split by class."""
_NS = 1_000_000_000
_REMEMBERED_FAULTS = 4096

Labels = tuple[str, ...]


class Buckets:
    """Cumulative Prometheus buckets out of log-linear histograms. A boundary is off by at most one bucket of theirs (0.8 %)."""

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self.names = [*(f"{bound:g}" for bound in bounds_s), "+Inf"]
        self._limits = [bucket_of(round(bound * _NS)) for bound in bounds_s]

    def count(self, histogram: Histogram) -> tuple[list[int], int]:
        """Return counts by bucket, not yet cumulative, and the sum in nanoseconds."""
        out = [0] * len(self.names)
        for index, n in histogram.counts.items():
            out[bisect_left(self._limits, index)] += n
        return out, histogram.sum_ns


class _Fault:
    """What was counted of one fault instance, so that a record may be observed at each step."""

    __slots__ = ("finished", "injected", "recovered")

    def __init__(self) -> None:
        self.injected = self.recovered = self.finished = False


class Metrics(Collector):
    """Folds records, reads the ledger, renders. ``faults`` names the targets of each fault kind the lab supports.

    ``transitions`` are the kinds without a revert: they are active until their effect is seen.
    """

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        *,
        run_id: str,
        proxy_version: str,
        started_wall_s: float,
        faults: Mapping[str, Sequence[str]],
        transitions: Collection[str] = (),
    ) -> None:
        self._plan, self._ledger = plan, ledger
        self._started_wall_s = started_wall_s
        self._status: Status | None = None
        self._classes = [c.name for c in plan.traffic.classes]
        self._kinds = sorted(faults)
        self._transitions = frozenset(transitions)
        timeout_s = plan.traffic.response_timeout
        self._latency = Buckets(ladder(LATENCY_BOUNDS_S[0], max(10.0, timeout_s), (timeout_s,)))
        self._lag = Buckets(LAG_BOUNDS_S)
        self._recovery = Buckets(sorted({*RECOVERY_BOUNDS_S, plan.objectives.recovery_within}))
        self._values: dict[str, dict[Labels, float]] = {spec.name: {} for spec in CATALOG}
        self._recoveries = {kind: Histogram() for kind in self._kinds}
        self._seen: dict[int, _Fault] = {}
        self._active: dict[Labels, set[int]] = defaultdict(set)
        self._cpu: dict[str, float] = {}
        self._serial = ""
        self._serial_s = 0.0
        self._zero(faults)
        info = (run_id, plan.proxy.label, proxy_version, plan.lab.kind)
        self._set("soak_run_info", 1, info)
        self._set("soak_run_start_timestamp_seconds", started_wall_s)
        self._set("soak_run_length_seconds", plan.length)
        self._set("soak_target_requests_per_second", plan.rate)
        self._set("soak_objective_success_ratio", plan.objectives.success)
        budget = plan.length * plan.rate * (1 - plan.objectives.success)
        self._set("soak_failure_budget_requests", round(budget, 6))
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    # -- what the daemon tells --------------------------------------------------------------------------------------

    def set_start(self, started_wall_s: float) -> None:
        """Correct the wall time of the run's start, once it is known."""
        self._started_wall_s = started_wall_s
        self._set("soak_run_start_timestamp_seconds", started_wall_s)

    def set_status(self, status: Status) -> None:
        """Take the newest snapshot of the run."""
        self._status = status

    def observe_report(self, report: WorkerReport) -> None:
        """Take the sightings of a worker's report. Its windows are read from the ledger, not from here."""
        for sighting in report.sightings:
            self.observe_sighting(sighting)

    def observe_sighting(self, sighting: Sighting) -> None:
        """Take note of a generation in traffic, or of a serial in a fresh handshake."""
        if sighting.kind is SightKind.GENERATION and sighting.value.isdecimal():
            name = "soak_config_generation_seen"
            self._set(name, max(self._values[name][()], int(sighting.value)))
        elif sighting.kind is SightKind.SERIAL and sighting.via is SightVia.PROBE:
            name = "soak_certificate_first_seen_timestamp_seconds"
            if sighting.value == self._serial and not self._values[name][()]:
                self._set(name, self._started_wall_s + max(sighting.first_s, self._serial_s))

    def set_generation(self, generation: int) -> None:
        """The proxy was told to serve this config generation."""
        self._set("soak_config_generation", generation)

    def observe_certificate(self, record: CertificateRecord, *, not_after_wall_s: float) -> None:
        """A certificate was installed; it is the present one from now on."""
        self._serial, self._serial_s = record.serial, record.installed_s
        self._add("soak_certificates_installed_total", 1)
        self._set("soak_certificate_installed_timestamp_seconds", self._started_wall_s + record.installed_s)
        self._set("soak_certificate_first_seen_timestamp_seconds", 0)
        self._set("soak_certificate_not_after_timestamp_seconds", not_after_wall_s)

    def observe_fault(self, record: FaultRecord) -> None:
        """Count what is new in a record; call it at each step of the lifecycle, in order."""
        seen = self._seen.setdefault(record.id, _Fault())
        while len(self._seen) > _REMEMBERED_FAULTS:
            del self._seen[next(iter(self._seen))]
        where = (record.kind, record.target)
        if record.injected_s is not None and not seen.injected:
            seen.injected = True
            self._add("soak_fault_injections_total", 1, where)
            started = self._started_wall_s + record.injected_s
            self._set("soak_fault_last_start_timestamp_seconds", started, where)
        if seen.injected:  # one that never was has no series: its target may be a typo
            (self._active[where].add if self._is_active(record) else self._active[where].discard)(record.id)
            self._set("soak_fault_active", int(bool(self._active[where])), where)
        if record.recovery_s is not None and not seen.recovered:
            seen.recovered = True
            self._recoveries.setdefault(record.kind, Histogram()).add(round(record.recovery_s * _NS))
            self._set("soak_fault_last_recovery_seconds", record.recovery_s, (record.kind,))
        if record.outcome is not None and not seen.finished:
            seen.finished = True
            self._add("soak_fault_outcomes_total", 1, (record.kind, record.outcome.value))

    def _is_active(self, record: FaultRecord) -> bool:
        if record.injected_s is None or record.reverted_s is not None:
            return False
        if record.kind in self._transitions and record.active_s is not None:
            return False
        return record.outcome in (None, FaultOutcome.DIRTY)

    def observe_vital(self, vital: Vital) -> None:
        """Take one look at the proxy, a backend or the daemon. Load workers are read from their own reports."""
        cpu_s = self._grown(vital.subject, vital.cpu_s)
        if vital.subject == "proxy":
            self._set("soak_proxy_resident_memory_bytes", vital.rss_bytes)
            self._set("soak_proxy_open_fds", vital.fds)
            self._set("soak_proxy_processes", vital.processes)
            self._set("soak_proxy_old_processes", vital.old_processes)
            self._add("soak_proxy_cpu_seconds_total", cpu_s)
        elif vital.subject == "daemon":
            self._set("soak_self_resident_memory_bytes", vital.rss_bytes, ("daemon",))
            self._set("soak_self_open_fds", vital.fds, ("daemon",))
            self._add("soak_self_cpu_seconds_total", cpu_s, ("daemon",))
        elif vital.subject in self._backends:
            self._set("soak_backend_resident_memory_bytes", vital.rss_bytes, (vital.subject,))
            self._set("soak_backend_processes", vital.processes, (vital.subject,))

    def observe_origins(self, totals: OriginTotals) -> None:
        """Take what the backends have counted themselves."""
        for name, counts in totals.counts.items():
            if name in self._backends:
                cached = sum(n for counter, n in counts.items() if counter.startswith("cache."))
                self._set("soak_origin_requests_total", counts.get("requests", 0), (name,))
                self._set("soak_origin_duplicates_total", counts.get("duplicates", 0), (name,))
                self._set("soak_origin_cacheable_answers_total", cached, (name,))

    def observe_event(self, event: Event) -> None:
        """Count the events that have a counter (``EVENT_COUNTERS``); others are none of ours."""
        if name := EVENT_COUNTERS.get(event.name):
            self._add(name, 1)

    def observe_unwell(self, unwell: Unwell) -> None:
        """Some seconds were set apart."""
        self._add("soak_self_unwell_seconds_total", max(0.0, unwell.to_s - unwell.from_s))

    def render(self) -> tuple[bytes, str]:
        """Return the exposition and its content type: a function for ``soak.web.pages``."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    # -- what a scrape reads ----------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """Yield every family of the catalog, in its order."""
        self._read_status()
        self._read_traffic()
        self._read_workers()
        histograms = self._histograms()
        for spec in CATALOG:
            metric = Metric(spec.name.removesuffix("_total"), spec.help, spec.kind)
            if spec.kind == "histogram":
                for labels, buckets, counts, sum_ns in histograms[spec.name]:
                    _add_histogram(
                        metric, dict(zip(spec.labels, labels, strict=True)), buckets, counts, sum_ns
                    )
            else:
                for labels, value in self._values[spec.name].items():
                    metric.add_sample(spec.name, dict(zip(spec.labels, labels, strict=True)), value)
            yield metric

    def _read_status(self) -> None:
        status = self._status
        self._one_of("soak_run_state", STATES, status.state if status else "starting")
        self._one_of("soak_phase", [p.value for p in Phase], status.phase if status else Phase.STEADY.value)
        if status is not None:
            self._set("soak_run_elapsed_seconds", status.elapsed_s)
            self._set("soak_run_dirty", int(status.dirty))
            self._set("soak_run_guarded", int(status.guarded))

    def _read_traffic(self) -> None:
        ledger = self._ledger
        for name in self._classes:
            slots = ledger.slots.get(name, Slots())
            self._set("soak_slots_scheduled_total", slots.scheduled, (name,))
            self._set("soak_slots_dropped_total", slots.dropped, (name,))
            self._set("soak_slots_missed_total", slots.missed, (name,))
            self._set("soak_requests_sent_total", slots.sent, (name,))
            self._set("soak_requests_in_flight", ledger.in_flight(name), (name,))
        requests = self._values["soak_requests_total"]
        for (name, outcome, phase), n in ledger.outcomes.items():
            requests[name, outcome.value, phase.value] = n
        connections = ledger.connections
        for name, labels, value in (
            ("soak_requests_carried_total", (), ledger.carried),
            ("soak_stale_reuse_non_idempotent_total", (), ledger.stale_non_idempotent),
            ("soak_evidence_dropped_total", (), ledger.evidence_dropped),
            ("soak_received_bytes_total", (), ledger.bytes_received),
            ("soak_connections_opened_total", (), connections.opened),
            ("soak_connections_closed_total", ("peer",), connections.closed_by_peer),
            ("soak_connections_closed_total", ("us",), connections.closed_by_us),
            ("soak_connections_reused_total", (), connections.reused),
            ("soak_tls_handshakes_total", ("full",), connections.tls_full),
            ("soak_tls_handshakes_total", ("resumed",), connections.tls_resumed),
            ("soak_connections_open", (), ledger.open_connections),
            ("soak_connections_idle", (), ledger.idle_connections),
        ):
            self._set(name, value, labels)

    def _read_workers(self) -> None:
        workers = {number: report.stats for number, report in self._ledger.newest.items()}
        for number, stats in workers.items():
            cpu_s = self._grown(f"worker {number}", stats.cpu_s)
            self._add("soak_self_cpu_seconds_total", cpu_s, ("worker",))
        stats_now = workers.values()
        self._set("soak_self_resident_memory_bytes", sum(s.rss_bytes for s in stats_now), ("worker",))
        self._set("soak_self_open_fds", sum(s.fds for s in stats_now), ("worker",))
        self._set("soak_self_loop_gap_seconds", max((s.loop_gap_s for s in stats_now), default=0))
        self._set("soak_self_lag_p99_seconds", max((s.lag_p99_s for s in stats_now), default=0))

    def _histograms(self) -> dict[str, list[tuple[Labels, Buckets, list[int], int]]]:
        """Return label sets, boundaries, counts and sum of every histogram family."""
        empty = ([0] * len(self._latency.names), 0)
        counted = {key: self._latency.count(h) for key, h in self._ledger.latency.items()}
        by_class = {
            (c,): _total(empty, (counted.get((c, phase), empty) for phase in Phase)) for c in self._classes
        }
        by_phase = {
            (phase.value,): _total(empty, (counted.get((c, phase), empty) for c in self._classes))
            for phase in Phase
        }
        if len(by_class) + len(by_phase) + len(self._recoveries) + 2 > MAX_HISTOGRAMS:
            by_class = {("all",): _total(empty, by_phase.values())}
        shaken = {
            (c,): self._latency.count(self._ledger.handshake.get(c, Histogram())) for c in self._classes
        }
        if len(by_class) + len(by_phase) + len(self._recoveries) + 1 + len(shaken) > MAX_HISTOGRAMS:
            shaken = {("all",): _total(empty, shaken.values())}
        lag = Histogram()
        for one in self._ledger.lag.values():
            lag.merge(one)
        recoveries = {(kind,): self._recovery.count(h) for kind, h in self._recoveries.items()}
        return {
            "soak_request_latency_seconds": [(k, self._latency, *v) for k, v in by_class.items()],
            "soak_request_latency_by_phase_seconds": [(k, self._latency, *v) for k, v in by_phase.items()],
            "soak_handshake_seconds": [(k, self._latency, *v) for k, v in shaken.items()],
            "soak_send_lag_seconds": [((), self._lag, *self._lag.count(lag))],
            "soak_fault_recovery_seconds": [(k, self._recovery, *v) for k, v in recoveries.items()],
        }

    # -- values -----------------------------------------------------------------------------------------------------

    def _zero(self, faults: Mapping[str, Sequence[str]]) -> None:
        """Create every series at 0."""
        self._backends = [f"b{i + 1}" for i in range(self._plan.lab.backends)]
        values: dict[str, Sequence[str]] = {
            "class": self._classes,
            "phase": [p.value for p in Phase],
            "target": self._backends,
            "by": ("peer", "us"),
            "process": ("daemon", "worker"),
            "state": STATES,
            "fault": self._kinds,
        }
        pairs = [(kind, target) for kind in self._kinds for target in faults[kind]]
        for spec in CATALOG:
            if spec.kind == "histogram" or spec.name == "soak_run_info":
                continue
            for labels in _series(spec, values, pairs):
                self._set(spec.name, 0, labels)

    def _set(self, name: str, value: float, labels: Labels = ()) -> None:
        self._values[name][labels] = value

    def _add(self, name: str, value: float, labels: Labels = ()) -> None:
        self._values[name][labels] = self._values[name].get(labels, 0) + value

    def _one_of(self, name: str, all_of: Iterable[str], present: str) -> None:
        for one in all_of:
            self._set(name, int(one == present), (one,))

    def _grown(self, subject: str, cpu_s: float) -> float:
        """Return by how much a subject's CPU time grew; it falls when one of its processes ends, which is no growth."""
        last_s, self._cpu[subject] = self._cpu.get(subject, 0.0), cpu_s
        return max(0.0, cpu_s - last_s)


def _series(spec: MetricSpec, values: Mapping[str, Sequence[str]], pairs: Sequence[Labels]) -> list[Labels]:
    """Return every label set that a family can have."""
    if spec.labels == ("fault", "target"):
        return list(pairs)
    out: list[Labels] = [()]
    for label in spec.labels:
        if label == "outcome":
            known: Sequence[str] = [o.value for o in (FaultOutcome if "fault" in spec.labels else Outcome)]
        elif label == "kind":
            known = ("full", "resumed")
        else:
            known = values[label]
        out = [(*labels, value) for labels in out for value in known]
    return out


def _total(empty: tuple[list[int], int], parts: Iterable[tuple[list[int], int]]) -> tuple[list[int], int]:
    counts, sum_ns = list(empty[0]), 0
    for part, part_sum_ns in parts:
        counts = [a + b for a, b in zip(counts, part, strict=True)]
        sum_ns += part_sum_ns
    return counts, sum_ns


def _add_histogram(
    metric: Metric, labels: dict[str, Any], buckets: Buckets, counts: Sequence[int], sum_ns: int
) -> None:
    cumulative = list(accumulate(counts))
    for le, n in zip(buckets.names, cumulative, strict=True):
        metric.add_sample(f"{metric.name}_bucket", {**labels, "le": le}, n)
    metric.add_sample(f"{metric.name}_sum", labels, sum_ns / _NS)
    metric.add_sample(f"{metric.name}_count", labels, cumulative[-1])
