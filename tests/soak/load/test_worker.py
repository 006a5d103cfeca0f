"""The worker's process: stopped, starved of files, orphaned, unread. Real processes, real signals."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from dataclasses import replace
from time import monotonic_ns
from typing import Any, cast

import psutil
import pytest

from soak.load.engine import Engine
from soak.load.traffic import LoadSlice
from soak.load.worker import MAX_UNREAD_BYTES, READY_LINE, _obey, _Outlet, watch_loop
from soak.measure.window import WorkerReport, from_line
from soak.model import Outcome
from tests.soak.load.rig import (
    NS,
    Peer,
    Result,
    Server,
    check_connections,
    check_identities,
    drive,
    run,
    slice_of,
    spec,
    well_behaved,
)

LEAD_NS = NS // 4
"""Time for a worker that is up to read its slice."""


async def start(load: LoadSlice, *, files: int | None = None) -> tuple[asyncio.subprocess.Process, LoadSlice]:
    """Start a worker; when it is up, give it the slice with a near first slot."""
    argv = [sys.executable, "-m", "soak.load.worker"]
    if files is not None:
        argv = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *argv]
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**24
    )
    assert process.stdout is not None
    assert READY_LINE == await process.stdout.readline()
    load = replace(load, t0_ns=monotonic_ns() + LEAD_NS)
    tell(process, load.to_json())
    return process, load


def tell(process: asyncio.subprocess.Process, command: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(command).encode() + b"\n")


async def reports_of(process: asyncio.subprocess.Process) -> list[WorkerReport]:
    assert process.stdout is not None
    reports: list[WorkerReport] = []
    async with asyncio.timeout(60):
        while not reports or not reports[-1].final:
            line = await process.stdout.readline()
            assert line, "the worker ended without a last report"
            reports.append(from_line(line))
        assert 0 == await process.wait()
    return reports


def test_a_worker_that_was_stopped_books_its_missed_slots_where_they_were_due() -> None:
    """SIGSTOP for 1.2 s: every second still has exactly its slots, and after it at most rate x max_lag are caught up."""
    rate, max_lag_s, stopped_s = 200, 0.1, 1.2

    async def main() -> tuple[Result, float, float]:
        async with Server(well_behaved) as server:
            load = slice_of(spec(server.port, rate=rate), seconds=3.0, max_lag_s=max_lag_s)
            process, load = await start(load)
            reading = asyncio.ensure_future(reports_of(process))
            await asyncio.sleep((load.t0_ns - monotonic_ns()) / NS + 0.8)
            process.send_signal(signal.SIGSTOP)
            from_s = (monotonic_ns() - load.t0_ns) / NS
            await asyncio.sleep(stopped_s)
            to_s = (monotonic_ns() - load.t0_ns) / NS
            process.send_signal(signal.SIGCONT)
            return Result(load, await reading, []).check(), from_s, to_s

    result, from_s, to_s = run(main())
    to_s = min(to_s, 3.0)
    assert [rate, rate, rate] == [sum(w.scheduled for w in r.windows) for r in result.reports if r.second < 3]
    assert result.total("missed") >= rate * (to_s - from_s - max_lag_s) - 1
    assert max(w.lag.max_ns for r in result.reports for w in r.windows) <= max_lag_s * NS
    stopped_in_1_s = max(0.0, min(to_s, 2.0) - max(from_s, 1.0))
    assert sum(w.missed for w in result.reports[1].windows) >= rate * (stopped_in_1_s - max_lag_s)
    assert max(r.stats.loop_gap_s for r in result.reports) >= 0.2


def test_a_worker_without_files_says_client_resource_and_lives() -> None:
    """With 48 files and a peer that never answers, what finds no file is our fault; the reports still come."""

    async def never(peer: Peer) -> None:
        await peer.request()
        await peer.hang()

    async def main() -> Result:
        async with Server(never) as server:
            load = slice_of(
                spec(server.port, rate=200),
                seconds=1.2,
                response_timeout_s=1.5,
            )
            process, load = await start(load, files=48)
            return Result(load, await reports_of(process), []).check()

    result = run(main())
    assert {Outcome.CLIENT_RESOURCE, Outcome.RESPONSE_TIMEOUT} == set(result.outcomes)
    assert 240 - 48 <= result.outcomes[Outcome.CLIENT_RESOURCE] < 240
    assert "Too many open files" in result.evidence[0].error


def test_a_worker_whose_daemon_is_gone_ends_at_once() -> None:
    """The end of stdin is the end of the load."""

    async def main() -> int:
        async with Server(well_behaved) as server:
            process, _ = await start(slice_of(spec(server.port), seconds=600.0))
            assert process.stdout is not None
            assert process.stdin is not None
            await process.stdout.readline()
            process.stdin.close()
            async with asyncio.timeout(30):
                return await process.wait()

    assert 0 == run(main())


def test_commands_reach_the_engine_and_nonsense_is_an_event() -> None:
    """A scope is entered, an unknown or broken command is noted and harmless, stop stops."""

    async def main() -> list[WorkerReport]:
        async with Server(well_behaved) as server:
            load = slice_of(spec(server.port), seconds=600.0, supervised=True)
            process, load = await start(load)
            assert process.stdin is not None
            tell(process, {"op": "beat"})
            tell(process, {"op": "scope", "id": 4, "steady": True})
            tell(process, {"op": "dance"})
            process.stdin.write(b"{not json\n")
            await asyncio.sleep((load.t0_ns - monotonic_ns()) / NS + 0.1)
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGHUP)
            await asyncio.sleep(0.2)
            tell(process, {"op": "stop"})
            return await reports_of(process)

    reports = run(main())
    check_identities(reports)
    check_connections(reports)
    assert {4} == {w.scope for r in reports for w in r.windows if w.sent}
    assert 2 == sum(n["count"] for r in reports for n in r.notes if n["name"] == "load.bad_command")
    assert {Outcome.OK} == {o for r in reports for w in r.windows for o in w.outcomes}


class FakePipe:
    """A pipe whose reader stands still until told."""

    def __init__(self) -> None:
        self.unread = 0
        self.lines: list[bytes] = []
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write(self, data: bytes) -> None:
        self.lines.append(data)


def test_a_reader_that_stands_still_costs_reports_not_memory() -> None:
    """Past the bound reports are dropped, the next one says how many; the last report always goes out."""
    reports = run(_some_reports())
    pipe = FakePipe()
    outlet = _Outlet(cast("asyncio.WriteTransport", pipe))
    outlet.emit(reports[0])
    pipe.unread = MAX_UNREAD_BYTES + 1
    for _ in range(3):
        outlet.emit(reports[0])
    assert 1 == len(pipe.lines)
    outlet.emit(reports[-1])
    last = from_line(pipe.lines[-1])
    assert last.final
    assert {"name": "load.reports_dropped", "reports": 3} in last.notes
    pipe.closing = True
    outlet.emit(reports[-1])
    assert 2 == len(pipe.lines)


async def _some_reports() -> list[WorkerReport]:
    async with Server(well_behaved) as server:
        result = await drive(slice_of(spec(server.port, rate=20), seconds=1.05))
    return result.reports


def test_an_unknown_command_is_refused_by_name() -> None:
    """The event that the daemon gets says which one it was."""
    with pytest.raises(ValueError, match="dance"):
        _obey({"op": "dance"}, cast("Any", None))


def test_what_callbacks_raise_is_counted_in_the_worker() -> None:
    """A callback's exception, with or without an exception object, becomes an internal error of the run."""

    async def main() -> list[WorkerReport]:
        reports: list[WorkerReport] = []
        loop = asyncio.get_running_loop()
        engine = Engine(slice_of(spec(1), t0_ns=monotonic_ns() + NS), reports.append)
        watch_loop(loop, engine)
        for _ in range(30):
            loop.call_soon(int, "x")
        loop.call_exception_handler({"message": "something odd"})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        engine.stop()
        await engine.run()
        return reports

    (report,) = run(main())
    (note,) = report.notes
    assert ("load.internal_error", 31) == (note["name"], note["count"])


def test_no_worker_of_these_tests_is_left() -> None:
    """All have ended and have been waited for. Other tests in this process may have children of their own."""
    end = time.monotonic() + 30
    while left := [child for child in psutil.Process().children(recursive=True) if is_left(child)]:
        assert time.monotonic() < end, left
        time.sleep(0.05)


def is_left(child: psutil.Process) -> bool:
    """Whether it is a worker, or has ended and nobody has waited for it."""
    try:
        return child.status() == psutil.STATUS_ZOMBIE or "soak.load.worker" in " ".join(child.cmdline())
    except psutil.NoSuchProcess:  # a zombie is one of these, too
        return psutil.pid_exists(child.pid)
