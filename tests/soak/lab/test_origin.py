"""The origin as a process, spoken to over real sockets."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

import psutil
import pytest

from soak.load.traffic import pattern

from .client import ACCEPT, KEY, masked
from .conftest import until

COMMAND = [sys.executable, "-m", "soak.lab.origin", "--name", "b1", "--port"]


@dataclass
class Running:
    """A started origin with its control pipe."""

    process: subprocess.Popen[str]
    port: int

    def tell(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        reply: dict[str, Any] = json.loads(self.process.stdout.readline())
        return reply

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        connection.settimeout(10)
        return connection

    def talk(self, text: str) -> bytes:
        """Send raw bytes and read until the origin closes."""
        with self.connect() as connection:
            connection.sendall(text.replace("\n", "\r\n").encode())
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    received = b""
    while data := connection.recv(1 << 20):
        received += data
    return received


def start(port: int = 0, *options: str) -> Running:
    process = subprocess.Popen(
        [*COMMAND, str(port), *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready["ready"] is True
    return Running(process, ready["port"])


def end(running: Running) -> None:
    running.process.terminate()
    running.process.communicate(timeout=10)


@pytest.fixture(scope="module")
def origin() -> Iterator[Running]:
    running = start()
    yield running
    end(running)


def test_one_answer_is_whole(origin):
    """Status, names, length and the known bytes; the connection closes when asked to."""
    answer = origin.talk("GET /bytes/10 HTTP/1.1\nHost: x\nX-Soak-Id: 7\nConnection: close\n\n")
    head, _, body = answer.partition(b"\r\n\r\n")

    assert [
        b"HTTP/1.1 200 OK",
        b"X-Soak-Origin: b1",
        b"X-Soak-Id: 7",
        b"Content-Type: text/plain",
        b"Content-Length: 10",
        b"Connection: close",
    ] == head.split(b"\r\n")
    assert pattern(10) == body


def test_a_connection_is_kept_and_reused(origin):
    """Without Connection: close the same connection answers again."""
    with origin.connect() as connection:
        for i in range(3):
            connection.sendall(b"GET /bytes/4 HTTP/1.1\r\nHost: x\r\nX-Soak-Id: %d\r\n\r\n" % i)
            received = b""
            while not received.endswith(pattern(4)):
                received += connection.recv(4096)
            assert b"X-Soak-Id: %d\r\n" % i in received


def test_pipelined_requests_are_answered_in_order(origin):
    """A slow first answer does not let the others overtake (RFC 9112 section 9.3.2)."""
    many = "".join(f"GET /bytes/{i} HTTP/1.1\nHost: x\nX-Soak-Id: {i}\n\n" for i in range(1, 200))
    answer = origin.talk(
        "GET /delay/50/bytes/1 HTTP/1.1\nHost: x\nX-Soak-Id: 0\n\n"
        + many
        + "GET /bytes/1 HTTP/1.1\nHost: x\nX-Soak-Id: 200\nConnection: close\n\n"
    )
    ids = [int(line.split()[1]) for line in answer.split(b"\r\n") if line.startswith(b"X-Soak-Id")]

    assert list(range(201)) == ids


def test_head_says_the_length_and_sends_nothing(origin):
    """HEAD has the headers of GET."""
    answer = origin.talk("HEAD /bytes/10 HTTP/1.1\nHost: x\nConnection: close\n\n")

    assert b"Content-Length: 10\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_an_echo_returns_the_body(origin):
    """With a length, in chunks, and in one byte pieces."""
    sized = origin.talk("POST /echo HTTP/1.1\nHost: x\nConnection: close\nContent-Length: 5\n\nhello")
    chunked = origin.talk(
        "POST /echo HTTP/1.1\nHost: x\nConnection: close\nTransfer-Encoding: chunked\n\n3\nhel\n2\nlo\n0\n\n"
    )

    for answer in (sized, chunked):
        assert b"Content-Length: 5\r\n" in answer
        assert answer.endswith(b"\r\n\r\nhello")


def test_a_request_in_single_bytes_is_understood(origin):
    """Parsing does not depend on how the bytes arrive."""
    with origin.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"POST /echo HTTP/1.1\r\nHost: x\r\nX-Soak-Id: 5\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok":
            connection.sendall(bytes([byte]))
        answer = read_all(connection)

    assert b"X-Soak-Id: 5\r\n" in answer
    assert answer.endswith(b"\r\n\r\nok")


def test_a_long_body_arrives_whole_at_a_slow_reader(origin):
    """20 MiB, read in small pieces, are the known bytes."""
    n = 20 * 1024 * 1024
    with origin.connect() as connection:
        connection.sendall(f"GET /bytes/{n} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = read_all(connection)

    assert pattern(n) == answer.partition(b"\r\n\r\n")[2]


def test_two_long_pipelined_bodies_wait_for_the_reader(origin):
    """The second answer is not begun while the socket is full, and both arrive."""
    n = 8 * 1024 * 1024
    answer = origin.talk(
        f"GET /bytes/{n} HTTP/1.1\nHost: x\n\nGET /bytes/{n} HTTP/1.1\nHost: x\nConnection: close\n\n"
    )

    assert answer.endswith(pattern(n))
    assert 2 == answer.count(b"HTTP/1.1 200 OK")
    assert 2 * n < len(answer) < 2 * n + 1000


def test_expect_continue_is_answered_first(origin):
    """RFC 9110 section 10.1.1."""
    answer = origin.talk(
        "POST /echo HTTP/1.1\nHost: x\nExpect: 100-continue\nConnection: close\nContent-Length: 2\n\nhi"
    )

    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    ("status", "request_text"),
    [
        (b"404", "GET /nothing HTTP/1.1\nHost: x\nConnection: close\n\n"),
        (b"400", "GET / HTTP/1.1\nConnection: close\n\n"),
        (b"400", "this is not HTTP\n\n"),
        (b"413", f"POST /echo HTTP/1.1\nHost: x\nContent-Length: {2**30}\n\n"),
        (b"431", f"GET / HTTP/1.1\nHost: x\nX-Long: {'x' * 70_000}\n\n"),
        (b"200", "GET / HTTP/1.0\n\n"),
    ],
)
def test_bad_requests_get_their_status_and_a_closed_connection(origin, status, request_text):
    """The reason is in the status and the connection ends."""
    assert status == origin.talk(request_text).split(b" ")[1]


def test_a_good_request_before_garbage_is_answered(origin):
    """The refusal comes second and does not carry the id of the first."""
    answer = origin.talk("GET /bytes/2 HTTP/1.1\nHost: x\nX-Soak-Id: good\n\n\x01\x02garbage\n\n")

    assert [b"200", b"400"] == [
        part.split(b" ")[1] for part in answer.split(b"HTTP/1.1")[1:] for part in [b"x" + part]
    ]
    assert 1 == answer.count(b"X-Soak-Id: good")


def test_http_1_0_may_keep_the_connection(origin):
    """It is said so, because 1.0 closes by default."""
    with origin.connect() as connection:
        connection.sendall(b"GET /bytes/1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")

        assert b"Connection: keep-alive\r\n" in connection.recv(4096)


def test_an_upgrade_is_declined_by_answering(origin):
    """The request is answered in HTTP/1.1 and the next one too (RFC 9110 section 7.8)."""
    answer = origin.talk(
        "GET /bytes/1 HTTP/1.1\nHost: x\nConnection: upgrade\nUpgrade: websocket\n\n"
        "GET /bytes/2 HTTP/1.1\nHost: x\nConnection: close\n\n"
    )

    assert 2 == answer.count(b"HTTP/1.1 200 OK")


def test_planted_defects_show_on_the_wire():
    """Reset, cut, wrong id, wrong body, wrong status: each is what a client would see."""
    running = start()
    get = "GET /bytes/1000 HTTP/1.1\nHost: x\nX-Soak-Id: 1\nConnection: close\n\n"
    try:
        assert {"ok": True} == running.tell('{"reset_ratio": 1}')
        with pytest.raises(ConnectionResetError):
            running.talk(get)
        running.tell('{"cut_ratio": 1}')
        cut = running.talk(get)
        assert b"Content-Length: 1000\r\n" in cut
        assert pattern(500) == cut.partition(b"\r\n\r\n")[2]
        running.tell('{"wrong_id_ratio": 1}')
        assert b"X-Soak-Id: not-1\r\n" in running.talk(get)
        running.tell('{"wrong_body_ratio": 1}')
        assert pattern(1000) != running.talk(get).partition(b"\r\n\r\n")[2]
        running.tell('{"status_ratio": 1, "status": 502}')
        assert running.talk(get).startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
        assert "not JSON" in running.tell("{")["error"]
        assert {"ok": True} == running.tell("{}")
        assert running.talk(get).endswith(pattern(1000))
        assert 6 == running.tell('{"stats": true}')["requests"]
    finally:
        end(running)


def test_it_ends_at_once_on_sigterm_and_its_port_works_again_at_once():
    """A restart on the same port needs no waiting, although a client's connection was open."""
    first = start()
    with first.connect() as connection:
        connection.sendall(b"GET /bytes/1 HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.recv(100)
        first.process.send_signal(signal.SIGTERM)
        first.process.communicate(timeout=5)
        second = start(first.port)
        try:
            assert first.port == second.port
            assert 0 == first.process.returncode
        finally:
            end(second)


def test_it_ends_when_its_control_pipe_ends():
    """Whoever commanded it is gone."""
    running = start()
    running.process.communicate(timeout=5)

    assert 0 == running.process.returncode


def test_a_port_in_use_is_said(origin):
    """One sentence on stderr, exit status 1."""
    done = subprocess.run(
        [*COMMAND, str(origin.port)], capture_output=True, text=True, timeout=20, check=False
    )

    assert 1 == done.returncode
    assert f"origin b1 cannot listen on 127.0.0.1:{origin.port}" in done.stderr


def test_without_a_pipe_it_serves_on(tmp_path):
    """/dev/null on stdin is no command to end; --dir is its working directory."""
    process = subprocess.Popen(
        [*COMMAND, "0", "--dir", str(tmp_path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    running = Running(process, json.loads(process.stdout.readline())["port"])
    try:
        assert b" 200 OK" in running.talk("GET / HTTP/1.1\nHost: x\nConnection: close\n\n")
        assert str(tmp_path) == psutil.Process(process.pid).cwd()
    finally:
        end(running)


@pytest.mark.parametrize("suspended", [False, True])
async def test_it_dies_with_its_parent(suspended):
    """A parent that is killed takes it along, even when it is suspended and has no control pipe."""
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        textwrap.dedent(f"""
            import subprocess, sys, time
            child = subprocess.Popen({[*COMMAND, "0"]!r}, stdin=subprocess.DEVNULL)
            print(child.pid, flush=True)
            child.wait()
        """),
        stdout=asyncio.subprocess.PIPE,
    )
    assert parent.stdout is not None
    lines = [await parent.stdout.readline(), await parent.stdout.readline()]
    child = psutil.Process(int(next(line for line in lines if not line.startswith(b"{"))))
    if suspended:
        child.suspend()
    parent.kill()
    await parent.wait()
    await until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


async def test_memory_is_flat_under_load():
    """20,000 requests, 4 KiB each way, leave no trace."""
    running = start()
    process = psutil.Process(running.process.pid)

    async def hammer(requests: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        head = b"POST /echo HTTP/1.1\r\nHost: x\r\nX-Soak-Id: 1\r\nContent-Length: 4096\r\n\r\n"
        for _ in range(requests // 10):
            writer.write((head + pattern(4096)) * 10)
            for _ in range(10):
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(4096)
        writer.close()
        await writer.wait_closed()

    try:
        await hammer(2000)
        before = process.memory_info().rss
        await asyncio.gather(*(hammer(5000) for _ in range(4)))
        assert process.memory_info().rss - before < 2 * 1024 * 1024
        await until(lambda: running.tell('{"stats": true}')["connections"] == 0)
    finally:
        end(running)


def test_a_drip_comes_in_pieces_over_its_time(origin):
    """Head at once, the last byte at the end; a request behind it waits its turn."""
    with origin.connect() as connection:
        began = monotonic()
        connection.sendall(
            b"GET /drip/600/bytes/4000 HTTP/1.1\r\nHost: x\r\nX-Soak-Id: 1\r\n\r\n"
            b"GET /bytes/3 HTTP/1.1\r\nHost: x\r\nX-Soak-Id: 2\r\nConnection: close\r\n\r\n"
        )
        pieces = []
        while data := connection.recv(65_536):
            pieces.append((monotonic() - began, data))
    answer = b"".join(data for _, data in pieces)

    assert pieces[0][1].endswith(b"Content-Length: 4000\r\n\r\n")
    assert pieces[0][0] < 0.4
    assert len(pieces) >= 4
    assert pieces[-1][0] > 0.55
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
    assert monotonic() - began < 5


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
        connection.settimeout(10)
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


def test_a_shared_file_that_is_none_is_said(tmp_path):
    """One sentence on stderr, exit status 1."""
    done = subprocess.run(
        [*COMMAND, "0", "--shared", str(tmp_path / "missing")],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert 1 == done.returncode
    assert "origin b1 cannot use" in done.stderr
