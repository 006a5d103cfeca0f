"""Runs made of whole cloth: a store written through the real ``StoreWriter``, second by second, deterministic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chaos.model import FaultOutcome, FaultRecord, Source
from soak.measure.histogram import Histogram
from soak.measure.window import Window, WorkerReport
from soak.model import (
    CertificateRecord,
    ConnectionStats,
    Event,
    FailedRequest,
    Outcome,
    Phase,
    Scope,
    SelfStats,
    Sighting,
    SightKind,
    SightVia,
    Unwell,
    Vital,
)
from soak.plan import Plan
from soak.store import StoreWriter

CONNECTIONS = ConnectionStats(
    opened=5, closed_by_peer=2, closed_by_us=3, tls_full=4, tls_resumed=1, reused=95
)
"""Of one second."""
SHAPES = {
    "reload": "transition",
    "reload-bad": "transition",
    "cert-rotate": "transition",
    "backend-down": "fault",
}


def histogram(n: int, ms: float) -> Histogram:
    """Return n equal samples."""
    h = Histogram()
    if n:
        h.add(int(ms * 1e6), n)
    return h


def stats(second: int = 0, **changes: Any) -> SelfStats:
    """Return a healthy worker's word on itself."""
    values: dict[str, Any] = {
        "cpu_s": second * 0.05,
        "rss_bytes": 50_000_000,
        "fds": 60,
        "loop_gap_s": 0.001,
        "lag_p50_s": 0.0001,
        "lag_p99_s": 0.0003,
        "lag_p999_s": 0.001,
        "lag_max_s": 0.002,
    }
    return SelfStats(**{**values, **changes})


def window(second: int, traffic: str = "get", scope: int = 0, **changes: Any) -> Window:
    """Return a window of 100 requests that all ended well in 1 ms, on one connection that came up in 2.5 ms, with changes."""
    values: dict[str, Any] = {
        "second": second,
        "traffic": traffic,
        "scope": scope,
        "scheduled": 100,
        "sent": 100,
        "dropped": 0,
        "missed": 0,
        "carried": 0,
        "in_flight": 0,
        "outcomes": {Outcome.OK: 100},
        "stale_non_idempotent": 0,
        "latency": histogram(100, 1.0),
        "service": histogram(100, 0.9),
        "lag": histogram(100, 0.1),
        "handshake": histogram(1, 2.5),
        "last_failure_due_s": None,
        "bytes_received": 102_400,
    }
    return Window(**{**values, **changes})


def report(second: int, *windows: Window, worker: int = 0, **changes: Any) -> WorkerReport:
    """Return a worker's report on one second."""
    values: dict[str, Any] = {
        "sightings": (),
        "connections": CONNECTIONS,
        "open_connections": 10,
        "idle_connections": 9,
        "evidence": (),
        "evidence_dropped": 0,
        "stats": stats(second),
    }
    return WorkerReport(worker, second, windows, **{**values, **changes})


def failed(
    second: int, scope: int = 0, outcome: Outcome = Outcome.STATUS_5XX, **changes: Any
) -> FailedRequest:
    """Return an evidence row, due half-way through a second."""
    values: dict[str, Any] = {
        "id": f"r{second}",
        "traffic": "get",
        "scope": scope,
        "outcome": outcome,
        "due_s": second + 0.5,
        "sent_s": second + 0.5001,
        "first_byte_s": second + 0.501,
        "done_s": second + 0.502,
        "connection": 7,
        "connection_age_s": 3.25,
        "reused": True,
        "idempotent": True,
        "status": 502,
        "origin": "b1",
        "generation": "1",
        "serial": "aa",
        "error": "upstream said no",
    }
    return FailedRequest(**{**values, **changes})


def record(fault: int, kind: str, at_s: float, **changes: Any) -> FaultRecord:
    """Return a verified fault instance: a transition in effect after 0.1 s, or a backend gone for 5 s."""
    values: dict[str, Any] = {
        "id": fault,
        "kind": kind,
        "target": "proxy",
        "source": Source.SCHEDULE,
        "planned_s": at_s,
        "injected_s": at_s,
        "active_s": at_s + 0.1,
        "recovered_s": at_s,
        "recovery_s": 0.0,
        "outcome": FaultOutcome.VERIFIED,
    }
    if SHAPES[kind] == "fault":
        values |= {"target": "b1", "reverted_s": at_s + 5.0, "recovered_s": at_s + 5.0}
    return FaultRecord(**{**values, **changes})


@dataclass
class SyntheticRun:
    """A healthy run of one class at 100 req/s; tests spoil what they want to see found."""

    seconds: int = 60
    plan: Mapping[str, Any] = field(default_factory=dict)
    faults: list[FaultRecord] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=lambda: [Scope(0, Phase.STEADY)])
    failures: dict[int, dict[Outcome, int]] = field(default_factory=dict)
    evidence: dict[int, list[FailedRequest]] = field(default_factory=dict)
    changes: dict[int, dict[str, Any]] = field(default_factory=dict)
    unwell: list[Unwell] = field(default_factory=list)
    sightings: list[Sighting] = field(default_factory=list)
    certificates: list[CertificateRecord] = field(default_factory=list)
    vitals: list[Vital] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    beside: Callable[[int], Sequence[Window]] = lambda _: ()
    """Windows of further classes, by second."""
    reused: int = 95
    """Requests of a second that went out on a kept connection."""
    origins: dict[str, dict[str, int]] | None = None
    """What the origins counted, by name; None: nobody asked."""
    ended: Mapping[str, Any] | None = None
    killed: bool = False

    def add_fault(self, fault: FaultRecord, until_s: float | None = None) -> FaultRecord:
        """Add a fault with its scopes: phase ``fault`` from its injection, steady again two seconds after its end."""
        self.faults.append(fault)
        start_s = fault.planned_s if fault.injected_s is None else fault.injected_s
        end_s = until_s or (fault.reverted_s or start_s) + 2.0
        n = len(self.scopes)
        self.scopes += [Scope(n, Phase.FAULT, (fault.id,), start_s), Scope(n + 1, Phase.STEADY, (), end_s)]
        return fault

    def fail(self, second: int, outcome: Outcome, n: int = 1, *, evidence: bool = True) -> None:
        """Let n requests of a second fail."""
        self.failures.setdefault(second, {})[outcome] = n
        if evidence:
            self.evidence.setdefault(second, []).append(failed(second, self.scope_at(second), outcome))

    def see(
        self, kind: SightKind, value: str, first_s: float, last_s: float, via: SightVia = SightVia.TRAFFIC
    ) -> None:
        """Let something be seen."""
        self.sightings.append(Sighting(kind, value, via, first_s, last_s, 10))

    def scope_at(self, second: int) -> int:
        """Return the scope of a second: the last one that began by its end."""
        return max(s.id for s in self.scopes if s.start_s < second + 1)

    def window(self, second: int) -> Window:
        """Return the window of a second."""
        failures = self.failures.get(second, {})
        lost = sum(failures.values())
        values: dict[str, Any] = {"outcomes": {Outcome.OK: 100 - lost, **failures}}
        if lost:
            values["last_failure_due_s"] = second + 0.5
        return window(second, scope=self.scope_at(second), **{**values, **self.changes.get(second, {})})

    def write(self, path: Path) -> Path:
        """Write the store and return its path."""
        plan = Plan.model_validate({"length": self.seconds, "rate": 100, **self.plan})
        with StoreWriter(path) as w:
            w.set_meta("plan", plan.model_dump(mode="json", by_alias=True))
            w.set_meta(
                "run",
                {
                    "id": "2026-12-01T08-00-00-nginx",
                    "started_at": "2026-12-01T08:00:00Z",
                    "started_wall_s": 1.0,
                    "seed": 7,
                    "proxy": "nginx",
                    "proxy_version": "1.31.3",
                    "lab": "local",
                    "rate": 100.0,
                    "length_s": plan.length,
                },
            )
            w.set_meta("fault_shapes", SHAPES)
            for scope in self.scopes:
                w.add_scope(scope)
            for second in range(self.seconds):
                windows = (self.window(second), *self.beside(second))
                evidence = self.evidence.get(second, ())
                connections = replace(CONNECTIONS, reused=self.reused)
                w.add_report(report(second, *windows, evidence=evidence, connections=connections))
            for put, records in (
                (w.put_fault, self.faults),
                (w.add_unwell, self.unwell),
                (w.add_sighting, self.sightings),
                (w.add_certificate, self.certificates),
                (w.add_vital, self.vitals),
                (w.add_event, self.events),
            ):
                _put_all(put, records)
            if self.origins is not None:
                w.set_meta("origins", {"at_s": float(self.seconds), "counts": self.origins})
            if not self.killed:
                w.set_meta(
                    "ended", self.ended or {"at_s": self.seconds, "reason": "finished", "dirty": False}
                )
        return path


def _put_all(put: Callable[[Any], None], records: Iterable[Any]) -> None:
    for one in records:
        put(one)
