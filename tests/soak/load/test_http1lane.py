"""The pool of an HTTP/1.1 class: the newest idle connection first, none that is too old, none for a class that keeps none."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

import pytest

from soak.load.engine import Engine
from soak.load.http1 import Http1Connection
from soak.load.http1lane import Http1Lane
from soak.load.outcome import Stage
from soak.load.traffic import ClassSpec, LoadSlice

SECOND = 1_000_000_000


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


@pytest.fixture
async def dialed(monkeypatch):
    """Return the connections that a lane began to make."""
    made: list[Http1Connection] = []
    monkeypatch.setattr("soak.load.dial.start", lambda _lane, connection: made.append(connection))
    return made


def lane_of(rate: float = 10.0, **fields: Any) -> Http1Lane:
    spec = ClassSpec("a", rate, "127.0.0.1", 1, "x", **fields)
    now = monotonic_ns()
    load = LoadSlice(worker=0, workers=1, t0_ns=now, seconds=9, seed=1, classes=[spec], max_in_flight=50)
    return Http1Lane(Engine(load, lambda _: None), spec, load, 0, None)


def idle(
    lane: Http1Lane, now: int, *, expires_s: float = 60, since_s: float = 0
) -> tuple[Http1Connection, Wire]:
    connection, wire = Http1Connection(lane, lane.engine.next_connection()), Wire()
    connection.transport = wire  # type: ignore[assignment] # as much of one as a request needs
    connection.stage = Stage.IDLE
    connection.expires_ns = now + int(expires_s * SECOND)
    connection.idle_since = now - int(since_s * SECOND)
    lane.idle.append(connection)
    return connection, wire


async def test_a_slot_takes_the_connection_that_idles_for_the_shortest_time(dialed):
    """Those that idle longest are closed by whoever closes idle ones first; a new one is made only when none is left."""
    lane, now = lane_of(), monotonic_ns()
    (_, older), (_, newer) = idle(lane, now), idle(lane, now)
    lane.fire(now, now)
    assert (0, 1, []) == (len(older.written), len(newer.written), dialed)
    lane.fire(now, now)
    lane.fire(now, now)
    assert (1, 1) == (len(older.written), len(dialed))
    assert b"GET / HTTP/1.1\r\nHost: x" in newer.written[0]


async def test_one_that_is_too_old_or_was_closed_carries_nothing(dialed):
    """The next slot makes a new one instead."""
    lane, now = lane_of(), monotonic_ns()
    _, old = idle(lane, now, expires_s=0)
    closed, gone = idle(lane, now)
    closed.stage = Stage.CLOSED
    lane.fire(now, now)
    assert (True, [], [], 1) == (old.closed, old.written, gone.written, len(dialed))
    assert 0 == lane.idle_connections


async def test_tidying_closes_what_idles_too_long(dialed):
    """And forgets what others have closed."""
    lane, now = lane_of(), monotonic_ns()
    _, fresh = idle(lane, now)
    _, expired = idle(lane, now, expires_s=0)
    _, stale = idle(lane, now, since_s=lane.idle_timeout_ns / SECOND)
    closed, _ = idle(lane, now)
    closed.stage = Stage.CLOSED
    lane.tidy(now)
    assert (False, True, True, 1) == (fresh.closed, expired.closed, stale.closed, lane.idle_connections)
    lane.close_idle()
    assert (True, 0) == (fresh.closed, lane.idle_connections)


@pytest.mark.parametrize(
    ("rate", "fields", "made"), [(10_000, {}, 50), (100, {}, 0), (10_000, {"connection": "new"}, 0)]
)
async def test_connections_are_made_before_the_first_slot_where_slots_come_faster_than_they_can_be(
    dialed, rate, fields, made
):
    """As many as may be in flight, and none for a class that keeps none."""
    lane_of(rate, **fields).warm_up()
    assert made == len(dialed)
