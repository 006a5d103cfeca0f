"""The short way gives what the long way would, or leaves it to that."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from soak.lab.answers import Origin
from soak.lab.connection import OriginProtocol
from soak.lab.repeats import Repeats
from soak.load.traffic import pattern


class Wire(asyncio.Transport):
    """Takes down what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""

    def write(self, data) -> None:
        self.sent += bytes(data)

    def writelines(self, pieces) -> None:
        self.sent += b"".join(pieces)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Stay: the test looks."""

    def close(self) -> None:
        """Stay: the test looks."""


class Connection:
    """One origin and one connection to it; ``short`` counts what went the short way."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.origin = Origin("b1")
        self.repeats = Repeats(self.origin)
        self.wire = Wire()
        self.protocol = OriginProtocol(self.origin, self.repeats, loop)
        self.protocol.connection_made(self.wire)
        self.short = 0
        answer = self.repeats.answer

        def counted(data):
            found = answer(data)
            self.short += found is not None
            return found

        self.repeats.answer = counted  # type: ignore[method-assign] # counts; the answer is the real one

    def ask(self, *pieces: bytes) -> bytes:
        self.wire.sent = b""
        for piece in pieces:
            self.protocol.data_received(piece)
        return self.wire.sent


@pytest.fixture
def connection():
    loop = uvloop.new_event_loop()
    yield Connection(loop)
    loop.close()


def get(path: str, request_id: str, more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nX-Soak-Id: {request_id}\r\n{more}\r\n".encode()


def post(path: str, request_id: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nx-soak-id: {request_id}\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@pytest.mark.parametrize("n", [0, 1, 1024, 20_000])
def test_the_second_of_a_kind_goes_the_short_way_and_is_the_same_but_for_its_id(connection, n):
    """Byte for byte, also for a body that is not copied."""
    first = connection.ask(get(f"/bytes/{n}", "one"))
    second = connection.ask(get(f"/bytes/{n}", "a-longer-id"))

    assert 1 == connection.short
    assert first.replace(b"one", b"a-longer-id") == second
    assert second.endswith(pattern(n))
    assert 2 == connection.origin.command({"stats": True})["requests"]


def test_an_echo_of_another_body_is_that_body(connection):
    """Only the length is part of the kind."""
    connection.ask(post("/echo", "1", b"first"))
    second = connection.ask(post("/echo", "2", b"other"))

    assert 1 == connection.short
    assert second.endswith(b"\r\n\r\nother")
    assert b"X-Soak-Id: 2\r\n" in second
    connection.ask(post("/echo", "3", b"longer body"))
    assert 1 == connection.short


def test_an_id_that_comes_twice_is_a_duplicate_on_the_short_way_too(connection):
    """Counted and said; the kind was learned from a first delivery."""
    connection.ask(post("/echo", "1", b"first"))
    assert b"X-Soak-Duplicate" not in connection.ask(post("/echo", "2", b"other"))
    again = connection.ask(post("/echo", "2", b"other"))

    assert b"\r\nX-Soak-Duplicate: 1\r\n" in again
    assert again.endswith(b"\r\n\r\nother")
    stats = connection.origin.command({"stats": True})
    assert (2, 3, 1) == (connection.short, stats["non_idempotent"], stats["duplicates"])


def test_a_duplicate_is_never_the_pattern_for_others(connection):
    """What it says of itself is not true of the next."""
    connection.ask(b"", post("/echo", "1", b"a")[:-1], b"a")
    assert b"X-Soak-Duplicate: 1" in connection.ask(post("/echo", "1", b"a"))
    assert b"X-Soak-Duplicate" not in connection.ask(post("/echo", "2", b"a"))


@pytest.mark.parametrize(
    "request_bytes",
    [
        get("/bytes/10", "1", "Connection: close\r\n"),
        get("/bytes/10", "1", "X-Soak-Id: 2\r\n"),
        get("/delay/1/bytes/10", "1"),
        get("/drip/1/bytes/10", "1"),
        get("/cache/k/bytes/10", "1"),
        get("/status/200", "1"),
        get("/nothing", "1"),
        get("/bytes/10", "1").replace(b"HTTP/1.1", b"HTTP/1.0"),
        get("/bytes/10", "1").replace(b"GET", b"HEAD"),
        get("/bytes/10", "1").replace(b"X-Soak-Id", b"X-Other"),
        get("/bytes/10", "x" * 65),
        get("/bytes/10", "1", f"X-Long: {'y' * 1100}\r\n"),
        get("/bytes/10", "1") + get("/bytes/10", "1"),
        b"POST /echo HTTP/1.1\r\nHost: x\r\nX-Soak-Id: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nz\r\n0\r\n\r\n",
    ],
)
def test_what_is_not_plain_is_never_learned(connection, request_bytes):
    """One whole request, answered at once, whole, on a kept connection; nothing else."""
    connection.protocol.data_received(request_bytes)

    assert {} == connection.repeats._known


def test_half_a_request_and_what_follows_it_go_the_long_way(connection):
    """Pieces of one request are never taken for another."""
    connection.ask(get("/bytes/10", "1"))
    whole = get("/bytes/10", "2")
    answer = connection.ask(whole[:30], whole[30:])

    assert 0 == connection.short
    assert b"X-Soak-Id: 2\r\n" in answer
    connection.ask(post("/echo", "3", b"abc")[:-1])
    assert b"\r\n\r\nab" + get("/bytes/10", "4")[:1] in connection.ask(get("/bytes/10", "4"))
    assert 0 == connection.short


def test_planted_defects_are_not_escaped(connection):
    """An origin that was told to go wrong goes wrong for known requests too."""
    connection.ask(get("/bytes/10", "1"))
    connection.origin.command({"wrong_id_ratio": 1})

    assert b"X-Soak-Id: not-2\r\n" in connection.ask(get("/bytes/10", "2"))
    assert 0 == connection.short


def test_an_id_that_http_does_not_allow_is_refused_as_before(connection):
    """The short way takes printable ids only, so that the parser still judges the others."""
    connection.ask(get("/bytes/10", "1"))

    assert connection.ask(get("/bytes/10", "a\0b")).startswith(b"HTTP/1.1 400 ")


def test_memory_is_bounded(connection):
    """Ever new kinds make it forget, not grow."""
    for i in range(5000):
        connection.ask(get(f"/bytes/{i % 10}?{i}", "1"))

    assert 0 < len(connection.repeats._known) <= 4096
