"""The daemon's side of the load workers: starts them, tells them what to do, reads their reports, replaces the dead.

A worker is a process of its own on the same host today. A dead one is replaced: the slots since its last report are
``missed``, what it had in flight is ``client_resource``, and the run goes on with totals that still add up.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns
from typing import IO

from soak.errors import LabError
from soak.load.traffic import LoadSlice
from soak.load.worker import READY_LINE
from soak.measure.window import WorkerReport, from_line
from soak.tasks import spawn

_MAX_LINE = 16 * 1024 * 1024
_MAX_REPLACEMENTS = 20
_MAX_STILLBORN = 3
"""A worker that ends so many times without a single report cannot start; its own words say why."""
_PIPE_TIMEOUT_S = 1.0
_READY_TIMEOUT_S = 20.0


class LoadPool:
    """All load workers of a run. ``on_report`` gets every report, ``on_event`` what happened to the workers."""

    def __init__(
        self,
        slices: Sequence[LoadSlice],
        *,
        log_path: Path,
        on_report: Callable[[WorkerReport], None],
        on_event: Callable[[str, dict[str, object]], None],
    ) -> None:
        self._slices = list(slices)
        self._log_path = log_path
        self._on_report = on_report
        self._on_event = on_event
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._last: dict[int, WorkerReport] = {}
        self._in_flight: dict[int, dict[str, int]] = {}
        self._scope = (0, True)
        self._stopping = False
        self._stopped_ns: int | None = None
        self._replacements = 0
        self._stillborn: dict[int, int] = {}

    @property
    def pids(self) -> dict[int, int]:
        """Process ids by worker number."""
        return {k: p.pid for k, p in self._processes.items()}

    async def prepare(self) -> None:
        """Bring every worker's process up, so that ``start`` costs milliseconds. A worker that fails is seen by ``wait``."""
        with self._log_path.open("ab") as log:
            for load in self._slices:
                self._processes[load.worker] = await self._launch(log)
        async with asyncio.TaskGroup() as group:
            for process in self._processes.values():
                group.create_task(self._ready(process))

    async def _ready(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                await process.stdout.readline()
        except TimeoutError:
            self._on_event("load.worker_slow", {"pid": process.pid, "not_ready_after_s": _READY_TIMEOUT_S})

    async def start(self, *, t0_ns: int | None = None) -> None:
        """Give every worker its slice; it begins to send at ``t0_ns`` (default: the slice's own) by itself."""
        if t0_ns is not None:
            self._slices = [replace(load, t0_ns=t0_ns) for load in self._slices]
        if not self._processes:
            with self._log_path.open("ab") as log:
                for load in self._slices:
                    self._processes[load.worker] = await self._launch(log)
        for load in self._slices:
            self._brief(load)
        self._tasks = [
            spawn(self._tend(load.worker), name=f"load-worker-{load.worker}") for load in self._slices
        ]

    async def _launch(self, log: IO[bytes]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "soak.load.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            limit=_MAX_LINE,
        )

    def _brief(self, load: LoadSlice) -> None:
        process = self._processes[load.worker]
        self._write(process, load.to_json())
        scope, steady = self._scope
        if scope:
            self._write(process, {"op": "scope", "id": scope, "steady": steady})

    def _write(self, process: asyncio.subprocess.Process, command: dict[str, object]) -> None:
        if process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(json.dumps(command).encode() + b"\n")

    async def _tend(self, worker: int) -> None:
        """Read a worker's reports to its end; replace it when that came too early."""
        while True:
            process = self._processes[worker]
            finished = await self._read(worker, process)
            code = await process.wait()
            if finished or self._stopping:
                return
            self._replacements += 1
            self._on_event(
                "load.worker_died",
                {"worker": worker, "pid": process.pid, "exit": code, "log": self._last_words()},
            )
            self._stillborn[worker] = self._stillborn.get(worker, 0) + 1
            if self._stillborn[worker] >= _MAX_STILLBORN:
                raise LabError(f"load worker {worker} does not start (exit {code}): {self._last_words()}")
            if self._replacements > _MAX_REPLACEMENTS:
                raise LabError(
                    f"load workers died {self._replacements} times; the last one ended with {code}: {self._last_words()}"
                )
            with self._log_path.open("ab") as log:
                self._processes[worker] = await self._launch(log)
            self._brief(self._successor(worker))
            self._on_event("load.worker_replaced", {"worker": worker, "pid": self._processes[worker].pid})

    def _successor(self, worker: int) -> LoadSlice:
        """Return the rest of a dead worker's slice. When the load was stopped, it ends at that instant."""
        load = self._slices[worker]
        last = self._last.get(worker)
        seconds = load.seconds
        if self._stopped_ns is not None:
            seconds = min(seconds, max(0.0, (self._stopped_ns - load.t0_ns) / 1e9))
        return replace(
            load,
            seconds=seconds,
            from_second=last.second + 1 if last else load.from_second,
            lost=self._in_flight.get(worker, load.lost),
        )

    async def _read(self, worker: int, process: asyncio.subprocess.Process) -> bool:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if line == READY_LINE:
                continue
            try:
                report = from_line(line)
            except (ValueError, KeyError, TypeError) as error:
                self._on_event("load.bad_report", {"worker": worker, "error": str(error)[:200]})
                continue
            self._last[worker] = report
            self._stillborn[worker] = 0
            self._in_flight[worker] = {w.traffic: w.in_flight for w in report.windows}
            self._on_report(report)
            if report.final:
                return True
        return False

    def _last_words(self) -> str:
        try:
            return self._log_path.read_text(errors="replace")[-400:].strip()
        except OSError as error:
            return f"no log: {error}"

    def beat(self) -> None:
        """Tell every worker that the daemon lives."""
        for process in self._processes.values():
            self._write(process, {"op": "beat"})

    async def enter_scope(self, scope: int, *, steady: bool) -> None:
        """Have every worker stamp requests with this scope; returns once the pipes have taken it."""
        self._scope = (scope, steady)
        for process in self._processes.values():
            self._write(process, {"op": "scope", "id": scope, "steady": steady})
        for process in self._processes.values():
            if process.stdin is not None and process.returncode is None:
                try:
                    async with asyncio.timeout(_PIPE_TIMEOUT_S):
                        await process.stdin.drain()
                except ConnectionError:
                    continue  # it died: _tend sees that and replaces it
                except TimeoutError:
                    self._on_event("load.worker_deaf", {"pid": process.pid})

    def stop(self) -> None:
        """Send no more; the workers finish what is in flight and report a last time."""
        if self._stopped_ns is None:
            self._stopped_ns = monotonic_ns()
        for process in self._processes.values():
            self._write(process, {"op": "stop"})

    async def wait(self) -> None:
        """Wait until every worker has given its last report."""
        await asyncio.gather(*self._tasks)

    async def kill(self) -> None:
        """End every worker at once."""
        self._stopping = True
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
        await asyncio.gather(
            *self._tasks, *(p.wait() for p in self._processes.values()), return_exceptions=True
        )
