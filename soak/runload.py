"""The load of one run: its workers, the book of their reports, and the scopes that requests are stamped with.

Made once it is known where the proxy listens. Starts nothing by itself: the daemon prepares, starts, drains and ends ``pool``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from soak.clock import RunClock
from soak.collect import ReportBook
from soak.lab.base import Lab
from soak.load.limits import raise_open_file_limit
from soak.load.pool import LoadPool
from soak.load.slices import slices_of
from soak.load.traffic import LoadSlice, classes_of
from soak.measure.ledger import Ledger
from soak.measure.window import WorkerReport
from soak.model import Phase, Scope, Unwell
from soak.observe import TrafficObserver
from soak.plan import Plan
from soak.scopes import ScopeBook
from soak.watch import TrafficRecoveryWatch


class KeepsTraffic(Protocol):
    """A store of what traffic showed."""

    def add_report(self, report: WorkerReport) -> None:
        """Keep a worker's second."""
        ...

    def add_scope(self, scope: Scope) -> None:
        """Keep a scope."""
        ...


class TellsTraffic(Protocol):
    """Whom to tell what is found out: ``soak.recorder.Recorder``."""

    def event(self, name: str, data: Mapping[str, Any] | None = None, /) -> None:
        """Something happened."""
        ...

    def unwell(self, unwell: Unwell) -> None:
        """A stretch cannot be used to judge the proxy."""
        ...


class RunLoad:
    """``pool`` are the workers, ``scopes`` what faults stamp traffic with."""

    def __init__(
        self,
        plan: Plan,
        lab: Lab,
        clock: RunClock,
        *,
        ledger: Ledger,
        store: KeepsTraffic,
        tell: TellsTraffic,
        observer: TrafficObserver,
        recovery: TrafficRecoveryWatch,
        feed_guard: Callable[[int, int], None],
        on_report: Callable[[WorkerReport], None],
        worker_log: Path,
    ) -> None:
        self._store = store
        self._book = ReportBook(
            workers=plan.workers,
            limits=plan.self_limits,
            keep_report=store.add_report,
            keep_unwell=tell.unwell,
            ledger=ledger,
            observer=observer,
            recovery=recovery,
            feed_guard=feed_guard,
            on_report=on_report,
            on_event=tell.event,
        )
        self.pool = LoadPool(
            _slices(plan, lab, clock.t0_ns),
            log_path=worker_log,
            on_report=self._book.add,
            on_event=tell.event,
        )
        self.scopes = ScopeBook(clock, record=self._record, announce=self._announce)

    def _record(self, scope: Scope) -> None:
        """Make a scope known to all who read reports, before any report can carry it."""
        self._store.add_scope(scope)
        self._book.scope(scope)

    async def _announce(self, scope: Scope) -> None:
        await self.pool.enter_scope(scope.id, steady=scope.phase is Phase.STEADY)


def _slices(plan: Plan, lab: Lab, t0_ns: int) -> list[LoadSlice]:
    address = lab.proxy_address
    classes = classes_of(
        plan,
        host=address.host,
        http_port=address.http_port,
        https_port=address.https_port,
        tcp_port=address.tcp_port,
        authority=lab.server_name,
    )
    return slices_of(plan, classes, t0_ns=t0_ns, ca_file=str(lab.ca_file), open_files=raise_open_file_limit())
