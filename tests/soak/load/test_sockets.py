"""The cohort: how many sockets, whose turn it is, when a seat connects again, and where a cut is booked. By hand, no wire."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic_ns
from typing import Any

import pytest

from soak.load import dial
from soak.load.engine import Engine
from soak.load.outcome import Stage
from soak.load.sockets import LEAST_PAUSE_S, MOST_PAUSE_S, Seat, WebSocketLane
from soak.load.websocket import WebSocket
from soak.measure.window import WorkerReport
from soak.model import Outcome
from tests.soak.load.rig import slice_of, spec
from tests.soak.load.test_websocket import SHAPE, FakeTransport
from tests.soak.load.wspeer import CLOSE, TEXT, frame, switch

O = Outcome  # noqa: E741 -- read often
MS = 1_000_000
S = 1000 * MS


class Cohort:
    """The lane of one worker, with dials and wires in the hands of the test, and time as a number."""

    def __init__(self, *, worker: int = 0, workers: int = 1, tls_s: float = 2.0, **changes: Any) -> None:
        self.reports: list[WorkerReport] = []
        self.t0 = monotonic_ns()
        shape = {**SHAPE, **changes}
        load = slice_of(
            spec(1, **shape),
            worker=worker,
            workers=workers,
            t0_ns=self.t0,
            connect_timeout_s=1.0,
            tls_timeout_s=tls_s,
            response_timeout_s=2.0,
            max_lag_s=5.0,
        )
        self.engine = Engine(load, self.reports.append)
        (lane,) = self.engine.lanes
        assert isinstance(lane, WebSocketLane)
        self.lane = lane
        self.dials: list[WebSocket] = []

    def close(self) -> None:
        self.engine._timer.close()
        self.engine._meter.close()

    def fire(self, now: int) -> None:
        self.lane.fire(now, now)
        self.lane.pacer.advance()

    def open(self, socket: WebSocket) -> FakeTransport:
        wire = FakeTransport()
        socket.connection_made(wire)
        key = bytes(wire.written).split(b"Sec-WebSocket-Key: ")[1].split(b"\r\n")[0]
        socket.data_received(switch(key, extra=b"X-Soak-Generation: 7\r\nX-Soak-Origin: b2\r\n"))
        return wire

    def echo(self, socket: WebSocket) -> None:
        socket.data_received(frame(TEXT, socket.queue[0].payload))

    def outcomes(self, scope: int = 0) -> dict[Outcome, int]:
        row = self.lane.rows[scope]
        return {**({O.OK: row.ok} if row.ok else {}), **row.outcomes}


@pytest.fixture
def cohorts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Make cohorts whose dials are only noted."""
    made: list[Cohort] = []

    def start(lane: WebSocketLane, socket: WebSocket) -> None:
        socket.dialed_ns = monotonic_ns()
        next(c for c in made if c.lane is lane).dials.append(socket)

    def make(**changes: Any) -> Cohort:
        made.append(Cohort(**changes))
        return made[-1]

    monkeypatch.setattr(dial, "start", start)
    yield make
    for cohort in made:
        cohort.close()


@pytest.mark.parametrize(("n", "workers"), [(100, 1), (100, 3), (7, 4), (4, 4)])
async def test_all_workers_together_hold_the_sockets(cohorts: Any, n: int, workers: int) -> None:
    """Each its share, and one each when there are more workers than sockets."""
    seats = [len(cohorts(worker=k, workers=workers, connections=n).lane.seats) for k in range(workers)]
    assert n == sum(seats)
    assert max(seats) - min(seats) <= 1
    assert 1 == len(cohorts(worker=2, workers=3, connections=2).lane.seats)


async def test_slots_go_round_the_sockets(cohorts: Any) -> None:
    """Worker 1 of 2 with three of six sockets: its slots 1, 3, 5 on its own three, then again."""
    cohort = cohorts(worker=1, workers=2, connections=6)
    for _ in range(7):
        cohort.fire(cohort.t0)
    assert [3, 2, 2] == [len(seat.socket.queue) for seat in cohort.lane.seats]


async def test_a_missed_slot_is_a_turn_too(cohorts: Any) -> None:
    """Whatever became of slots before, slot i is socket i's; a missed one opens nothing."""
    cohort = cohorts(connections=3)
    cohort.lane.fire(cohort.t0, cohort.t0 + 6 * S)
    cohort.lane.pacer.advance()
    cohort.fire(cohort.t0 + 6 * S)
    assert (1, 1) == (cohort.lane.row.missed, cohort.lane.row.sent)
    assert [False, True, False] == [seat.socket is not None for seat in cohort.lane.seats]


async def test_sockets_are_opened_ahead_over_a_second(cohorts: Any) -> None:
    """A tenth at each of the sweep's looks; a seat that a slot has filled meanwhile is left alone."""
    cohort = cohorts(connections=25)
    cohort.fire(cohort.t0)
    opened = []
    for tick in range(10):
        cohort.lane.tidy(cohort.t0 + tick * 100 * MS)
        opened.append(len(cohort.dials))
    assert [4, 7, 10] == opened[:3]
    assert 25 == opened[-1]
    assert 25 == len({id(socket.seat) for socket in cohort.dials})


def failing(cohort: Cohort, seat: Seat, now: int) -> float:
    """Let the newest dial of a seat fail; return the pause in seconds."""
    assert seat.socket is not None
    seat.failed(seat.socket, O.CONNECT_REFUSED, "refused", now)
    return (seat.retry_ns - now) / 1e9


async def test_pauses_double_are_jittered_and_start_anew_after_success(
    cohorts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 0.1, 0.2, 0.4 ... 5 s, at least half of that; then 0.1 again."""
    cohort = cohorts(connections=1)
    seat = cohort.lane.seats[0]
    now = cohort.t0
    cohort.lane.tidy(now)
    pauses = []
    for _ in range(9):
        cohort.dials[-1].stage = Stage.CLOSED
        pauses.append(failing(cohort, seat, now))
        cohort.lane.tidy(seat.retry_ns - 1)
        assert len(cohort.dials) == len(pauses), "too early"
        now = seat.retry_ns
        cohort.lane.tidy(now)
        assert len(cohort.dials) == len(pauses) + 1, "not tried again"
    ceilings = [min(LEAST_PAUSE_S * 2**i, MOST_PAUSE_S) for i in range(9)]
    assert all(top / 2 <= pause <= top for pause, top in zip(pauses, ceilings, strict=True))
    assert len(set(pauses)) == len(pauses)
    cohort.open(cohort.dials[-1])
    cohort.dials[-1].connection_lost(None)
    cohort.fire(now)  # told
    assert failing(cohort, seat, now) <= LEAST_PAUSE_S


async def test_slots_in_a_pause_end_as_the_last_attempt_did(cohorts: Any) -> None:
    """Each its own outcome, with how long ago that was; the first slot after it waits for the next attempt."""
    cohort = cohorts(connections=1)
    now = cohort.t0
    cohort.fire(now)
    (first,) = cohort.dials
    first.stage = Stage.CLOSED
    first.dial_failed(O.CONNECT_REFUSED, "ConnectionRefusedError: refused", now)
    cohort.fire(now + 20 * MS)
    cohort.fire(now + 40 * MS)
    assert {O.CONNECT_REFUSED: 3} == cohort.outcomes()
    assert 1 == len(cohort.dials)
    assert "ConnectionRefusedError: refused, 0.0 s ago; will try again" == cohort.engine.evidence[1].error
    cohort.fire(now + 150 * MS)
    assert 2 == len(cohort.dials)
    assert 1 == cohort.lane.in_flight
    cohort.open(cohort.dials[1])
    cohort.echo(cohort.dials[1])
    assert {O.CONNECT_REFUSED: 3, O.OK: 1} == cohort.outcomes()


async def test_an_attempt_that_fails_unseen_is_an_event(cohorts: Any) -> None:
    """No slot was waiting: the record still says so."""
    cohort = cohorts(connections=1)
    cohort.lane.tidy(cohort.t0)
    cohort.dials[0].stage = Stage.CLOSED
    cohort.dials[0].dial_failed(O.CONNECT_REFUSED, "refused", cohort.t0)
    assert [("load.socket_not_connected", "c", "connect_refused")] == [
        (n["name"], n["traffic"], n["outcome"]) for n in cohort.engine._notes.values()
    ]
    assert {} == cohort.outcomes()


@pytest.mark.parametrize(
    ("stage", "after_s", "ended"),
    [
        (Stage.CONNECTING, 1.0, O.CONNECT_TIMEOUT),
        (Stage.HANDSHAKING, 3.0, O.TLS_TIMEOUT),
        (Stage.BUSY, 2.0, O.RESPONSE_TIMEOUT),
        (Stage.RESOLVING, 1.0, O.DNS),
    ],
)
async def test_an_attempt_that_nobody_waits_for_has_its_deadlines(
    cohorts: Any, stage: Stage, after_s: float, ended: Outcome
) -> None:
    """Those that requests have, by how far it came."""
    cohort = cohorts(connections=1)
    cohort.lane.tidy(cohort.t0)
    socket = cohort.dials[0]
    if stage is Stage.BUSY:
        socket.connection_made(FakeTransport())
        socket.wrote_ns = cohort.t0
    else:
        socket.stage = stage
    cohort.lane.tidy(cohort.t0 + int(after_s * S) - MS)
    assert cohort.lane.opening
    cohort.lane.tidy(cohort.t0 + int(after_s * S) + MS)
    assert not cohort.lane.opening
    assert cohort.lane.seats[0].failure.outcome is ended


async def test_a_cut_is_booked_on_the_scope_in_which_it_happened(cohorts: Any) -> None:
    """Told by a slot of the calm after it, counted for the fault; its instant is that of the cut."""
    cohort = cohorts(connections=1)
    cohort.fire(cohort.t0)
    (socket,) = cohort.dials
    cohort.open(socket)
    cohort.echo(socket)
    cohort.lane.enter_scope(1)
    socket.data_received(frame(CLOSE, (1012).to_bytes(2, "big")))
    cohort.engine._steady_scopes.add(2)
    cohort.lane.enter_scope(2)
    before = monotonic_ns()
    cohort.fire(before + 900 * MS)
    assert {O.CUT_MID_RESPONSE: 1} == cohort.outcomes(1)
    assert {} == cohort.outcomes(2)
    assert (1, 1, 0) == (cohort.lane.rows[2].sent, cohort.lane.rows[1].carried, cohort.lane.rows[2].carried)
    assert cohort.lane.rows[1].last_failure_due < before
    (cut,) = cohort.engine.evidence
    assert (1, 101) == (cut.scope, cut.status)
    assert "close frame 1012; opened by b2 under generation 7" in cut.error
    assert cut.connection_age_s is not None
    assert cut.connection_age_s < 0.8
    assert 2 == len(cohort.dials), "the slot that was told starts the next connection"
    cohort.fire(before + 910 * MS)
    cohort.open(cohort.dials[1])
    cohort.echo(cohort.dials[1])
    assert {O.OK: 1} == cohort.outcomes(2)


async def test_a_cut_in_flight_is_carried_into_the_fault(cohorts: Any) -> None:
    """Its message was sent before the fault; what cut it is the fault, at the instant of the cut."""
    cohort = cohorts(connections=1)
    cohort.fire(cohort.t0 - 500 * MS)
    cohort.open(cohort.dials[0])
    cohort.lane.enter_scope(1)
    before = monotonic_ns()
    cohort.dials[0].connection_lost(ConnectionResetError(104, "reset"))
    assert {O.CUT_MID_RESPONSE: 1} == cohort.outcomes(1)
    assert 1 == cohort.lane.rows[1].carried
    assert cohort.lane.rows[1].last_failure_due >= before


async def test_the_handshake_tells_generation_and_origin_and_later_messages_do_not(cohorts: Any) -> None:
    """A socket of an old generation must not make it seem that this generation still answers."""
    cohort = cohorts(connections=1)
    cohort.fire(cohort.t0)
    cohort.open(cohort.dials[0])
    assert {b"7"} == set(cohort.engine.generations)
    assert {b"b2"} == set(cohort.engine.origins)
    cohort.engine.generations.clear()
    cohort.echo(cohort.dials[0])
    assert {} == cohort.engine.generations


async def test_after_a_cut_the_seat_connects_by_itself(cohorts: Any) -> None:
    """The message that was cut has told it, so no slot need wait."""
    cohort = cohorts(connections=1)
    cohort.fire(cohort.t0)
    cohort.open(cohort.dials[0])
    cohort.dials[0].connection_lost(None)
    now = monotonic_ns()
    cohort.lane.tidy(now)
    assert 1 == len(cohort.dials)
    cohort.lane.tidy(now + 110 * MS)
    assert 2 == len(cohort.dials)


async def test_at_the_end_sockets_are_closed_in_order_and_none_is_opened(cohorts: Any) -> None:
    """Close frame 1000 on those that are open; dials are dropped; nothing connects any more."""
    cohort = cohorts(connections=2)
    cohort.fire(cohort.t0)
    cohort.fire(cohort.t0)
    wire = cohort.open(cohort.dials[0])
    cohort.echo(cohort.dials[0])
    assert 1 == cohort.lane.idle_connections
    sent = len(wire.written)
    cohort.lane.close_idle()
    assert 0x88 == wire.written[sent]
    assert wire.closing
    assert not cohort.lane.opening
    cohort.lane.tidy(cohort.t0 + 60 * S)
    assert 2 == len(cohort.dials)
    assert cohort.dials[0].closed_by_us


async def test_how_many_may_wait_on_one_socket(cohorts: Any) -> None:
    """What comes in a response timeout, but no fewer than 4 and no more than 256."""
    assert 4 == cohorts(connections=100, rate=100).lane.most_in_flight
    assert 40 == cohorts(connections=4, rate=80).lane.most_in_flight
    assert 256 == cohorts(connections=1, rate=10_000).lane.most_in_flight
    assert 40 == cohorts(worker=1, workers=2, connections=4, rate=80).lane.most_in_flight
