"""What the store gives back that has no record elsewhere. Frozen rows; instants in seconds since run start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from soak.measure.histogram import Histogram
from soak.model import FailedRequest, Outcome


@dataclass(frozen=True, slots=True)
class StoredWindow:
    """One traffic class, one second, one scope, all workers merged. ``latency_blob`` is decoded on demand."""

    second: int
    traffic: str
    scope: int
    scheduled: int
    sent: int
    dropped: int
    missed: int
    carried: int
    outcomes: Mapping[Outcome, int]
    stale_non_idempotent: int
    bytes_received: int
    last_failure_due_s: float | None
    latency_blob: bytes

    @property
    def latency(self) -> Histogram:
        """Latencies from due of the requests done in this second."""
        return Histogram.from_blob(self.latency_blob)


@dataclass(frozen=True, slots=True)
class SlotTotals:
    """Sums over seconds of one class in one scope."""

    traffic: str
    scope: int
    scheduled: int
    sent: int
    dropped: int
    missed: int
    carried: int
    ok: int
    failed: int
    stale_non_idempotent: int
    bytes_received: int


@dataclass(frozen=True, slots=True)
class FailureRow:
    """Failures of one class in one second and scope, by outcome."""

    second: int
    traffic: str
    scope: int
    outcomes: Mapping[Outcome, int]


@dataclass(frozen=True, slots=True)
class WorkerSecond:
    """What one load worker said about itself and its connections in one second."""

    second: int
    worker: int
    cpu_s: float
    rss_bytes: int
    fds: int
    loop_gap_s: float
    lag_p50_s: float
    lag_p99_s: float
    lag_p999_s: float
    lag_max_s: float
    open_connections: int
    idle_connections: int
    in_flight: Mapping[str, int]
    """Requests in flight at the end of the second, by class."""


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """One failed request with its row number: ``soak report --evidence e17`` shows row 17."""

    id: int
    worker: int
    request: FailedRequest
