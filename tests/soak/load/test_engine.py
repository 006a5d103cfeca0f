"""How the engine behaves over time: frozen peers, silence of the daemon, scopes, turnover, evidence, its own end."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from time import monotonic_ns

import pytest

from soak.load.engine import Engine
from soak.measure.histogram import Histogram
from soak.model import Outcome, SightKind
from tests.soak.load.rig import (
    NS,
    Peer,
    Result,
    Server,
    against,
    answer,
    drive,
    run,
    slice_of,
    spec,
    unhurried,
    well_behaved,
)

O = Outcome  # noqa: E741 -- short names keep the arithmetic readable
SLACK_S = 0.5
"""What a busy machine may add to an upper bound. Lower bounds have none."""


class Gate:
    """A server that can be frozen: it reads, but answers nothing while it is closed."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.frozen_ns = self.thawed_ns = 0
        self.reset = False

    async def __call__(self, peer: Peer) -> None:
        while True:
            request_id = await peer.request()
            await self.open.wait()
            if self.reset:
                peer.reset()
                return
            await peer.send(answer(request_id))

    async def freeze(self, after_s: float, for_s: float) -> None:
        await asyncio.sleep(after_s)
        self.open.clear()
        self.frozen_ns = monotonic_ns()
        await asyncio.sleep(for_s)
        self.thawed_ns = monotonic_ns()
        self.open.set()


def test_a_frozen_target_shows_its_whole_freeze_from_due() -> None:
    """No coordinated omission: of n slots, the share due in the freeze waits from its due instant to the thaw.

    With a freeze of F in a run of T seconds, latency at quantile q is F - (1 - q) T, and the sum of all waits is r F^2 / 2.
    """
    rate, seconds = 250, 2.0

    async def main() -> tuple[Result, float]:
        gate = Gate()
        async with Server(gate) as server:
            load = slice_of(spec(server.port, rate=rate), seconds=seconds)
            result = await drive(load, lambda _: gate.freeze(0.4, 1.0))
        return result.check(), (gate.thawed_ns - gate.frozen_ns) / NS

    result, froze_s = run(main())
    assert {O.OK: rate * seconds} == result.outcomes
    assert (0, 0) == (result.total("dropped"), result.total("missed"))
    latency, service = Histogram(), Histogram()
    for report in result.reports:
        for window in report.windows:
            latency.merge(window.latency)
            service.merge(window.service)
    period_s = 1 / rate
    slack_s = SLACK_S + sum(r.stats.loop_gap_s for r in result.reports)
    for histogram in (latency, service):  # nothing was late on our side, so both show it
        assert froze_s - 2 * period_s <= histogram.max_ns / NS <= froze_s + slack_s
        expected = froze_s - 0.002 * seconds
        got = histogram.quantile_ns(0.998) / NS
        assert 0.99 * expected - 2 * period_s <= got <= 1.01 * expected + slack_s
    waited = rate * froze_s**2 / 2
    assert 0.97 * waited <= latency.sum_ns / NS <= waited + slack_s * rate * seconds


def test_past_max_in_flight_slots_are_dropped_never_queued() -> None:
    """Against a peer that never answers, five are sent and the other five are dropped, exactly."""

    async def never(peer: Peer) -> None:
        await peer.request()
        await peer.hang()

    result = run(
        against(Server(never), lambda port: slice_of(spec(port), max_in_flight=5, response_timeout_s=2.0))
    )
    assert {O.RESPONSE_TIMEOUT: 5} == result.outcomes
    assert (10, 5, 5, 0) == tuple(result.total(w) for w in ("scheduled", "sent", "dropped", "missed"))


def test_a_slot_that_is_too_late_is_missed_and_a_little_late_is_sent() -> None:
    """The loop is blocked for 0.6 s: slots older than max_lag are missed, no lag above it is ever sent."""

    async def block(_: Engine) -> None:
        await asyncio.sleep(0.3)
        end = monotonic_ns() + 600_000_000
        while monotonic_ns() < end:
            pass

    async def main() -> Result:
        async with Server(well_behaved) as server:
            load = slice_of(spec(server.port, rate=200), seconds=1.0, max_lag_s=0.1)
            return (await drive(load, block)).check()

    result = run(main())
    assert result.total("missed") >= 200 * (0.6 - 0.1) - 1
    assert max(w.lag.max_ns for r in result.reports for w in r.windows) <= 100_000_000
    assert max(r.stats.loop_gap_s for r in result.reports) >= 0.55
    assert {"load.stalled"} == set(result.notes)


def test_without_a_beat_nothing_is_sent_and_with_one_it_goes_on() -> None:
    """Slots are missed from dead_man_s after the last beat until the next one."""
    sent_ns: list[int] = []

    async def notes(peer: Peer) -> None:
        while True:
            request_id = await peer.request()
            sent_ns.append(monotonic_ns())
            await peer.send(answer(request_id))

    async def beats(engine: Engine) -> None:
        engine.heard()
        await asyncio.sleep(0.9)
        engine.heard()

    async def main() -> Result:
        async with Server(notes) as server:
            load = slice_of(spec(server.port, rate=100), seconds=1.1, supervised=True, dead_man_s=0.3)
            return (await drive(load, beats)).check()

    def attempt() -> Result:
        sent_ns.clear()
        return run(main())

    result = unhurried(attempt)
    assert result.total("missed") >= 50
    assert result.total("sent") == len(sent_ns) > 10
    gaps = [b - a for a, b in pairwise(sent_ns)]
    assert max(gaps) >= 450_000_000
    assert "load.unsupervised" in result.notes
    assert sent_ns[-1] - sent_ns[0] >= 850_000_000


def rows_of(result: Result) -> dict[tuple[int, str], int]:
    out: dict[tuple[int, str], int] = {}
    for report in result.reports:
        for w in report.windows:
            for key, n in [
                *((str(o), n) for o, n in w.outcomes.items()),
                ("carried", w.carried),
                ("sent", w.sent),
            ]:
                out[w.scope, key] = out.get((w.scope, key), 0) + n
    return {k: n for k, n in out.items() if n}


def test_a_failure_in_flight_over_the_start_of_a_fault_is_carried_into_it() -> None:
    """Sent in steady, failed after the fault began: booked on the fault's scope and counted as carried there."""

    async def main() -> Result:
        gate = Gate()
        gate.open.clear()

        async def fault(engine: Engine) -> None:
            await asyncio.sleep(0.4)
            engine.enter_scope(1, steady=False)
            gate.reset = True
            gate.open.set()

        async with Server(gate) as server:
            return (await drive(slice_of(spec(server.port), seconds=0.25), fault)).check()

    result = run(main())
    assert {(0, "sent"): 10, (1, "cut_before_response"): 10, (1, "carried"): 10} == rows_of(result)
    assert {1} == {e.scope for e in result.evidence}


@pytest.mark.parametrize(("reset", "ended"), [(False, "ok"), (True, "cut_before_response")])
def test_other_ends_stay_on_the_scope_of_their_send(reset: bool, ended: str) -> None:
    """A success stays in steady; a failure of a request that was sent in a fault stays in that fault."""

    async def main() -> Result:
        gate = Gate()
        gate.open.clear()
        gate.reset = reset

        async def change(engine: Engine) -> None:
            if reset:
                engine.enter_scope(1, steady=False)
            await asyncio.sleep(0.4)
            engine.enter_scope(2, steady=not reset)
            gate.open.set()

        async with Server(gate) as server:
            return (await drive(slice_of(spec(server.port), seconds=0.25), change)).check()

    result = run(main())
    scope = 1 if reset else 0
    assert {(scope, "sent"): 10, (scope, ended): 10} == rows_of(result)


def test_max_age_turns_connections_over() -> None:
    """A busy connection is retired after its age, by us, without a failure."""
    result = unhurried(
        lambda: run(
            against(Server(well_behaved), lambda port: slice_of(spec(port), seconds=1.0, max_age_s=0.2))
        )
    )
    assert {O.OK: 40} == result.outcomes
    assert 4 <= result.connections("opened") <= 20
    assert 0 == result.connections("closed_by_peer")


def test_a_connection_that_idles_too_long_is_closed_by_us() -> None:
    """The next slot opens a new one."""
    result = run(
        against(
            Server(well_behaved), lambda port: slice_of(spec(port, rate=2), seconds=1.5, idle_timeout_s=0.1)
        )
    )
    assert {O.OK: 3} == result.outcomes
    assert 3 == result.connections("opened")
    assert result.connections("closed_by_us") >= 2


def test_sightings_have_first_and_last_instant_and_count() -> None:
    """Generation 1 turns into 2 in the middle; the order of instants tells when."""

    async def main() -> Result:
        served = 0

        async def turns(peer: Peer) -> None:
            nonlocal served
            while True:
                request_id = await peer.request()
                served += 1
                headers = b"X-Soak-Generation: %d\r\nX-Soak-Origin: b1\r\n" % (1 if served <= 6 else 2)
                await peer.send(answer(request_id, headers=headers))

        return await against(Server(turns), lambda port: slice_of(spec(port)))

    result = unhurried(lambda: run(main()))
    seen = {(s.kind, s.value): s for r in result.reports for s in r.sightings}
    one, two = seen[SightKind.GENERATION, "1"], seen[SightKind.GENERATION, "2"]
    assert (6, 4) == (one.count, two.count)
    assert 0 <= one.first_s < one.last_s < two.first_s < two.last_s < result.reports[-1].second + 1
    assert 10 == seen[SightKind.ORIGIN, "b1"].count


def test_a_peer_that_invents_values_cannot_fill_our_memory() -> None:
    """At most 64 values of a kind a second, each at most 64 characters."""

    async def invents(peer: Peer) -> None:
        while True:
            request_id = await peer.request()
            await peer.send(answer(request_id, headers=b"X-Soak-Origin: %b\r\n" % (request_id * 40)))

    result = run(against(Server(invents), lambda port: slice_of(spec(port, rate=200), seconds=0.5)))
    values = [s.value for r in result.reports for s in r.sightings]
    assert 64 == len(values)
    assert {64} == {len(v) for v in values}


def test_the_evidence_reservoir_is_capped_and_fair() -> None:
    """A common failure leaves room for a rare one; what is kept and what is not add up to all failures."""

    async def main() -> Result:
        served = 0

        async def fails(peer: Peer) -> None:
            nonlocal served
            while True:
                request_id = await peer.request()
                served += 1
                rare = served == 50
                await peer.send(answer(request_id, status="404 Rare" if rare else "503 Common"))

        return await against(
            Server(fails), lambda port: slice_of(spec(port, rate=200), seconds=0.5, evidence_per_second=3)
        )

    result = run(main())
    assert {O.STATUS_5XX: 99, O.STATUS_4XX: 1} == result.outcomes
    kept = [e.outcome for e in result.evidence]
    assert 1 == kept.count(O.STATUS_4XX)
    assert 3 <= kept.count(O.STATUS_5XX) <= 3 * len(result.reports)
    assert 100 == len(kept) + sum(r.evidence_dropped for r in result.reports)
    assert all(e.due_s <= e.sent_s <= e.first_byte_s <= e.done_s for e in result.evidence)


@pytest.mark.parametrize(
    ("rate", "late_ns"), [(1_000, 0), (9_000, 0), (10_000, 1_000_000), (40_000, 250_000)]
)
def test_the_timer_waits_only_where_a_crowd_is_due(rate: float, late_ns: int) -> None:
    """At the rates people soak with, the timer goes off at the very instant of the slot; a worker of two has half the rate."""

    async def armed_after_due(workers: int) -> int:
        load = slice_of(spec(1, rate=rate * workers), t0_ns=monotonic_ns() + 10 * NS, workers=workers)
        engine = Engine(load, lambda _: None)
        engine._arm()
        engine._timer.close()
        engine._meter.close()
        return engine._armed_ns - load.t0_ns

    assert [late_ns, late_ns] == [run(armed_after_due(1)), run(armed_after_due(2))]


def test_who_asks_for_a_wait_gets_it_and_who_asks_for_none_gets_none() -> None:
    """``coalesce_s`` says otherwise, at any rate."""

    async def armed_after_due(rate: float, coalesce_s: float) -> int:
        load = slice_of(spec(1, rate=rate), t0_ns=monotonic_ns() + 10 * NS, coalesce_s=coalesce_s)
        engine = Engine(load, lambda _: None)
        engine._arm()
        engine._timer.close()
        engine._meter.close()
        return engine._armed_ns - load.t0_ns

    assert [2_000_000, 0] == [run(armed_after_due(500, 0.002)), run(armed_after_due(40_000, 0.0))]


def test_connections_made_before_the_first_slot_are_used_and_accounted_for() -> None:
    """The first request on each is not a reuse; those that fail to come up end nothing; the bound in flight holds."""

    async def main() -> None:
        at = monotonic_ns() + NS // 5
        result = await against(
            Server(well_behaved),
            lambda port: slice_of(spec(port, rate=5_000), seconds=0.02, t0_ns=at, max_in_flight=10),
        )
        assert 10 <= result.connections("opened")
        assert result.total("sent") == result.outcomes[O.OK]
        assert result.connections("reused") < result.total("sent")
        refused = await drive(slice_of(spec(1, rate=5_000), seconds=0.02, t0_ns=monotonic_ns() + NS // 5))
        refused.check()
        assert {O.CONNECT_REFUSED} == set(refused.outcomes)

    run(main())
