"""What is going on in a live run, gathered for people: the status, the last events, the next fault. Pure bookkeeping."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from chaos.model import FaultOutcome, FaultRecord
from soak.measure.ledger import Ledger
from soak.model import Event, Outcome, Phase
from soak.plan import Plan
from soak.status import Status

_EVENTS_SHOWN = 12
_STALE_REPORT_S = 5.0
"""Load workers that have not reported for so long have stalled."""
_QUIET_EVENTS = (
    "fault.waiting",
    "host.starved",
    "load.priority",
    "load.unsolicited_bytes",
    "proxy.workers_known",
)


class NextFault(Protocol):
    """A planned fault, as far as it is shown."""

    @property
    def planned_s(self) -> float:
        """When it is due."""
        ...

    @property
    def request(self) -> Any:
        """The request: kind and target."""
        ...


@dataclass(frozen=True, slots=True)
class Facts:
    """What does not change while a run lives."""

    run_id: str
    pid: int
    started_at: str
    proxy_version: str
    proxy_url: str
    http_url: str
    proxy_metrics_url: str = ""
    """The proxy's own metrics; "": it has none."""


class LiveState:
    """Folds events and fault records; makes a ``Status`` when asked."""

    def __init__(self, plan: Plan, ledger: Ledger) -> None:
        self._plan = plan
        self._ledger = ledger
        self._events: deque[Event] = deque(maxlen=_EVENTS_SHOWN)
        self._finished: dict[str, Counter[str]] = {}
        self._active: dict[int, FaultRecord] = {}
        self.state = "starting"
        self.dirty = False

    def event(self, event: Event) -> None:
        """Note an event."""
        if event.name not in _QUIET_EVENTS:
            self._events.append(event)

    def fault(self, record: FaultRecord) -> None:
        """Note a fault at one of its steps."""
        if record.outcome is None:
            self._active[record.id] = record
            return
        self._active.pop(record.id, None)
        self._finished.setdefault(record.kind, Counter())[record.outcome.value] += 1
        self.dirty = self.dirty or record.outcome is FaultOutcome.DIRTY

    def problems(self, now_s: float, *, dirty: str, guarded: str) -> list[str]:
        """Return a sentence for each thing that is wrong now. ``dirty`` and ``guarded`` say why, or are empty."""
        behind_s = now_s - (self._ledger.newest_second + 1)
        late = self.state == "running" and behind_s > _STALE_REPORT_S
        found = (
            f"the run is dirty: {dirty}" if dirty else "",
            guarded,
            f"the load workers have not reported for {behind_s:.0f} s" if late else "",
        )
        return [sentence for sentence in found if sentence]

    def status(
        self,
        facts: Facts,
        *,
        now_s: float,
        phase: Phase,
        next_fault: NextFault | None,
        guarded: bool,
    ) -> Status:
        """Return a snapshot."""
        ledger, plan = self._ledger, self._plan
        total = ledger.total()
        outcomes = ledger.by_outcome()
        done = sum(outcomes.values())
        ok = outcomes.get(Outcome.OK, 0)
        latency = ledger.recent_latency()
        return Status(
            run_id=facts.run_id,
            state=self.state,
            proxy=plan.proxy.label,
            proxy_version=facts.proxy_version,
            lab=plan.lab.kind,
            pid=facts.pid,
            started_at=facts.started_at,
            elapsed_s=round(min(max(now_s, 0.0), plan.length), 3),
            length_s=plan.length,
            seed=plan.seed,
            rate_target=plan.rate,
            rate_now=round(ledger.rate_now(), 2),
            scheduled=total.scheduled,
            sent=total.sent,
            ok=ok,
            failed=done - ok,
            dropped=total.dropped,
            missed=total.missed,
            in_flight=ledger.in_flight(),
            outcomes={o.value: n for o, n in sorted(outcomes.items())},
            p50_ms=_ms(latency.quantile_ns(0.5)),
            p99_ms=_ms(latency.quantile_ns(0.99)),
            lag_p99_ms=_ms(ledger.recent_lag().quantile_ns(0.99)),
            phase=phase.value,
            active_faults=[_record(r) for r in self._active.values()],
            next_fault=_next(next_fault),
            faults_done={kind: dict(counts) for kind, counts in sorted(self._finished.items())},
            last_events=[asdict(e) for e in self._events],
            proxy_url=facts.proxy_url,
            http_url=facts.http_url,
            proxy_metrics_url=facts.proxy_metrics_url,
            dirty=self.dirty,
            guarded=guarded,
        )


def _ms(ns: int) -> float:
    return round(ns / 1e6, 3)


def _record(record: FaultRecord) -> dict[str, Any]:
    value = asdict(record)
    del value["evidence"]
    return value


def _next(planned: NextFault | None) -> dict[str, Any] | None:
    if planned is None:
        return None
    return {"kind": planned.request.kind, "target": planned.request.target, "at_s": planned.planned_s}
