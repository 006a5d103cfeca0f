"""The state of a live run, as shown by ``soak status``, the live view and the control socket. Plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Status:
    """A snapshot of a live run. Times in seconds since run start unless named otherwise; latencies in milliseconds."""

    run_id: str
    state: str
    """``starting``, ``running``, ``stopping``, ``finished``."""
    proxy: str
    proxy_version: str
    lab: str
    pid: int
    started_at: str
    elapsed_s: float
    length_s: float
    seed: int
    rate_target: float
    rate_now: float
    """Requests sent per second over the last 5 s."""
    scheduled: int
    sent: int
    ok: int
    failed: int
    dropped: int
    missed: int
    in_flight: int
    outcomes: Mapping[str, int]
    p50_ms: float
    p99_ms: float
    """Latency from due, over the last 10 s."""
    lag_p99_ms: float
    phase: str
    active_faults: Sequence[Mapping[str, Any]]
    """FaultRecords under way, as JSON: id, kind, target, injected_s, ..."""
    next_fault: Mapping[str, Any] | None
    """``{"kind", "target", "at_s"}`` of the next planned fault."""
    faults_done: Mapping[str, Mapping[str, int]]
    """Finished faults by kind and outcome."""
    last_events: Sequence[Mapping[str, Any]]
    proxy_url: str
    http_url: str
    """Base URL of the read-only pages (/metrics, /healthz)."""
    proxy_metrics_url: str = ""
    """The proxy's own metrics; "": it has none."""
    dirty: bool = False
    guarded: bool = False
    """The abort guard stopped further faults."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Status:
        """Read what ``to_json`` wrote."""
        return cls(**value)
