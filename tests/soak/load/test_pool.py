"""Several workers: shares of one sequence, deaths that are booked, starts that fail in their own words."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest

from soak.errors import LabError
from soak.load.pacer import slots_due_before
from soak.load.pool import LoadPool
from soak.load.traffic import LoadSlice
from soak.measure.ledger import Ledger
from soak.measure.window import WorkerReport
from soak.model import Outcome, Phase, Scope
from tests.soak.load.rig import NS, Peer, Server, answer, run, slice_of, spec, well_behaved

LEAD_NS = NS // 4
RATE = 100.0


class Watched:
    """A pool and what it said."""

    def __init__(self, tmp_path: Path, *slices: LoadSlice) -> None:
        self.t0_ns = 0
        self.ledger = Ledger()
        self.reports: list[WorkerReport] = []
        self.before_death: list[WorkerReport] = []
        self.events: list[tuple[str, dict[str, object]]] = []
        self.pool = LoadPool(
            slices,
            log_path=tmp_path / "worker.log",
            on_report=self._report,
            on_event=self._event,
        )

    def _event(self, name: str, data: dict[str, object]) -> None:
        self.events.append((name, data))
        if name == "load.worker_died":
            self.before_death = list(self.reports)

    def _report(self, report: WorkerReport) -> None:
        self.reports.append(report)
        self.ledger.add(report)

    async def play(self, during: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        await self.pool.prepare()
        self.t0_ns = monotonic_ns() + LEAD_NS
        await self.pool.start(t0_ns=self.t0_ns)
        try:
            async with asyncio.timeout(60):
                if during is not None:
                    await during()
                await self.pool.wait()
        finally:
            await self.pool.kill()

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]


def two(port: int, seconds: float, **changes: Any) -> list[LoadSlice]:
    common = {"max_lag_s": 0.05, "seconds": seconds, "workers": 2, **changes}
    return [slice_of(spec(port, rate=RATE), worker=k, **common) for k in range(2)]


async def answers_slowly(peer: Peer) -> None:
    while True:
        request_id = await peer.request()
        await asyncio.sleep(0.3)
        await peer.send(answer(request_id))


def test_a_killed_worker_is_replaced_and_the_totals_still_add_up(tmp_path: Path) -> None:
    """Scheduled is pacer arithmetic to the slot; what was in flight at the last report is client_resource."""

    async def main() -> Watched:
        async with Server(answers_slowly) as server:
            slices = two(server.port, 5.0)
            watched = Watched(tmp_path, *slices)

            async def murder() -> None:
                while not any(report.worker == 1 for report in watched.reports):
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.5)
                os.kill(watched.pool.pids[1], signal.SIGKILL)

            await watched.play(murder)
        return watched

    watched = run(main())
    assert ["load.worker_died", "load.worker_replaced"] == watched.names
    assert -signal.SIGKILL == watched.events[0][1]["exit"]
    total = watched.ledger.total()
    assert slots_due_before(RATE, 5 * NS) == total.scheduled
    assert [] == watched.ledger.violations()
    assert 0 == watched.ledger.in_flight()
    assert 0 < total.missed < total.scheduled
    outcomes = watched.ledger.by_outcome()
    before = [r for r in watched.before_death if r.worker == 1]
    lost = before[-1].windows[0].in_flight
    assert {Outcome.OK: total.sent - lost, Outcome.CLIENT_RESOURCE: lost} == outcomes
    assert lost > 5


def test_a_replacement_after_stop_does_not_send_again(tmp_path: Path) -> None:
    """A worker that dies while it drains is replaced only to close its books; the load ends where it was stopped."""

    async def never(peer: Peer) -> None:
        await peer.request()
        await peer.hang()

    async def main() -> tuple[Watched, float]:
        async with Server(never) as server:
            slices = two(server.port, 600.0, response_timeout_s=20.0)
            watched = Watched(tmp_path, *slices[:1])
            killed_ns = 0

            async def stop_and_murder() -> None:
                await asyncio.sleep((watched.t0_ns - monotonic_ns()) / NS + 1.2)
                watched.pool.stop()
                await asyncio.sleep(0.2)
                os.kill(watched.pool.pids[0], signal.SIGKILL)
                nonlocal killed_ns
                killed_ns = monotonic_ns()

            await watched.play(stop_and_murder)
        return watched, (killed_ns - watched.t0_ns) / NS

    watched, killed_s = run(main())
    total = watched.ledger.total()
    assert RATE * 1.2 / 2 - 1 <= total.scheduled <= RATE * killed_s / 2 + 1
    assert [] == watched.ledger.violations()
    assert 0 == watched.ledger.in_flight()
    assert {Outcome.CLIENT_RESOURCE: total.sent} == watched.ledger.by_outcome()


def test_workers_get_beats_scopes_and_stop(tmp_path: Path) -> None:
    """Both workers enter the scope, live by the beats, and end when told."""

    async def main() -> Watched:
        async with Server(well_behaved) as server:
            slices = two(server.port, 600.0, supervised=True)
            watched = Watched(tmp_path, *slices)

            async def lead() -> None:
                watched.ledger.scope(Scope(5, Phase.FAULT))
                await watched.pool.enter_scope(5, steady=False)
                await asyncio.sleep((watched.t0_ns - monotonic_ns()) / NS + 0.2)
                watched.pool.beat()
                await asyncio.sleep(0.2)
                watched.pool.stop()

            await watched.play(lead)
        return watched

    watched = run(main())
    assert {0, 1} == {r.worker for r in watched.reports if r.final}
    assert {5} == {w.scope for r in watched.reports for w in r.windows if w.sent}
    assert [] == watched.events


def test_a_worker_that_cannot_start_says_why_in_its_own_words(tmp_path: Path) -> None:
    """A missing authority file: three tries, then an error that carries the worker's last line."""
    load = slice_of(spec(1, tls=True, server_name="x"), ca_file="/nonexistent/ca.pem")
    watched = Watched(tmp_path, load)
    with pytest.raises(
        LabError,
        match=r"does not start \(exit 1\): the load worker cannot start: FileNotFoundError: .*/nonexistent/ca.pem",
    ):
        run(watched.play())
    assert 3 == watched.names.count("load.worker_died")


def test_kill_ends_every_worker_at_once(tmp_path: Path) -> None:
    """Nothing is replaced and nothing is left."""

    async def main() -> list[int]:
        async with Server(well_behaved) as server:
            watched = Watched(tmp_path, *two(server.port, 600.0))
            await watched.pool.start()
            pids = list(watched.pool.pids.values())
            await watched.pool.kill()
        assert [] == watched.events
        return pids

    for pid in run(main()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_workers_that_were_prepared_but_never_started_are_ended_too(tmp_path: Path) -> None:
    """A start that fails elsewhere leaves no process behind, and none is replaced."""

    async def main() -> tuple[list[int], list[str]]:
        watched = Watched(tmp_path, *two(1, 600.0))
        await watched.pool.prepare()
        pids = list(watched.pool.pids.values())
        await watched.pool.kill()
        return pids, watched.names

    pids, names = run(main())
    assert [] == names
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_line_that_is_no_report_is_an_event(tmp_path: Path) -> None:
    """A torn line is said and skipped."""

    async def main() -> tuple[bool, list[str]]:
        watched = Watched(tmp_path, slice_of(spec(1)))
        process = await asyncio.create_subprocess_exec(
            "echo", '{"worker": 1}', stdout=asyncio.subprocess.PIPE
        )
        finished = await watched.pool._read(0, process)
        await process.wait()
        return finished, watched.names

    assert (False, ["load.bad_report"]) == run(main())
