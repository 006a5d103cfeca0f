"""One second of folded samples: what a load worker hands over, as JSON on a pipe. Windows merge exactly.

A row is one traffic class in one scope (phase and faults, stamped at send). ``scheduled``, ``sent``, ``dropped``
and ``missed`` count slots that were due in this second; outcomes count requests that were *done* in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from soak.measure.histogram import Histogram
from soak.model import ConnectionStats, FailedRequest, Outcome, SelfStats, Sighting, SightKind, SightVia


@dataclass(frozen=True, slots=True)
class Window:
    """One traffic class, one second, one scope.

    Two identities hold. In each row ``scheduled == sent + dropped + missed``. For each class, summed over all rows
    so far, ``sent == sum(outcomes.values()) + in_flight`` where ``in_flight`` is the newest second's value.
    """

    second: int
    """Seconds since run start; the window covers [second, second + 1)."""
    traffic: str
    scope: int
    scheduled: int
    sent: int
    dropped: int
    missed: int
    carried: int
    """Failures counted here whose request was sent in an earlier, steady scope (in flight when the fault struck).

    A download that is cut during a fault is carried from whatever scope it was sent in.
    """
    in_flight: int
    """Requests of the class (all scopes) in flight at the end of the second; the same in each row of the second."""
    outcomes: Mapping[Outcome, int]
    stale_non_idempotent: int
    """The share of ``stale_reuse`` whose request was not idempotent (a client could not retry it blindly)."""
    latency: Histogram
    service: Histogram
    lag: Histogram
    last_failure_due_s: float | None
    """Due instant, in seconds since run start, of the latest failed request counted in this row.

    Of a download that was cut, and of a socket that was, the instant of the cut: it was due long before what broke it.
    """
    bytes_received: int = 0
    handshake: Histogram = field(default_factory=Histogram)
    """From the start of a connect until the connection was usable, TLS included, for each that came up in this second."""
    streaming: bool = False
    """The class's requests are long by design: its latency ends with the first byte and is booked when all is done."""

    @property
    def ok(self) -> int:
        """Requests that ended as promised."""
        return self.outcomes.get(Outcome.OK, 0)

    @property
    def failed(self) -> int:
        """Requests that ended, but not as promised."""
        return sum(self.outcomes.values()) - self.ok


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """All that one worker says about one second."""

    worker: int
    second: int
    windows: Sequence[Window]
    sightings: Sequence[Sighting]
    connections: ConnectionStats
    open_connections: int
    idle_connections: int
    evidence: Sequence[FailedRequest]
    evidence_dropped: int
    """Failed requests of this second beyond the reservoir's cap."""
    stats: SelfStats
    final: bool = False
    """The last report of the worker: every slot is accounted for and nothing is in flight."""
    notes: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """Events the worker wants recorded: ``{"name": "load.stalled", ...}``."""


def to_line(report: WorkerReport) -> bytes:
    """Encode a report as one line of JSON."""
    return json.dumps(_to_wire(report), separators=(",", ":")).encode() + b"\n"


def from_line(line: bytes) -> WorkerReport:
    """Decode what ``to_line`` wrote. Raises ``ValueError`` or ``KeyError`` for anything else."""
    return _from_wire(json.loads(line))


def _to_wire(report: WorkerReport) -> dict[str, Any]:
    return {
        "worker": report.worker,
        "second": report.second,
        "windows": [_window_to_wire(w) for w in report.windows],
        "sightings": [[s.kind, s.value, s.via, s.first_s, s.last_s, s.count] for s in report.sightings],
        "connections": asdict(report.connections),
        "open": report.open_connections,
        "idle": report.idle_connections,
        "evidence": [asdict(e) for e in report.evidence],
        "evidence_dropped": report.evidence_dropped,
        "stats": asdict(report.stats),
        "final": report.final,
        "notes": list(report.notes),
    }


def _window_to_wire(w: Window) -> list[Any]:
    return [
        w.second,
        w.traffic,
        w.scope,
        [w.scheduled, w.sent, w.dropped, w.missed, w.carried, w.in_flight],
        dict(w.outcomes),
        w.stale_non_idempotent,
        w.latency.to_wire(),
        w.service.to_wire(),
        w.lag.to_wire(),
        w.last_failure_due_s,
        w.bytes_received,
        w.streaming,
        w.handshake.to_wire(),
    ]


def _window_from_wire(wire: Sequence[Any]) -> Window:
    (
        second,
        traffic,
        scope,
        slots,
        outcomes,
        stale,
        latency,
        service,
        lag,
        last_failure,
        received,
        streaming,
        handshake,
    ) = wire
    scheduled, sent, dropped, missed, carried, in_flight = slots
    return Window(
        second=second,
        traffic=traffic,
        scope=scope,
        scheduled=scheduled,
        sent=sent,
        dropped=dropped,
        missed=missed,
        carried=carried,
        in_flight=in_flight,
        outcomes={Outcome(k): n for k, n in outcomes.items()},
        stale_non_idempotent=stale,
        latency=Histogram.from_wire(latency),
        service=Histogram.from_wire(service),
        lag=Histogram.from_wire(lag),
        last_failure_due_s=last_failure,
        bytes_received=received,
        streaming=streaming,
        handshake=Histogram.from_wire(handshake),
    )


def _from_wire(wire: Mapping[str, Any]) -> WorkerReport:
    return WorkerReport(
        worker=wire["worker"],
        second=wire["second"],
        windows=[_window_from_wire(w) for w in wire["windows"]],
        sightings=[
            Sighting(SightKind(k), v, SightVia(via), f, la, n) for k, v, via, f, la, n in wire["sightings"]
        ],
        connections=ConnectionStats(**wire["connections"]),
        open_connections=wire["open"],
        idle_connections=wire["idle"],
        evidence=[FailedRequest(**{**e, "outcome": Outcome(e["outcome"])}) for e in wire["evidence"]],
        evidence_dropped=wire["evidence_dropped"],
        stats=SelfStats(**wire["stats"]),
        final=wire["final"],
        notes=wire["notes"],
    )
