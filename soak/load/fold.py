"""The accumulators of the hot path: one mutable row per class and scope, frozen into a ``Window`` each second."""

from __future__ import annotations

from soak.measure.histogram import Histogram
from soak.measure.window import Window
from soak.model import Outcome


class Row:
    """What happened to one class in one scope during the present second. Counters are bumped in place, without calls."""

    __slots__ = (
        "bytes_received",
        "carried",
        "dropped",
        "handshake",
        "handshake_max",
        "handshake_sum",
        "lag",
        "lag_max",
        "lag_sum",
        "last_failure_due",
        "latency",
        "latency_max",
        "latency_sum",
        "missed",
        "ok",
        "outcomes",
        "scope",
        "sent",
        "service",
        "service_max",
        "service_sum",
        "stale_non_idempotent",
    )

    def __init__(self, scope: int) -> None:
        self.scope = scope
        self.sent = self.dropped = self.missed = self.carried = 0
        self.ok = self.stale_non_idempotent = self.bytes_received = 0
        self.outcomes: dict[Outcome, int] = {}
        self.latency: dict[int, int] = {}
        self.service: dict[int, int] = {}
        self.lag: dict[int, int] = {}
        self.latency_sum = self.latency_max = 0
        self.service_sum = self.service_max = 0
        self.lag_sum = self.lag_max = 0
        self.handshake: dict[int, int] = {}
        self.handshake_sum = self.handshake_max = 0
        self.last_failure_due = 0

    @property
    def empty(self) -> bool:
        """Whether nothing happened."""
        return not (self.sent or self.dropped or self.missed or self.ok or self.outcomes)

    def freeze(
        self, second: int, traffic: str, in_flight: int, t0_ns: int, *, streaming: bool = False
    ) -> Window:
        """Return the row as a window of this second."""
        outcomes = dict(self.outcomes)
        if self.ok:
            outcomes[Outcome.OK] = self.ok
        return Window(
            second=second,
            traffic=traffic,
            scope=self.scope,
            scheduled=self.sent + self.dropped + self.missed,
            sent=self.sent,
            dropped=self.dropped,
            missed=self.missed,
            carried=self.carried,
            in_flight=in_flight,
            outcomes=outcomes,
            stale_non_idempotent=self.stale_non_idempotent,
            latency=Histogram.of(self.latency, self.latency_sum, self.latency_max),
            service=Histogram.of(self.service, self.service_sum, self.service_max),
            lag=Histogram.of(self.lag, self.lag_sum, self.lag_max),
            last_failure_due_s=(self.last_failure_due - t0_ns) / 1e9 if self.last_failure_due else None,
            bytes_received=self.bytes_received,
            streaming=streaming,
            handshake=Histogram.of(self.handshake, self.handshake_sum, self.handshake_max),
        )
