"""The lane: a slot is booked once, on the row of its scope, whatever the protocol does with it."""

from __future__ import annotations

from time import monotonic_ns

import pytest

from soak.load.engine import Engine
from soak.load.http1 import Http1Connection
from soak.load.http1lane import Http1Lane
from soak.load.lane import Lane
from soak.load.traffic import ClassSpec, LoadSlice
from soak.model import Outcome


class Drawer(Http1Lane):
    """A lane whose requests go nowhere until the test ends them."""

    def __init__(self, engine: Engine, spec: ClassSpec, load: LoadSlice) -> None:
        super().__init__(engine, spec, load, 0, None)
        self.flights: list[Http1Connection] = []

    def dispatch(self, request_id: bytes, due: int, now: int) -> None:
        flight = Http1Connection(self, self.engine.next_connection())
        flight.assign(request_id, due, now, self.row.scope)
        self.flights.append(flight)


@pytest.fixture
async def lane():
    spec = ClassSpec("a", 10.0, "127.0.0.1", 1, "x", method="POST", idempotent=False)
    now = monotonic_ns()
    load = LoadSlice(worker=0, workers=1, t0_ns=now, seconds=9, seed=1, classes=[spec], max_in_flight=2)
    return Drawer(Engine(load, lambda _: None), spec, load)


def outcomes(lane: Lane, scope: int) -> dict[Outcome, int]:
    return lane.rows[scope].outcomes


async def test_a_slot_is_sent_missed_or_dropped(lane):
    """Too late by our own fault is missed; past the bound on flight is dropped; nothing is queued."""
    now = monotonic_ns()
    lane.fire(now, now)
    lane.fire(now - 11_000_000, now)
    lane.fire(now, now)
    lane.fire(now, now)
    row = lane.row
    assert (2, 1, 1) == (row.sent, row.missed, row.dropped)
    assert 2 == lane.in_flight == lane.engine.in_flight == len(lane.flights)


async def test_an_unsupervised_lane_sends_nothing(lane):
    """No daemon, no load."""
    lane.engine.unsupervised = True
    now = monotonic_ns()
    lane.fire(now, now)
    assert (0, 1) == (lane.row.sent, lane.row.missed)


async def test_a_late_failure_of_a_steady_request_is_carried_to_the_fault_that_struck_it(lane):
    """A success stays where it was sent; so does a failure between two faults' scopes."""
    now = monotonic_ns()
    lane.fire(now, now)
    lane.fire(now, now)
    good, bad = lane.flights
    lane.engine.enter_scope(1, steady=False)
    lane.enter_scope(1)
    lane.done(good, Outcome.OK, now + 1000, "")
    lane.done(bad, Outcome.CUT_BEFORE_RESPONSE, now + 2000, "cut")
    assert 1 == lane.rows[0].ok
    assert ({}, {Outcome.CUT_BEFORE_RESPONSE: 1}) == (outcomes(lane, 0), outcomes(lane, 1))
    assert 1 == lane.row.carried
    assert 0 == lane.in_flight
    (evidence,) = lane.engine.evidence
    assert (1, "cut", False) == (evidence.scope, evidence.error, evidence.idempotent)


async def test_stale_reuse_of_what_cannot_be_repeated_is_counted_apart(lane):
    """Clients may not repeat a POST blindly (RFC 9110 section 9.2.2)."""
    now = monotonic_ns()
    lane.fire(now, now)
    lane.done(lane.flights[0], Outcome.STALE_REUSE, now + 1000, "closed")
    assert 1 == lane.row.stale_non_idempotent


async def test_taking_the_rows_begins_a_new_second_in_the_same_scope(lane):
    """The present scope's row is always among them, empty others are not."""
    lane.enter_scope(4)
    lane.enter_scope(5)
    rows = lane.take_rows()
    assert [5] == [row.scope for row in rows]
    assert 5 == lane.row.scope
    assert lane.row.empty
