"""Takes the load workers' reports and hands each second on: to the store, the totals, the observer, the judges of the moment.

A second is complete when every worker has reported it. Then it is judged once (unwell, steady, recovered, aborting).
Knows no faults and no processes; everything it feeds is given to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from soak.measure.facts import SecondFacts, facts_of
from soak.measure.ledger import Ledger
from soak.measure.wellness import unwell_because
from soak.measure.window import WorkerReport
from soak.model import Outcome, Phase, Scope, Unwell
from soak.observe import TrafficObserver
from soak.plan import SelfPlan
from soak.watch import TrafficRecoveryWatch

_MAX_WAITING_SECONDS = 120


class ReportBook:
    """Fans reports out. ``on_event`` gets what workers noted and what was found out.

    ``feed_guard`` gets requests and failures of each second outside every fault.
    """

    def __init__(
        self,
        *,
        workers: int,
        limits: SelfPlan,
        keep_report: Callable[[WorkerReport], None],
        keep_unwell: Callable[[Unwell], None],
        ledger: Ledger,
        observer: TrafficObserver,
        recovery: TrafficRecoveryWatch,
        feed_guard: Callable[[int, int], None],
        on_report: Callable[[WorkerReport], None],
        on_event: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._workers = workers
        self._limits = limits
        self._keep_report = keep_report
        self._keep_unwell = keep_unwell
        self._ledger = ledger
        self._observer = observer
        self._recovery = recovery
        self._feed_guard = feed_guard
        self._on_report = on_report
        self._on_event = on_event
        self._phases: dict[int, Phase] = {0: Phase.STEADY}
        self._waiting: dict[int, list[WorkerReport]] = {}
        self._judged = -1
        self._violations: set[str] = set()

    def scope(self, scope: Scope) -> None:
        """Make a scope known before reports carry it."""
        self._phases[scope.id] = scope.phase
        self._ledger.scope(scope)
        while len(self._phases) > 1000:
            del self._phases[min(self._phases)]

    def add(self, report: WorkerReport) -> None:
        """Take one report."""
        self._keep_report(report)
        self._ledger.add(report)
        self._on_report(report)
        for sighting in report.sightings:
            self._observer.see(sighting)
        for note in report.notes:
            data = dict(note)
            self._on_event(data.pop("name"), {**data, "worker": report.worker})
        self._waiting.setdefault(report.second, []).append(report)
        self._judge_complete_seconds()

    def _judge_complete_seconds(self) -> None:
        for second in sorted(self._waiting):
            late = len(self._waiting) > _MAX_WAITING_SECONDS
            if len(self._waiting[second]) < self._workers and not late:
                return
            reports = self._waiting.pop(second)
            if second > self._judged:
                self._judged = second
                self._judge(second, reports)

    def _judge(self, second: int, reports: list[WorkerReport]) -> None:
        self._observer.covered(second + 1.0)
        reason = unwell_because(reports, self._limits)
        if reason:
            self._keep_unwell(Unwell(float(second), second + 1.0, reason))
            self._on_event("soak.unwell", {"second": second, "reason": reason})
        steady = all(self._phases.get(w.scope) is Phase.STEADY for r in reports for w in r.windows)
        facts: SecondFacts = facts_of(second, reports, steady=steady, unwell=bool(reason))
        self._recovery.add(facts)
        if steady and not reason:
            self._feed_guard(facts.done, _proxy_failures(reports))
        for sentence in self._ledger.violations():
            if sentence not in self._violations and len(self._violations) < 20:
                self._violations.add(sentence)
                self._on_event("soak.identity_violated", {"sentence": sentence})


def _proxy_failures(reports: list[WorkerReport]) -> int:
    return sum(
        n for r in reports for w in r.windows for o, n in w.outcomes.items() if Outcome(o).is_proxy_failure
    )
