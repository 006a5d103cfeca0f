"""The composition root: wires a run together, starts it, waits for its end, takes it apart. Holds no logic of its own.

``soak start`` calls ``run_foreground``; ``python -m soak.daemon RUN_DIR`` is the detached daemon. Order matters: the
guardian watches before the first process is started, and is dismissed after the last one is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from time import monotonic_ns
from typing import Any

from certs.install import fingerprint_of, not_after_of
from chaos.arbiter import Arbiter
from chaos.faults.catalog import registry
from chaos.guard import AbortGuard
from chaos.guardian import Guardian, GuardianError, spawn_guardian
from chaos.journal import Journal
from chaos.lifecycle import Limits
from chaos.model import FaultRecord, FaultRequest, Source
from chaos.runner import Runner
from chaos.timeline import PlannedFault
from soak import log as run_log
from soak.census import pulse, watch_vitals
from soak.clock import NS, RunClock, SystemClock, iso_utc
from soak.collect import ReportBook
from soak.errors import EXIT_INVALID, EXIT_USAGE, LabError, SoakError, StoreError
from soak.lab.local import LocalLab
from soak.lab.prober import Prober
from soak.lab.process import row_of
from soak.lab.vitals import Subject, look_at
from soak.live import Facts, LiveState
from soak.liveview import NullView, View
from soak.load.limits import raise_open_file_limit
from soak.load.pool import LoadPool
from soak.load.standalone import default_max_in_flight
from soak.load.traffic import LoadSlice, classes_of
from soak.measure.ledger import Ledger
from soak.measure.window import WorkerReport
from soak.metrics import Metrics
from soak.model import CertificateRecord, Event, Phase, Scope, Sighting, Unwell, Vital
from soak.observe import TrafficObserver
from soak.plan import Plan
from soak.planfile import load_saved
from soak.planrules import known_targets, timeline_of
from soak.report.build import build_report
from soak.rundir import RunDir
from soak.runs import hold
from soak.scheduler import FaultScheduler
from soak.scopes import ScopeBook
from soak.status import Status
from soak.store import StoreReader, StoreWriter
from soak.tasks import cancel, spawn
from soak.watch import TrafficRecoveryWatch
from soak.web.control import ControlServer, InjectRequest, InjectUpdates
from soak.web.pages import Pages

LEAD_S = 1.0
"""Time for the load workers to come up before the first slot is due."""
DRAIN_MARGIN_S = 5.0
STALE_REPORT_S = 5.0
log = run_log.get_logger("soak.daemon")


class Daemon:
    """One run. ``run`` returns the exit code; ``request_stop`` ends it early, a second time without the drain."""

    def __init__(self, plan: Plan, run: RunDir, view: View) -> None:
        self._plan = plan
        self._run = run
        self._view = view
        self._clock = SystemClock()
        self._run_clock = RunClock(self._clock, monotonic_ns())
        self._ledger = Ledger()
        self._live = LiveState(plan, self._ledger)
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._reason = "finished"
        self._exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._trouble: SoakError | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._metrics: Metrics | None = None
        self._serial = ""
        self._loop = asyncio.get_running_loop()

    # -- doors -----------------------------------------------------------------------------------------------------

    def request_stop(self, reason: str) -> None:
        """End the run gracefully; asked again, do not wait for requests in flight. Healing is never skipped."""
        if self._stop.is_set():
            self._hurry.set()
            self._event("run.hurried", {"reason": reason})
            return
        self._reason = reason
        self._stop.set()
        self._event("run.stopping", {"reason": reason})

    def status(self) -> Status:
        """Return a snapshot (``ControlBackend``)."""
        return self._live.status(
            self._facts,
            now_s=self._run_clock.now(),
            phase=self._scopes.current.phase,
            next_fault=self._scheduler.next,
            guarded=bool(self._runner.guarded),
        )

    async def inject(self, request: InjectRequest, updates: InjectUpdates) -> FaultRecord:
        """Run a fault by hand (``ControlBackend``)."""
        wish = FaultRequest(
            kind=request.fault,
            source=Source.INJECT,
            planned_s=self._run_clock.now(),
            hold_s=request.hold_s or 0.0,
            target=request.target,
            params={"overlap": True} if request.overlap else {},
        )
        return await self._runner.submit(wish, updates.record)

    async def stop(self, *, wait: bool) -> int | None:
        """End the run gracefully (``ControlBackend``)."""
        self.request_stop("soak stop")
        return await asyncio.shield(self._exit_code) if wait else None

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Run to the end and return the exit code. Raises ``SoakError`` for what a person must mend."""
        with hold(self._run), run_log.RunLog(self._run.log):
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self.request_stop, number.name)
            loop.add_signal_handler(signal.SIGHUP, self._event, "signal.ignored", {"signal": "SIGHUP"})
            try:
                return await self._guarded_run()
            finally:
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    loop.remove_signal_handler(number)

    async def _guarded_run(self) -> int:
        plan = self._plan
        longest_s = (
            LEAD_S + plan.lab.start_timeout * (plan.lab.backends + 2) + plan.length + self._drain_s() + 600
        )
        self._guardian_deadline_ns = monotonic_ns() + int(longest_s * NS)
        await self._spawn_guardian()
        try:
            await self._with_store()
        finally:
            await self._dismiss_guardian()
        code = await asyncio.to_thread(self._judge)
        self._exit_code.set_result(code)
        await self._control.close()
        if self._trouble is not None:
            raise self._trouble
        return code

    async def _spawn_guardian(self) -> None:
        try:
            self._guardian = await spawn_guardian(
                run_dir=self._run.path,
                open_lab="soak.lab:open_for_healing",
                deadline_ns=self._guardian_deadline_ns,
                log=self._run.guardian_log,
            )
        except GuardianError as error:
            raise LabError(str(error)) from error
        self._guard_watch = spawn(self._replace_guardian(self._guardian), name="guardian")

    async def _replace_guardian(self, guardian: Guardian) -> None:
        """Never be without one: a guardian that somebody ended is replaced, and that is an event."""
        code = await guardian.ended()
        self._event("guardian.died", {"pid": guardian.pid, "exit": code})
        await self._spawn_guardian()

    async def _dismiss_guardian(self) -> None:
        await cancel(self._guard_watch)
        await self._guardian.done()

    async def _with_store(self) -> None:
        self._store = StoreWriter(self._run.db, on_failure=self._store_failed)
        try:
            await self._with_lab()
        finally:
            await asyncio.to_thread(self._close_store)

    async def _with_lab(self) -> None:
        self._lab = LocalLab(self._run, self._plan, on_event=self._event)
        try:
            await self._lab.start()
            await self._carry_out()
        finally:
            left = await self._lab.stop()
            if not left.ok:
                self._event("lab.not_removed", dict(left.detail))

    async def _carry_out(self) -> None:
        self._wire()
        await self._open_doors()
        try:
            await self._start_everything()
            await self._until_the_end()
        finally:
            await self._wind_down()

    # -- wiring ----------------------------------------------------------------------------------------------------

    def _wire(self) -> None:
        plan, run, lab = self._plan, self._run, self._lab
        address = lab.proxy_address
        faults = registry()
        self._run_clock.t0_ns = monotonic_ns() + int(LEAD_S * NS)
        clock = self._run_clock
        self._started_wall_s = self._clock.wall_s() + LEAD_S
        self._metrics = metrics = Metrics(
            plan,
            self._ledger,
            run_id=run.id,
            proxy_version=lab.proxy_version,
            started_wall_s=self._started_wall_s,
            faults={name: known_targets(fault, plan) for name, fault in faults.items()},
        )
        self._prober = Prober(
            address,
            lab.ca_file,
            lab.server_name,
            clock,
            self._probed,
            lambda data: self._event("probe.failed", data),
        )
        self._observer = TrafficObserver(
            clock, silence_s=max(1.0, 10 * plan.lab.backends / plan.rate), hurry=self._prober.hurry
        )
        self._recovery = TrafficRecoveryWatch(clock)
        self._pool = LoadPool(
            self._slices(),
            log_path=run.worker_log,
            on_report=lambda r: self._book.add(r),
            on_event=self._event,
        )
        self._journal = Journal(run.journal, t0_ns=clock.t0_ns)
        self._book = ReportBook(
            workers=plan.workers,
            limits=plan.self_limits,
            keep_report=self._store.add_report,
            keep_unwell=self._keep_unwell,
            ledger=self._ledger,
            observer=self._observer,
            recovery=self._recovery,
            feed_guard=self._feed_guard,
            on_report=metrics.observe_report,
            on_event=self._event,
        )
        self._scopes = ScopeBook(clock, record=self._new_scope, announce=self._announce_scope)
        self._runner = Runner(
            target=lab,
            observer=self._observer,
            recovery=self._recovery,
            scopes=self._scopes,
            clock=clock,
            journal=self._journal,
            faults=faults,
            sink=self._fault,
            event=self._event,
            on_dirty=lambda reason: self._event("run.dirty_alarm", {"reason": reason}),
            arbiter=Arbiter(plan.chaos.gap),
            guard=AbortGuard(plan.chaos.abort_failure_ratio),
            limits=Limits(
                effect_timeout_s=plan.objectives.effect_within,
                recovery_timeout_s=plan.chaos.recovery_timeout,
                max_defer_s=plan.chaos.max_defer,
            ),
            spawn=spawn,
        )
        timeline = timeline_of(plan)
        self._skipped = timeline.skipped
        self._scheduler = FaultScheduler[PlannedFault](
            timeline.planned,
            clock=self._clock,
            run_clock=clock,
            on_due=self._due,
            on_misfire=self._misfired,
            on_event=self._event,
        )
        self._pages = Pages(
            port=plan.http_port, metrics=metrics.render, status=self.status, problems=self._problems
        )
        self._control = ControlServer(run.socket, self)

    def _slices(self) -> list[LoadSlice]:
        plan, lab = self._plan, self._lab
        traffic, address = plan.traffic, lab.proxy_address
        limit = raise_open_file_limit()
        in_flight = traffic.max_in_flight or default_max_in_flight(
            plan.rate, traffic.response_timeout, limit * plan.workers
        )
        classes = classes_of(
            plan,
            host=address.host,
            http_port=address.http_port,
            https_port=address.https_port,
            authority=lab.server_name,
        )
        return [
            LoadSlice(
                worker=k,
                workers=plan.workers,
                t0_ns=self._run_clock.t0_ns,
                seconds=plan.length,
                seed=plan.seed,
                classes=classes,
                arrivals=traffic.arrivals,
                connect_timeout_s=traffic.connect_timeout,
                tls_timeout_s=traffic.tls_timeout,
                response_timeout_s=traffic.response_timeout,
                body_timeout_s=traffic.body_timeout,
                max_in_flight=max(1, in_flight // plan.workers),
                max_lag_s=traffic.max_lag,
                max_age_s=traffic.max_age,
                idle_timeout_s=traffic.idle_timeout,
                ca_file=str(lab.ca_file),
            )
            for k in range(plan.workers)
        ]

    # -- start, wait, end --------------------------------------------------------------------------------------------

    async def _open_doors(self) -> None:
        plan, run, lab = self._plan, self._run, self._lab
        await self._pages.start()
        address = lab.proxy_address
        self._facts = Facts(
            run_id=run.id,
            pid=os.getpid(),
            started_at=iso_utc(self._started_wall_s),
            proxy_version=lab.proxy_version,
            proxy_url=f"https://{address.host}:{address.https_port}",
            http_url=self._pages.url,
        )
        self._store.set_meta("run", self._run_meta())
        self._store.set_meta("plan", plan.model_dump(mode="json", by_alias=True))
        self._store.set_meta("t0", {"monotonic_ns": self._run_clock.t0_ns, "wall_s": self._started_wall_s})
        self._store.set_meta("fault_shapes", {name: fault.shape.value for name, fault in registry().items()})
        self._serial = lab.serial()
        self._keep_certificate(0.0, None)
        await self._control.start()
        _write_live(run.live, self._facts, self._run_clock.t0_ns)

    def _run_meta(self) -> dict[str, Any]:
        plan = self._plan
        return {
            "id": self._run.id,
            "started_at": self._facts.started_at,
            "started_wall_s": self._started_wall_s,
            "seed": plan.seed,
            "proxy": plan.proxy.kind,
            "proxy_version": self._facts.proxy_version,
            "lab": plan.lab.kind,
            "rate": plan.rate,
            "length_s": plan.length,
        }

    async def _start_everything(self) -> None:
        await self._pool.start()
        self._live.state = "running"
        self._event("run.started", {"proxy_url": self._facts.proxy_url, "http_url": self._facts.http_url})
        for skipped in self._skipped:
            self._runner.record_skipped(skipped.request, skipped.reason)
        self._scheduler.start()
        clock = self._run_clock
        self._background(pulse(clock, self._pool.beat, self._show, self._stalled), "pulse")
        self._background(watch_vitals(clock, self._look, self._vital), "vitals")
        self._background(self._prober.run(), "prober")

    def _background(self, coro: Any, name: str) -> None:
        """Start a task that must not end by itself; if it does, the run ends and says why."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("task.died", task=name, error=repr(error), exc_info=error)
                self._trouble = self._trouble or SoakError(
                    f"the daemon's {name} task failed: {error!r}; see {self._run.log}"
                )
                self.request_stop(f"the {name} task failed")

        task = spawn(coro, name=name)
        task.add_done_callback(ended)
        self._tasks.append(task)

    async def _until_the_end(self) -> None:
        """Wait for the end of the load, or for a wish to stop."""
        self._load_ended = spawn(self._pool.wait(), name="load")
        stopped = spawn(self._stop.wait(), name="stop")
        await asyncio.wait({self._load_ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        await cancel(stopped)

    async def _wind_down(self) -> None:
        """Heal, let traffic recover, drain, and stop watching, in this order."""
        self._live.state = "stopping"
        await self._scheduler.stop()
        healing = spawn(self._runner.stop(hurry=self._hurry.is_set()), name="heal")
        hurried = spawn(self._hurry.wait(), name="hurry")
        await asyncio.wait({healing, hurried}, return_when=asyncio.FIRST_COMPLETED)
        if not healing.done():
            await self._runner.stop(hurry=True)
        await healing
        self._pool.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_s()):
                drained = spawn(self._pool.wait(), name="drain")
                await asyncio.wait({drained, hurried}, return_when=asyncio.FIRST_COMPLETED)
        await cancel(hurried)
        await self._pool.kill()
        ended_s = self._run_clock.now()
        for vital in await self._look(ended_s):
            self._vital(vital)
        for task in self._tasks:
            await cancel(task)
        self._event("run.ended", {"reason": self._reason})
        self._store.set_meta(
            "ended", {"at_s": ended_s, "reason": self._reason, "dirty": bool(self._runner.dirty)}
        )
        self._journal.close()
        await self._pages.close()
        self._live.state = "finished"
        self._show()

    def _drain_s(self) -> float:
        traffic = self._plan.traffic
        return traffic.connect_timeout + traffic.tls_timeout + traffic.response_timeout + DRAIN_MARGIN_S

    def _close_store(self) -> None:
        try:
            self._store.close()
        except StoreError as error:
            self._trouble = self._trouble or error

    def _judge(self) -> int:
        with StoreReader(self._run.db) as reader:
            return int(build_report(reader)["exit_code"])

    # -- what is told ------------------------------------------------------------------------------------------------

    def _event(self, name: str, data: Mapping[str, Any] | None = None, /) -> None:
        event = Event(self._run_clock.now(), self._clock.wall_s(), name, dict(data or {}))
        log.info(name, **{k: v for k, v in event.data.items() if k != "event"})
        self._store.add_event(event)
        self._live.event(event)
        self._view.event(event)
        if self._metrics is not None:
            self._metrics.observe_event(event)

    def _report(self, report: WorkerReport) -> None:
        self._book.add(report)

    def _feed_guard(self, requests: int, failures: int) -> None:
        self._runner.feed_guard(requests, failures)

    def _fault(self, record: FaultRecord) -> None:
        assert self._metrics is not None
        self._store.put_fault(record)
        self._live.fault(record)
        self._metrics.observe_fault(record)
        self._metrics.set_generation(self._lab.generation())
        serial = self._lab.serial()
        if serial != self._serial:
            self._installed(serial, record)

    def _installed(self, serial: str, record: FaultRecord) -> None:
        """Note a new certificate; it counts from the moment its rotation began."""
        self._serial = serial
        installed_s = record.injected_s if record.injected_s is not None else self._run_clock.now()
        self._keep_certificate(installed_s, record.id)

    def _keep_certificate(self, installed_s: float, fault_id: int | None) -> None:
        assert self._metrics is not None
        pem = (self._run.certs / "site.pem").read_bytes()
        certificate = CertificateRecord(self._serial, installed_s, fingerprint_of(pem), fault_id)
        self._store.add_certificate(certificate)
        self._metrics.observe_certificate(certificate, not_after_wall_s=not_after_of(pem))

    def _new_scope(self, scope: Scope) -> None:
        self._store.add_scope(scope)
        self._book.scope(scope)

    async def _announce_scope(self, scope: Scope) -> None:
        await self._pool.enter_scope(scope.id, steady=scope.phase is Phase.STEADY)

    def _probed(self, sighting: Sighting) -> None:
        assert self._metrics is not None
        self._store.add_sighting(sighting)
        self._observer.see(sighting)
        self._metrics.observe_sighting(sighting)

    async def _due(self, planned: PlannedFault) -> FaultRecord:
        return await self._runner.submit(planned.request)

    def _misfired(self, planned: PlannedFault, late_s: float) -> None:
        reason = f"it was {late_s:.1f} s late, the daemon did not run in time; it was not made up for"
        self._runner.record_skipped(planned.request, reason)

    def _stalled(self, unwell: Unwell) -> None:
        self._keep_unwell(unwell)
        self._event("daemon.stalled", {"from_s": unwell.from_s, "to_s": unwell.to_s, "reason": unwell.reason})

    def _keep_unwell(self, unwell: Unwell) -> None:
        self._store.add_unwell(unwell)
        if self._metrics is not None:
            self._metrics.observe_unwell(unwell)

    async def _look(self, at_s: float) -> Sequence[Vital]:
        own = [("daemon", os.getpid()), *((f"worker-{k}", pid) for k, pid in self._pool.pids.items())]
        subjects = [Subject(name, row.identity) for name, pid in own if (row := row_of(pid)) is not None]
        return [*await self._lab.vitals(at_s), *await look_at(subjects, at_s)]

    def _vital(self, vital: Vital) -> None:
        assert self._metrics is not None
        self._store.add_vital(vital)
        self._metrics.observe_vital(vital)

    def _show(self) -> None:
        assert self._metrics is not None
        status = self.status()
        self._metrics.set_status(status)
        self._view.update(status)

    def _problems(self) -> list[str]:
        found = [] if not self._runner.dirty else [f"the run is dirty: {self._runner.dirty}"]
        if self._runner.guarded:
            found.append(self._runner.guarded)
        if self._store.failure is not None:
            found.append(str(self._store.failure))
        behind_s = self._run_clock.now() - (self._ledger.newest_second + 1)
        if self._live.state == "running" and behind_s > STALE_REPORT_S:
            found.append(f"the load workers have not reported for {behind_s:.0f} s")
        return found

    def _store_failed(self, error: StoreError) -> None:
        """Called on the store's thread: nothing that happens from now on can be judged, so the run ends."""
        error.exit_code = EXIT_INVALID
        self._trouble = self._trouble or error
        self._loop.call_soon_threadsafe(self.request_stop, str(error))


def _write_live(path: Path, facts: Facts, t0_ns: int) -> None:
    """Leave the addresses of the live run for other tools."""
    value = {**asdict(facts), "t0_ns": t0_ns}
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(value, indent=1) + "\n")
    fresh.replace(path)


async def _run(plan: Plan, run: RunDir, view: View) -> int:
    return await Daemon(plan, run, view).run()


def run_foreground(plan: Plan, run: RunDir, view: View) -> int:
    """Run to the end in this process and return the exit code (0 pass, 1 fail, 3 invalid, 4 dirty). Owns the signals.

    Raises ``SoakError`` when the run could not begin, or was ended by something that a person must mend.
    """
    return asyncio.run(_run(plan, run, view))


def main(argv: Sequence[str]) -> int:
    """Run the detached daemon of a run directory that holds its plan."""
    if len(argv) != 1:
        sys.stderr.write("usage: python -m soak.daemon RUN_DIR (use 'soak start --detach')\n")
        return EXIT_USAGE
    run = RunDir(Path(argv[0]).absolute())
    try:
        return run_foreground(load_saved(run.plan), run, NullView())
    except SoakError as error:
        sys.stderr.write(f"soak: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
