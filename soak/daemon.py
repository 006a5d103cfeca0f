"""The composition root: wires a run together, starts it, waits for its end, takes it apart. Holds no logic of its own.

``soak start`` calls ``run_foreground``; ``python -m soak.daemon RUN_DIR`` is the detached daemon. Order matters: the
guardian watches before the first process is started, and is dismissed after the last one is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic_ns
from typing import Any

from chaos.arbiter import Arbiter
from chaos.faults.catalog import registry
from chaos.guard import AbortGuard
from chaos.journal import Journal
from chaos.model import FaultRecord, FaultShape
from chaos.runner import Runner
from chaos.timeline import PlannedFault
from soak import log as run_log
from soak.bounds import LEAD_S, drain_s, fault_limits, longest_s, remembered_s, silence_s
from soak.census import pulse, watch_vitals
from soak.clock import NS, RunClock, SystemClock, iso_utc
from soak.collect import ReportBook
from soak.described import describe_run, write_live
from soak.doors import Doors
from soak.ending import Ending
from soak.errors import EXIT_USAGE, SoakError, StoreError
from soak.heap import share_one_heap
from soak.lab.catalog import lab_of
from soak.lab.prober import Prober
from soak.lab.process import row_of
from soak.lab.vitals import Subject, look_at
from soak.live import Facts, LiveState
from soak.liveview import NullView, View
from soak.load.limits import raise_open_file_limit
from soak.load.pool import LoadPool
from soak.load.slices import slices_of
from soak.load.traffic import classes_of
from soak.measure.ledger import Ledger
from soak.metrics import Metrics
from soak.model import Phase, Scope, Sighting, Vital
from soak.observe import TrafficObserver
from soak.originwatch import OriginWatch
from soak.plan import Plan
from soak.planfile import load_saved
from soak.planrules import known_targets, timeline_of
from soak.recorder import Recorder
from soak.report.build import build_report
from soak.rundir import RunDir
from soak.runs import hold
from soak.scheduler import FaultScheduler
from soak.scopes import ScopeBook
from soak.starvation import HostWatch, read_processors
from soak.status import Status
from soak.store import StoreReader, StoreWriter
from soak.tasks import cancel, spawn
from soak.watch import TrafficRecoveryWatch
from soak.watchman import Watchman
from soak.web.control import ControlServer
from soak.web.pages import Pages

STALE_REPORT_S = 5.0


class Daemon:
    """One run. ``run`` returns the exit code; its signals and its control socket end it early."""

    def __init__(self, plan: Plan, run: RunDir, view: View) -> None:
        self._plan = plan
        self._run = run
        self._view = view
        self._clock = SystemClock()
        self._run_clock = RunClock(self._clock, monotonic_ns())
        self._ledger = Ledger()
        self._live = LiveState(plan, self._ledger)
        self._ending = Ending(run.log, self._tell)
        self._ended_s: float | None = None

    async def run(self) -> int:
        """Run to the end and return the exit code. Raises ``SoakError`` for what a person must mend."""
        with hold(self._run), run_log.RunLog(self._run.log):
            async with self._judged(), self._stored(), self._heard(), self._guarded(), self._in_the_lab():
                self._wire_sight()
                self._wire_load()
                async with self._load_at_hand():
                    self._set_zero()
                    self._wire_chaos()
                    self._wire_doors()
                    async with self._open_doors(), self._under_load():
                        await self._ending.until(self._pool.wait)
        if self._ending.trouble is not None:
            raise self._ending.trouble
        return self._ending.exit_code.result()

    def status(self) -> Status:
        """Return a snapshot."""
        return self._live.status(
            self._facts,
            now_s=self._run_clock.now(),
            phase=self._scopes.current.phase,
            next_fault=self._scheduler.next,
            guarded=bool(self._runner.guarded),
        )

    # -- the layers of a run, each undone when what it holds has ended --------------------------------------------------

    @asynccontextmanager
    async def _judged(self) -> AsyncIterator[None]:
        """Innermost out: judge the finished store, then let go of those who wait for the exit code."""
        self._control: ControlServer | None = None
        try:
            yield
            self._ending.exit_code.set_result(await asyncio.to_thread(self._judge))
        finally:
            if self._control is not None:
                await self._control.close()

    @asynccontextmanager
    async def _stored(self) -> AsyncIterator[None]:
        self._store = StoreWriter(self._run.db, on_failure=self._ending.give_up_from_thread)
        self._recorder = Recorder(
            self._store,
            self._live,
            self._view,
            clock=self._clock,
            run_clock=self._run_clock,
            certificate=self._run.certs / "site.pem",
        )
        try:
            yield
        finally:
            try:
                await asyncio.to_thread(self._store.close)
            except StoreError as error:
                self._ending.blame(error)

    @asynccontextmanager
    async def _heard(self) -> AsyncIterator[None]:
        """Take SIGINT and SIGTERM as wishes to stop; SIGHUP has no meaning here, and says so."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._ending.request_stop, number.name)
        loop.add_signal_handler(signal.SIGHUP, self._recorder.event, "signal.ignored", {"signal": "SIGHUP"})
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)

    @asynccontextmanager
    async def _guarded(self) -> AsyncIterator[None]:
        watchman = Watchman(
            self._run,
            monotonic_ns() + int(longest_s(self._plan) * NS),
            on_event=self._recorder.event,
            on_lost=lambda reason: self._ending.give_up(SoakError(reason)),
        )
        await watchman.start()
        try:
            yield
        finally:
            await watchman.dismiss()

    @asynccontextmanager
    async def _in_the_lab(self) -> AsyncIterator[None]:
        self._lab = lab_of(self._run, self._plan, on_event=self._recorder.event)
        try:
            await self._lab.start()
            yield
        finally:
            left = await self._lab.stop()
            if not left.ok:
                self._recorder.event("lab.not_removed", {"reason": left.reason, **left.detail})
                self._set_ended(dirty=True)

    @asynccontextmanager
    async def _load_at_hand(self) -> AsyncIterator[None]:
        """Bring the load workers up before the first slot is set, so that none is missed by a slow start."""
        try:
            await self._pool.prepare()
            yield
        finally:
            await self._pool.kill()

    @asynccontextmanager
    async def _open_doors(self) -> AsyncIterator[None]:
        await self._pages.start()
        try:
            self._describe()
            self._control = ControlServer(self._run.socket, self._doors)
            await self._control.start()
            write_live(self._run.live, self._facts, self._run_clock.t0_ns)
            yield
        finally:
            await self._pages.close()

    @asynccontextmanager
    async def _under_load(self) -> AsyncIterator[None]:
        clock = self._run_clock
        try:
            await self._pool.start(t0_ns=clock.t0_ns)
            self._live.state = "running"
            urls = {"proxy_url": self._facts.proxy_url, "http_url": self._facts.http_url}
            self._recorder.event("run.started", urls)
            for skipped in self._skipped:
                self._runner.record_skipped(skipped.request, skipped.reason)
            self._scheduler.start()
            background = self._ending.background
            background(pulse(clock, self._pool.beat, self._show, self._recorder.stalled), "pulse")
            background(watch_vitals(clock, self._look, self._recorder.vital), "vitals")
            background(self._prober.run(), "prober")
            background(self._origins.run(), "origins")
            yield
        finally:
            await self._wind_down()

    # -- wiring ----------------------------------------------------------------------------------------------------

    def _set_zero(self) -> None:
        """Fix the start of the run: what is told from now on counts from it."""
        self._run_clock.t0_ns = monotonic_ns() + int(LEAD_S * NS)
        self._started_wall_s = self._clock.wall_s() + LEAD_S
        self._metrics.set_start(self._started_wall_s)

    def _wire_doors(self) -> None:
        self._doors = Doors(
            self._runner,
            self._run_clock,
            status=self.status,
            request_stop=self._ending.request_stop,
            ended=self._ending.exit_code,
        )
        self._pages = Pages(
            port=self._plan.http_port,
            host=self._plan.http_host,
            names=self._plan.http_names,
            metrics=self._metrics.render,
            status=self.status,
            problems=self._problems,
        )

    def _wire_sight(self) -> None:
        plan, lab, clock = self._plan, self._lab, self._run_clock
        faults = registry()
        self._metrics = self._recorder.metrics = Metrics(
            plan,
            self._ledger,
            run_id=self._run.id,
            proxy_version=lab.proxy_version,
            started_wall_s=self._clock.wall_s(),
            faults={name: known_targets(fault, plan) for name, fault in faults.items()},
            transitions=[name for name, fault in faults.items() if fault.shape is FaultShape.TRANSITION],
        )
        self._metrics.set_generation(lab.generation())
        self._prober = Prober(
            lab.proxy_address,
            lab.ca_file,
            lab.server_name,
            clock,
            self._probed,
            lambda data: self._recorder.event("probe.failed", data),
        )
        self._observer = TrafficObserver(clock, silence_s=silence_s(plan), hurry=self._prober.hurry)
        self._host = HostWatch(plan.self_limits.max_others, self._recorder.event)
        self._recovery = TrafficRecoveryWatch(clock, remembered_s=remembered_s(plan))
        self._origins = OriginWatch(
            lab.backend_names(),
            lab.origin_stats,
            clock,
            keep=self._recorder.origins,
            on_event=self._recorder.event,
        )

    def _wire_load(self) -> None:
        plan, lab = self._plan, self._lab
        address = lab.proxy_address
        classes = classes_of(
            plan,
            host=address.host,
            http_port=address.http_port,
            https_port=address.https_port,
            tcp_port=address.tcp_port,
            authority=lab.server_name,
        )
        slices = slices_of(
            plan,
            classes,
            t0_ns=self._run_clock.t0_ns,
            ca_file=str(lab.ca_file),
            open_files=raise_open_file_limit(),
        )
        self._book = ReportBook(
            workers=plan.workers,
            limits=plan.self_limits,
            keep_report=self._store.add_report,
            keep_unwell=self._recorder.unwell,
            ledger=self._ledger,
            observer=self._observer,
            recovery=self._recovery,
            feed_guard=self._feed_guard,
            on_report=self._metrics.observe_report,
            on_event=self._recorder.event,
        )
        self._pool = LoadPool(
            slices, log_path=self._run.worker_log, on_report=self._book.add, on_event=self._recorder.event
        )
        self._scopes = ScopeBook(self._run_clock, record=self._new_scope, announce=self._announce_scope)

    def _wire_chaos(self) -> None:
        plan, clock = self._plan, self._run_clock
        self._journal = Journal(self._run.journal, t0_ns=clock.t0_ns)
        self._runner = Runner(
            target=self._lab,
            observer=self._observer,
            recovery=self._recovery,
            scopes=self._scopes,
            clock=clock,
            journal=self._journal,
            faults=registry(),
            sink=self._fault,
            event=self._recorder.event,
            arbiter=Arbiter(plan.chaos.gap),
            guard=AbortGuard(plan.chaos.abort_failure_ratio),
            limits=fault_limits(plan),
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
            on_event=self._recorder.event,
        )

    def _describe(self) -> None:
        """Write down what does not change while the run lives."""
        plan, lab, address = self._plan, self._lab, self._lab.proxy_address
        self._facts = Facts(
            run_id=self._run.id,
            pid=os.getpid(),
            started_at=iso_utc(self._started_wall_s),
            proxy_version=lab.proxy_version,
            proxy_url=f"https://{address.host}:{address.https_port}",
            http_url=self._pages.url,
            proxy_metrics_url=address.metrics_url,
        )
        describe_run(
            self._store,
            plan,
            self._facts,
            t0_ns=self._run_clock.t0_ns,
            started_wall_s=self._started_wall_s,
            fault_shapes={name: fault.shape.value for name, fault in registry().items()},
        )
        self._recorder.certificate(lab.serial(), 0.0)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def _wind_down(self) -> None:
        """Heal, let traffic recover, drain, and stop watching, in this order."""
        self._live.state = "stopping"
        await self._scheduler.stop()
        hurried = spawn(self._ending.hurry.wait(), name="hurry")
        healing = spawn(self._runner.stop(), name="heal")
        await asyncio.wait({healing, hurried}, return_when=asyncio.FIRST_COMPLETED)
        if not healing.done():
            await self._runner.stop(hurry=True)
        await healing
        self._pool.stop()
        drained = spawn(self._pool.wait(), name="drain")
        await asyncio.wait(
            {drained, hurried}, timeout=drain_s(self._plan), return_when=asyncio.FIRST_COMPLETED
        )
        await cancel(hurried)
        await self._pool.kill()
        with contextlib.suppress(SoakError):  # what ended the workers was blamed where the run ended
            await drained
        ended_s = self._run_clock.now()
        for vital in await self._look(ended_s):
            self._recorder.vital(vital)
        await self._ending.end_background()
        await self._origins.look()
        self._recorder.event("run.ended", {"reason": self._ending.reason})
        self._ended_s = ended_s
        self._set_ended(dirty=bool(self._runner.dirty))
        self._journal.close()
        self._live.state = "finished"
        self._show()

    def _set_ended(self, *, dirty: bool) -> None:
        """Write down the end of a run that began; the lab may turn out not to be as it was after that."""
        if self._ended_s is not None:
            self._store.set_meta(
                "ended", {"at_s": self._ended_s, "reason": self._ending.reason, "dirty": dirty}
            )

    def _judge(self) -> int:
        with StoreReader(self._run.db) as reader:
            return int(build_report(reader)["exit_code"])

    # -- lines between the parts -----------------------------------------------------------------------------------------

    def _tell(self, name: str, data: Mapping[str, Any]) -> None:
        self._recorder.event(name, data)

    def _fault(self, record: FaultRecord) -> None:
        self._recorder.fault(record, self._lab)

    def _feed_guard(self, requests: int, failures: int) -> None:
        self._runner.feed_guard(requests, failures)

    def _new_scope(self, scope: Scope) -> None:
        self._store.add_scope(scope)
        self._book.scope(scope)

    async def _announce_scope(self, scope: Scope) -> None:
        await self._pool.enter_scope(scope.id, steady=scope.phase is Phase.STEADY)

    def _probed(self, sighting: Sighting) -> None:
        self._recorder.sighting(sighting)
        self._observer.see(sighting)

    async def _due(self, planned: PlannedFault) -> FaultRecord:
        return await self._runner.submit(planned.request)

    def _misfired(self, planned: PlannedFault, late_s: float) -> None:
        reason = f"it was {late_s:.1f} s late, the daemon did not run in time; it was not made up for"
        self._runner.record_skipped(planned.request, reason)

    async def _look(self, at_s: float) -> Sequence[Vital]:
        own = [("daemon", os.getpid()), *((f"worker-{k}", pid) for k, pid in self._pool.pids.items())]
        subjects = [Subject(name, row.identity) for name, pid in own if (row := row_of(pid)) is not None]
        vitals = [*await self._lab.vitals(at_s), *await look_at(subjects, at_s)]
        self._host.look(at_s, vitals, read_processors())
        return vitals

    def _show(self) -> None:
        status = self.status()
        self._metrics.set_status(status)
        self._view.update(status)

    def _problems(self) -> list[str]:
        behind_s = self._run_clock.now() - (self._ledger.newest_second + 1)
        late = self._live.state == "running" and behind_s > STALE_REPORT_S
        found = (
            f"the run is dirty: {self._runner.dirty}" if self._runner.dirty else "",
            self._runner.guarded,
            str(self._store.failure or ""),
            f"the load workers have not reported for {behind_s:.0f} s" if late else "",
        )
        return [sentence for sentence in found if sentence]


async def _run(plan: Plan, run: RunDir, view: View) -> int:
    return await Daemon(plan, run, view).run()


def run_foreground(plan: Plan, run: RunDir, view: View) -> int:
    """Run to the end in this process and return the exit code (0 pass, 1 fail, 3 invalid, 4 dirty). Owns the signals.

    Raises ``SoakError`` when the run could not begin, or was ended by something that a person must mend.
    """
    share_one_heap()
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
