"""How the engine ends, and that it gives back what it took: reports to the last request, errors of its own, files, memory."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest

from soak.load import dial
from soak.load.engine import Engine
from soak.load.http1 import Http1Connection
from soak.measure.window import WorkerReport
from soak.model import Outcome
from tests.soak.load.rig import (
    NS,
    Behaviour,
    Peer,
    Result,
    Server,
    against,
    answer,
    drive,
    run,
    slice_of,
    spec,
    well_behaved,
)

O = Outcome  # noqa: E741 -- short names keep the arithmetic readable


async def resets(peer: Peer) -> None:
    await peer.request()
    peer.reset()


@contextmanager
def counted_wakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    wakes = [0]
    pace = Engine._pace

    def counting(engine: Engine) -> None:
        wakes[0] += 1
        pace(engine)

    monkeypatch.setattr(Engine, "_pace", counting)
    yield wakes


def test_reports_go_on_each_second_until_nothing_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last slot there is one wake a second, not a busy loop, and the last report comes when the last request ends."""

    async def never(peer: Peer) -> None:
        await peer.request()
        await peer.hang()

    with counted_wakes(monkeypatch) as wakes:
        result = run(
            against(Server(never), lambda port: slice_of(spec(port, rate=20), response_timeout_s=2.2))
        )
    assert {O.RESPONSE_TIMEOUT: 5} == result.outcomes
    seconds = [r.second for r in result.reports]
    assert seconds in (
        [0, 1, 2],
        [0, 1],
        [0, 1, 2, 3],
    )  # where the process stood still over the end of one, it is another
    assert [5] * (len(seconds) - 1) + [0] == [r.windows[0].in_flight for r in result.reports]
    assert wakes[0] <= 12


def test_a_stall_is_told_when_deadlines_end_the_run_before_the_timer_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second in which requests failed because this process stood still says so, or they would be the proxy's."""
    ahead_ns = [0]
    monkeypatch.setattr("soak.load.engine.monotonic_ns", lambda: monotonic_ns() + ahead_ns[0])

    async def never(peer: Peer) -> None:
        await peer.request()
        await peer.hang()

    async def main() -> Result:
        async def stands_still(engine: Engine) -> None:
            while engine._pacing or engine._armed_ns <= monotonic_ns():
                await asyncio.sleep(0.001)
            ahead_ns[0] = 20 * NS
            engine._look_after()

        async with Server(never) as server:
            return await drive(slice_of(spec(server.port, rate=20)), stands_still)

    result = run(main())
    last = result.reports[-1]
    assert (True, 5) == (last.final, result.outcomes.total())
    assert [last.second] == [r.second for r in result.reports if any(w.outcomes for w in r.windows)]
    assert last.stats.loop_gap_s > 15


def test_stop_while_dials_are_pending_books_them_all() -> None:
    """Nothing more is sent; handshakes under way end by their deadline; the run ends."""

    async def hangs(peer: Peer) -> None:
        await peer.hang()

    async def main() -> Result:
        async def stop(engine: Engine) -> None:
            await asyncio.sleep(0.15)
            engine.stop()
            engine.stop()

        async with Server(hangs) as server:
            load = slice_of(
                spec(server.port, tls=True, server_name="x"),
                seconds=60.0,
                tls_timeout_s=0.2,
                connect_timeout_s=0.2,
            )
            return await drive(load, stop)

    result = run(main())
    assert [] == result.errors
    assert {O.TLS_TIMEOUT: result.total("sent")} == result.outcomes
    assert 0 < result.total("scheduled") < 60 * 40
    assert result.reports[-1].final


def test_stop_before_the_first_slot_ends_with_nothing() -> None:
    """One last report, all zero."""

    async def main() -> Result:
        async def stop(engine: Engine) -> None:
            engine.stop()

        return await drive(slice_of(spec(1), t0_ns=monotonic_ns() + NS), stop)

    result = run(main())
    assert [(0, True, 0)] == [(r.second, r.final, r.windows[0].scheduled) for r in result.reports]


def test_an_engine_that_cannot_report_dies_with_the_reason() -> None:
    """Rather than stand still with a readable timer."""

    def broken(_: WorkerReport) -> None:
        raise BrokenPipeError("nobody reads")

    async def main() -> None:
        await Engine(slice_of(spec(1), seconds=0.1), broken).run()

    with pytest.raises(BrokenPipeError, match="nobody reads"):
        run(main())


def test_an_error_in_the_sweep_ends_the_engine_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines that nobody keeps are no deadlines."""

    def broken(_: Engine) -> None:
        raise RuntimeError("sweep")

    monkeypatch.setattr(Engine, "_look_after", broken)

    async def main() -> None:
        await Engine(slice_of(spec(1), seconds=5.0), lambda _: None).run()

    with pytest.raises(RuntimeError, match="sweep"):
        run(main())


def test_a_bug_of_ours_is_our_fault_and_does_not_flood(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dial that raises what no network raises is client_resource and an internal error; five tracebacks at most."""

    async def broken(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(dial, "_bring_up", broken)

    async def main() -> Result:
        async with Server(well_behaved) as server:
            return await drive(slice_of(spec(server.port)))

    result = run(main())
    assert {O.CLIENT_RESOURCE: 10} == result.outcomes
    notes = [n for r in result.reports for n in r.notes]
    assert {"load.internal_error"} == {n["name"] for n in notes}
    assert 10 == sum(n["count"] for n in notes)
    assert 5 == capfd.readouterr().err.count("ValueError: a bug\n")


def test_a_run_leaks_no_files() -> None:
    """Answered, reset, hung and refused connections, and the engine itself, give everything back."""

    async def main() -> tuple[int, int]:
        async def mixed(peer: Peer) -> None:
            request_id = await peer.request()
            if request_id[-1] % 3 == 0:
                peer.reset()
            elif request_id[-1] % 3 == 1:
                await peer.hang()
            await peer.send(answer(request_id))

        async with Server(mixed) as server, Server(mixed) as tls:

            def load() -> Any:
                plain = spec(server.port, name="plain", rate=100)
                shaken = spec(tls.port, name="shaken", tls=True, server_name="x")
                return slice_of(
                    plain, shaken, response_timeout_s=0.2, tls_timeout_s=0.2, connect_timeout_s=0.1
                )

            (await drive(load())).check()
            before = await settled()
            (await drive(load())).check()
            return before, await settled()

    before, after = run(main())
    assert after <= before


async def settled() -> int:
    """Open files, once they stopped falling."""
    count = sum(1 for _ in Path("/proc/self/fd").iterdir())
    for _ in range(20):
        await asyncio.sleep(0.05)
        count = min(count, sum(1 for _ in Path("/proc/self/fd").iterdir()))
    return count


@pytest.mark.parametrize("behaviour", [well_behaved, resets], ids=["answered", "reset"])
def test_connections_are_freed_when_they_close(behaviour: Behaviour) -> None:
    """A thousand turned-over connections cost no memory: reference counting frees them, without the collector."""

    async def main() -> int:
        gc.collect()
        gc.disable()
        try:
            await against(
                Server(behaviour), lambda port: slice_of(spec(port, rate=400, connection="new"), seconds=0.5)
            )
            await asyncio.sleep(0.05)
            return sum(isinstance(o, Http1Connection) for o in gc.get_objects())
        finally:
            gc.enable()

    assert 0 == run(main())
