"""One connection, fed by hand: exactly one end for each request and never an exception, whatever bytes come how."""

from __future__ import annotations

import asyncio
import gc
import weakref
from time import monotonic_ns
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soak.load.http1 import MAX_HEAD_BYTES, Http1Connection
from soak.load.http1lane import Http1Lane
from soak.load.lane import Lane
from soak.load.outcome import Stage
from soak.model import Outcome
from tests.soak.load.rig import BODY, answer

HEAD = b"HTTP/1.1 200 OK\r\nX-Soak-Id: 1\r\n"


class FakeTransport(asyncio.Transport):
    """Takes bytes; closes when told; tells nobody by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closing = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True


class FakeLane:
    """What a connection sees of its class."""

    request_head = b"GET / HTTP/1.1\r\nHost: x\r\nX-Soak-Id: "
    request_tail = b"\r\n\r\n"
    keep = True
    check_identity = True
    expect_status = 200
    expect_length = len(BODY)
    expect_crc = -1
    max_body = MAX_HEAD_BYTES
    known = None

    def __init__(self) -> None:
        self.idle: list[Http1Connection] = []
        self.ends: list[tuple[Outcome, str]] = []
        self.opened = self.over = self.strays = 0

    compose = Lane.compose
    judge = Lane.judge
    mismatch = Lane.mismatch

    def connected(self, connection: Http1Connection, now: int) -> None:
        self.opened += 1
        connection.expires_ns = now + 3_600_000_000_000

    def closed(self, connection: Http1Connection) -> None:
        self.over += 1

    def unsolicited(self, connection: Http1Connection) -> None:
        self.strays += 1
        connection.abort()

    def done(self, connection: Http1Connection, ended: Outcome, now: int, error: str) -> None:
        assert (ended is Outcome.OK) == (error == "")
        self.ends.append((ended, error))


class Bench:
    """A connection between a fake lane and a fake transport."""

    def __init__(self) -> None:
        self.lane = FakeLane()
        self.connection = Http1Connection(cast("Http1Lane", self.lane), 1)
        self.transport = FakeTransport()
        self.requests = 0
        self.ask()

    def ask(self) -> None:
        """Put the next request on the connection: at first while it is being dialled, then while it is idle."""
        self.requests += 1
        now = monotonic_ns()
        self.connection.assign(b"1", now, now, 0)
        if self.requests == 1:
            self.connection.connection_made(self.transport)
        else:
            self.connection.write_request(now)

    def feed(self, data: bytes) -> None:
        """Deliver bytes as a real transport would: not after a close."""
        if data and not self.transport.closing:
            self.connection.data_received(data)
        if self.connection.stage is Stage.IDLE and not self.transport.closing:
            assert [self.connection] == self.lane.idle
            self.lane.idle.clear()
            self.ask()

    def end(self, how: str) -> None:
        """Finish, as a peer or the engine might."""
        if how == "timeout" and self.connection.stage is Stage.BUSY:
            self.connection.give_up(Outcome.RESPONSE_TIMEOUT, "late", monotonic_ns())
        if how == "eof" and not self.transport.closing:
            assert not self.connection.eof_received()
        self.connection.connection_lost(ConnectionResetError(104, "reset") if how == "reset" else None)


TEMPLATES = [
    answer(b"1"),
    answer(b"1", headers=b"Connection: close\r\n"),
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n10\r\n" + BODY + b"\r\n0\r\nX-T: 1\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"1"),
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    HEAD + b"\r\n" + BODY,
    answer(b"2", status="503 Busy"),
    HEAD + b"Content-Length: 99999999999999999999\r\n\r\n",
    b"\r\n\r\n",
]


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Some answers, mutated here and there, in random pieces."""
    whole = bytearray(b"".join(draw(st.lists(st.sampled_from(TEMPLATES), min_size=1, max_size=4))))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(whole)))
        n = draw(st.integers(0, 4))
        whole[at : at + n] = draw(st.binary(max_size=4))
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    return [bytes(whole[a:b]) for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


ENDS = st.sampled_from(["eof", "close", "reset", "timeout"])


def play(pieces: list[bytes], how: str) -> Bench:
    bench = Bench()
    for piece in pieces:
        bench.feed(piece)
    bench.end(how)
    assert bench.requests == len(bench.lane.ends) == len(bench.transport.written)
    assert (1, 1) == (bench.lane.opened, bench.lane.over)
    assert Stage.CLOSED is bench.connection.stage
    assert [] == bench.lane.idle
    return bench


@settings(max_examples=600, deadline=None)
@given(pieces=streams(), how=ENDS)
def test_mutated_answers_end_each_request_exactly_once(pieces: list[bytes], how: str) -> None:
    """No mutation, no chunking and no end makes two ends, none, or an exception."""
    play(pieces, how)


@settings(max_examples=200, deadline=None)
@given(pieces=st.lists(st.binary(max_size=60), max_size=8), how=ENDS)
def test_random_bytes_end_each_request_exactly_once(pieces: list[bytes], how: str) -> None:
    """Noise is never ok."""
    bench = play(pieces, how)
    assert Outcome.OK not in {ended for ended, _ in bench.lane.ends}


@settings(max_examples=150, deadline=None)
@given(cuts=st.lists(st.integers(0, len(TEMPLATES[2])), max_size=12), template=st.sampled_from([0, 2, 3]))
def test_chunking_never_changes_the_outcome(cuts: list[int], template: int) -> None:
    """The same answer cut anywhere is the same answer."""
    whole = TEMPLATES[template]
    cuts = sorted(min(c, len(whole)) for c in cuts)
    bench = play([whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)], "close")
    assert Outcome.OK is bench.lane.ends[0][0]


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nX-Soak-Id: 1\r\nTransfer-Encoding: gzip\r\n\r\n" + BODY, Outcome.OK),
        (HEAD + b"x-SOAK-id: 2\r\nContent-Length: 16\r\n\r\n" + BODY, Outcome.IDENTITY_MISMATCH),
        (HEAD + b"Content-Length: 0\r\n\r\n", Outcome.BODY_MISMATCH),
    ],
)
def test_framing_and_names(piece: bytes, expected: Outcome) -> None:
    """Unknown transfer codings end with the connection (RFC 9112 section 6.3); names are matched in any spelling."""
    assert expected is play([piece], "close").lane.ends[0][0]


def test_a_connection_given_up_while_dialling_is_closed_when_it_comes_up() -> None:
    """The request was booked; the transport that arrives late is aborted and never counted."""
    lane = FakeLane()
    connection = Http1Connection(cast("Http1Lane", lane), 1)
    connection.assign(b"1", 1, 1, 0)
    connection.give_up(Outcome.TLS_TIMEOUT, "late", 2)
    transport = FakeTransport()
    connection.connection_made(transport)
    assert transport.closing
    connection.connection_lost(None)
    assert ([(Outcome.TLS_TIMEOUT, "late")], 0) == (lane.ends, lane.opened)
    assert [] == transport.written


def test_bytes_after_our_close_are_of_no_interest() -> None:
    """What a peer still sends while we close is neither unsolicited nor an end."""
    bench = Bench()
    bench.connection.data_received(answer(b"1", headers=b"Connection: close\r\n"))
    bench.connection.data_received(b"late")
    assert (0, 1) == (bench.lane.strays, len(bench.lane.ends))


def test_an_idle_connection_whose_end_has_come_is_not_used() -> None:
    """From the end of stream on, before the loop reports the close."""
    bench = Bench()
    bench.connection.data_received(answer(b"1"))
    before = bench.connection.stage
    bench.connection.eof_received()
    assert (Stage.IDLE, Stage.CLOSED) == (before, bench.connection.stage)


def test_a_closed_connection_is_freed_without_the_collector() -> None:
    """The parser's way back to the connection is cut at the close, so reference counting frees both."""
    gc.disable()
    try:
        bench = Bench()
        bench.connection.data_received(answer(b"1"))
        bench.lane.idle.clear()
        bench.connection.connection_lost(None)
        gone = weakref.ref(bench.connection)
        del bench
        assert gone() is None
    finally:
        gc.enable()
