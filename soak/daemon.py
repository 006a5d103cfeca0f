"""The composition root: wires a run together, starts it, waits for its end, takes it apart. Holds no logic of its own.

``Daemon.run`` says what a run is, from beginning to end: each layer is undone when all that it holds has ended, whatever
ended it. Order matters: the guardian watches before the first process is started, and is dismissed after the last one is
gone. Its larger parts are ``soak.runsight`` (eyes), ``soak.runload``, ``soak.runchaos`` and ``soak.rundoors``.

``soak start`` calls ``run_foreground``; ``python -m soak.daemon RUN_DIR`` is the detached daemon.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic_ns
from typing import Any

from chaos.faults.catalog import registry
from chaos.model import FaultShape
from soak import log as run_log
from soak.bounds import LEAD_S, drain_s, longest_s
from soak.census import pulse
from soak.clock import NS, RunClock, SystemClock
from soak.described import describe_run, facts_of
from soak.ending import Ending
from soak.errors import EXIT_USAGE, SoakError, StoreError
from soak.heap import share_one_heap
from soak.lab.base import TASK_DIED
from soak.lab.catalog import lab_of
from soak.live import Facts, LiveState
from soak.liveview import NullView, View
from soak.measure.ledger import Ledger
from soak.metrics import Metrics
from soak.plan import Plan
from soak.planfile import load_saved
from soak.planrules import known_targets
from soak.recorder import Recorder
from soak.report.build import build_report
from soak.runchaos import RunChaos
from soak.rundir import RunDir
from soak.rundoors import RunDoors
from soak.runload import RunLoad
from soak.runs import hold
from soak.runsight import RunSight
from soak.status import Status
from soak.store import StoreReader, StoreWriter
from soak.watchman import Watchman


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
            async with (
                self._judged(),
                self._stored(),
                self._ending.heard(),
                self._guarded(),
                self._in_the_lab(),
                self._load_at_hand(),
                self._from_zero(),
                self._open_doors(),
                self._told(),
                self._watched(),
                self._under_load(),
                self._disturbed(),
            ):
                await self._ending.until(self._load.pool.wait)
        if self._ending.trouble is not None:
            raise self._ending.trouble
        return self._ending.exit_code.result()

    def status(self) -> Status:
        """Return a snapshot."""
        return self._live.status(
            self._facts,
            now_s=self._run_clock.now(),
            phase=self._load.scopes.current.phase,
            next_fault=self._chaos.next,
            guarded=bool(self._chaos.runner.guarded),
        )

    # -- the layers of a run, in the order of ``run`` ------------------------------------------------------------------

    @asynccontextmanager
    async def _judged(self) -> AsyncIterator[None]:
        """Judge the finished store, then let go of those who wait at the socket for the exit code."""
        self._doors: RunDoors | None = None
        try:
            yield
            self._ending.conclude(await asyncio.to_thread(self._judge))
        finally:
            if self._doors is not None:
                await self._doors.close()

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
        self._lab = lab_of(self._run, self._plan, on_event=self._lab_told)
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
        self._wire_load()
        try:
            await self._load.pool.prepare()
            yield
        finally:
            await self._load.pool.kill()

    @asynccontextmanager
    async def _from_zero(self) -> AsyncIterator[None]:
        """Fix the start of the run: what is told from now on counts from it, and so does the journal."""
        self._run_clock.t0_ns = monotonic_ns() + int(LEAD_S * NS)
        self._started_wall_s = self._clock.wall_s() + LEAD_S
        self._metrics.set_start(self._started_wall_s)
        self._chaos = RunChaos(
            self._plan,
            self._lab,
            self._clock,
            self._run_clock,
            journal=self._run.journal,
            observer=self._sight.observer,
            recovery=self._sight.recovery,
            scopes=self._load.scopes,
            tell=self._recorder,
        )
        try:
            yield
        finally:
            self._chaos.close()

    @asynccontextmanager
    async def _open_doors(self) -> AsyncIterator[None]:
        self._doors = RunDoors(
            self._plan,
            self._run,
            self._run_clock,
            runner=self._chaos.runner,
            faults=registry(),
            metrics=self._metrics.render,
            status=self.status,
            problems=self._problems,
            request_stop=self._ending.request_stop,
            ended=self._ending.exit_code,
        )
        await self._doors.open(self._describe)
        try:
            yield
        finally:
            await self._doors.close_pages()

    @asynccontextmanager
    async def _told(self) -> AsyncIterator[None]:
        """Write down how the run ended once nothing more can happen in it."""
        try:
            yield
        except BaseException as error:
            self._ending.crash(error)
            raise
        finally:
            self._recorder.event("run.ended", {"reason": self._ending.reason})
            self._set_ended(dirty=bool(self._chaos.runner.dirty))
            self._live.state = "finished"
            self._show()

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """What watches outlives the load. It starts with it: the first thing that a worker reads must be its slice."""
        try:
            yield
        finally:
            at_s = self._run_clock.now() if self._ended_s is None else self._ended_s
            await self._sight.last_vitals(at_s, self._load.pool.pids)
            await self._ending.end_background()
            await self._sight.last_counts()

    @asynccontextmanager
    async def _under_load(self) -> AsyncIterator[None]:
        clock, pool, background = self._run_clock, self._load.pool, self._ending.background
        try:
            await pool.start(t0_ns=clock.t0_ns)
            self._live.state = "running"
            urls = {"proxy_url": self._facts.proxy_url, "http_url": self._facts.http_url}
            self._recorder.event("run.started", urls)
            background(pulse(clock, pool.beat, self._show, self._recorder.stalled), "pulse")
            self._sight.watch(background, lambda: pool.pids, self._chaos.disturbing)
            yield
        finally:
            pool.stop()
            await self._ending.drain(drain_s(self._plan))
            await pool.kill()
            self._ended_s = clock.now()
            await self._ending.end_load()

    @asynccontextmanager
    async def _disturbed(self) -> AsyncIterator[None]:
        try:
            self._chaos.begin()
            yield
        finally:
            self._live.state = "stopping"
            await self._chaos.heal(self._ending.hurry)

    # -- wiring --------------------------------------------------------------------------------------------------------

    def _wire_load(self) -> None:
        plan, lab, faults = self._plan, self._lab, registry()
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
        self._sight = RunSight(plan, lab, self._run_clock, self._recorder)
        self._load = RunLoad(
            plan,
            lab,
            self._run_clock,
            ledger=self._ledger,
            store=self._store,
            tell=self._recorder,
            observer=self._sight.observer,
            recovery=self._sight.recovery,
            feed_guard=self._feed_guard,
            on_report=self._metrics.observe_report,
            worker_log=self._run.worker_log,
        )

    def _describe(self, http_url: str) -> Facts:
        """Write down what does not change while the run lives."""
        self._facts = facts_of(
            self._run.id, self._lab, started_wall_s=self._started_wall_s, http_url=http_url
        )
        describe_run(
            self._store,
            self._plan,
            self._facts,
            t0_ns=self._run_clock.t0_ns,
            started_wall_s=self._started_wall_s,
            fault_shapes={name: fault.shape.value for name, fault in registry().items()},
        )
        self._recorder.certificate(self._lab.serial(), 0.0)
        return self._facts

    # -- lines between the parts ---------------------------------------------------------------------------------------

    def _tell(self, name: str, data: Mapping[str, Any]) -> None:
        self._recorder.event(name, data)

    def _lab_told(self, name: str, data: Mapping[str, Any]) -> None:
        """Write down what the lab tells. Without one of its own tasks it cannot be trusted any more, so the run ends."""
        self._recorder.event(name, data)
        if name == TASK_DIED:
            words = f"the lab's {data['name']} task failed: {data['how']}; see {self._run.log}"
            self._ending.give_up(SoakError(words))

    def _feed_guard(self, requests: int, failures: int) -> None:
        self._chaos.runner.feed_guard(requests, failures)

    def _show(self) -> None:
        status = self.status()
        self._metrics.set_status(status)
        self._view.update(status)

    def _set_ended(self, *, dirty: bool) -> None:
        """Write down the end of a run that began; the lab may turn out not to be as it was after that."""
        if self._ended_s is not None:
            self._store.set_meta(
                "ended", {"at_s": self._ended_s, "reason": self._ending.reason, "dirty": dirty}
            )

    def _judge(self) -> int:
        """Return the exit code of the finished store. One that cannot be read is to blame only when nothing else is."""
        try:
            with StoreReader(self._run.db) as reader:
                return int(build_report(reader)["exit_code"])
        except SoakError as error:
            self._ending.blame(error)
            return error.exit_code

    def _problems(self) -> list[str]:
        runner = self._chaos.runner
        found = self._live.problems(self._run_clock.now(), dirty=runner.dirty, guarded=runner.guarded)
        return found if self._store.failure is None else [*found, str(self._store.failure)]


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
