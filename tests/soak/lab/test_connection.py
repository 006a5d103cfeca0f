"""Streams and websockets on the wire of an origin, without a proxy between."""

from __future__ import annotations

from time import monotonic, sleep

import pytest

from soak.load.traffic import pattern

from .client import ACCEPT, KEY, masked
from .conftest import until
from .running import end, read_all, start


def test_a_drip_comes_in_pieces_over_its_time(origin):
    """Head at once, the last byte at the end; a request behind it waits its turn."""
    with origin.connect() as connection:
        began = monotonic()
        connection.sendall(
            b"GET /drip/3000/bytes/4000 HTTP/1.1\r\nHost: x\r\nX-Soak-Id: 1\r\n\r\n"
            b"GET /bytes/3 HTTP/1.1\r\nHost: x\r\nX-Soak-Id: 2\r\nConnection: close\r\n\r\n"
        )
        pieces = []
        while data := connection.recv(65_536):
            pieces.append((monotonic() - began, data))
    answer = b"".join(data for _, data in pieces)

    assert pieces[0][1].endswith(b"Content-Length: 4000\r\n\r\n")
    assert pieces[-1][0] - pieces[0][0] > 1
    assert len(pieces) >= 4
    assert pieces[-1][0] > 2.9
    assert answer.count(pattern(4000)) == 1
    assert answer.index(b"X-Soak-Id: 1") < answer.index(pattern(4000)) < answer.index(b"X-Soak-Id: 2")


def test_a_drip_has_a_head_a_defect_and_no_time(origin):
    """HEAD sends no body; 0 ms is at once; a number that is none is 404 at once."""
    close = " HTTP/1.1\nHost: x\nConnection: close\n\n"
    began = monotonic()

    assert origin.talk("HEAD /drip/60000/bytes/10" + close).endswith(
        b"Content-Length: 10\r\nConnection: close\r\n\r\n"
    )
    assert origin.talk("GET /drip/0/bytes/10" + close).endswith(pattern(10))
    assert origin.talk("GET /drip/60000/bytes/0" + close).startswith(b"HTTP/1.1 200 ")
    assert origin.talk("GET /drip/60000/bytes/x" + close).startswith(b"HTTP/1.1 404 ")
    assert origin.talk("GET /drip/x/bytes/10" + close).startswith(b"HTTP/1.1 404 ")
    assert monotonic() - began < 50


async def test_drips_that_are_cut_are_forgotten_at_once():
    """A hundred half-sent streams leave nothing open, and one that is cut on purpose ends in the middle."""
    running = start()
    try:
        connections = [running.connect() for _ in range(100)]
        for connection in connections:
            connection.sendall(b"GET /drip/60000/bytes/1000 HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        stats = running.tell('{"stats": true}')
        assert (100, 100) == (stats["connections"], stats["drips"])
        for connection in connections:
            connection.close()
        await until(lambda: running.tell('{"stats": true}')["connections"] == 0)
        running.tell('{"cut_ratio": 1}')
        cut = running.talk("GET /drip/200/bytes/1000 HTTP/1.1\nHost: x\n\n")
        assert cut.endswith(b"Content-Length: 1000\r\nConnection: close\r\n\r\n" + pattern(500))
    finally:
        end(running)


def test_a_drip_to_a_reader_that_sleeps_waits_for_it(origin):
    """20 MiB in half a second: what the socket does not take stays where it is, and all of it arrives."""
    n = 20 * 1024 * 1024
    with origin.connect() as connection:
        connection.sendall(
            f"GET /drip/500/bytes/{n} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
        sleep(1.0)
        answer = read_all(connection)

    assert pattern(n) == answer.partition(b"\r\n\r\n")[2]


def opening(more: str = "Sec-WebSocket-Version: 13\n", key: str = KEY) -> str:
    return f"GET /ws HTTP/1.1\nHost: x\nConnection: keep-alive, Upgrade\nUpgrade: WebSocket\nSec-WebSocket-Key: {key}\n{more}\n"


def test_a_websocket_behind_a_slow_answer_opens_after_it(origin):
    """Frames that came early are not lost, the answer before it is first, and a close ends the connection."""
    with origin.connect() as connection:
        connection.sendall(b"GET /delay/100/bytes/2 HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.sendall(opening().replace("\n", "\r\n").encode() + masked(1, b"early"))
        connection.sendall(masked(1, b"too") + masked(8, b"\x03\xe8"))
        answer = read_all(connection)

    first, _, rest = answer.partition(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert first.endswith(b"\r\n\r\n" + pattern(2))
    assert f"\r\nSec-WebSocket-Accept: {ACCEPT}\r\n".encode() in rest
    assert rest.endswith(b"\r\n\r\n\x81\x05early\x81\x03too\x88\x02\x03\xe8")


def test_a_websocket_that_does_not_read_is_not_read_from(origin):
    """Back pressure: the origin holds a few messages, not all that could be sent."""
    with origin.connect() as connection:
        connection.sendall(opening().replace("\n", "\r\n").encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")
        message = masked(2, pattern(100_000))
        connection.setblocking(False)
        sent, idle = 0, 0
        while idle < 20 and sent < 400 * len(message):
            try:
                sent += connection.send((message * 2)[sent % len(message) :])
                idle = 0
            except BlockingIOError:
                idle += 1
                sleep(0.02)
        assert sent < 400 * len(message)
        connection.settimeout(30)
        whole = sent // len(message)
        wanted = whole * (len(pattern(100_000)) + 10)
        received = 0
        while received < wanted:
            received += len(connection.recv(1 << 20))
    assert received >= wanted > 0


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (426, "GET /ws HTTP/1.1\nHost: x\nConnection: close\n\n"),
        (426, opening("Sec-WebSocket-Version: 8\nConnection: close\n")),
        (400, opening("Sec-WebSocket-Version: 13\nX: y\n", key="short").replace("keep-alive", "close")),
        (400, opening().replace("GET", "POST").replace("keep-alive", "close")),
    ],
)
def test_a_handshake_that_is_wrong_says_what_is_missing(origin, status, text):
    """RFC 6455 section 4.2.2; the connection stays HTTP."""
    with origin.connect() as connection:
        connection.sendall(text.replace("\n", "\r\n").encode())
        answer = connection.recv(4096)

    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert (status == 426) is (b"\r\nUpgrade: websocket\r\n" in answer)


def test_a_websocket_can_be_refused_on_purpose():
    """A planted status wins over the handshake, and the connection stays HTTP."""
    running = start()
    try:
        running.tell('{"status_ratio": 1}')
        with running.connect() as connection:
            connection.sendall(opening().replace("\n", "\r\n").encode())
            assert connection.recv(4096).startswith(b"HTTP/1.1 503 ")
            running.tell("{}")
            connection.sendall(b"GET /bytes/1 HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b" 200 OK" in connection.recv(4096)
        assert 0 == running.tell('{"stats": true}')["websockets"]
    finally:
        end(running)
