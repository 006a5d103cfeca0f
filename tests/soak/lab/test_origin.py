"""The origin as a process, spoken to over real sockets."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from certs.authority import Authority
from certs.install import install_pair
from soak.lab.prober import trust
from soak.load.traffic import pattern
from tests.conftest import lives

from .conftest import until
from .running import COMMAND, Running, end, read_all, start


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
        first.process.communicate(timeout=30)
        second = start(first.port)
        try:
            assert first.port == second.port
            assert 0 == first.process.returncode
        finally:
            end(second)


def test_it_ends_when_its_control_pipe_ends():
    """Whoever commanded it is gone."""
    running = start()
    running.process.communicate(timeout=30)

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
    await until(lambda: not child.is_running() or not lives(child))


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


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Authority, Path, Path]:
    """An authority, and a pair of its own for an origin."""
    authority = Authority.create(tmp_path / "certs")
    leaf = authority.leaf("soak.test")
    certificate, key = tmp_path / "origin.pem", tmp_path / "origin.key"
    install_pair(leaf.chain_pem, leaf.key_pem, certificate=certificate, key=key)
    return authority, certificate, key


def test_it_speaks_tls_on_a_second_port(pair: tuple[Authority, Path, Path]):
    """The same answers under its own certificate, in HTTP/1.1; a refusal too, although TLS cannot close one half."""
    authority, certificate, key = pair
    running = start(0, "--tls-port", "0", "--certificate", str(certificate), "--key", str(key))
    context = trust(authority.ca_pem)
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        assert running.tls_port not in (0, running.port)

        def talk(request: bytes) -> tuple[str | None, bytes]:
            plain = socket.create_connection(("127.0.0.1", running.tls_port), timeout=30)
            with context.wrap_socket(plain, server_hostname="soak.test") as secure:
                secure.sendall(request)
                return secure.selected_alpn_protocol(), read_all(secure)

        alpn, answer = talk(
            b"GET /bytes/1000 HTTP/1.1\r\nHost: x\r\nX-Soak-Id: 7\r\nConnection: close\r\n\r\n"
        )
        assert "http/1.1" == alpn
        assert answer.startswith(b"HTTP/1.1 200 OK\r\nX-Soak-Origin: b1\r\nX-Soak-Id: 7\r\n")
        assert answer.endswith(b"\r\n\r\n" + pattern(1000))
        _, refused = talk(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n")
        assert refused.startswith(b"HTTP/1.1 413 ")
        assert running.talk("GET / HTTP/1.1\nHost: x\nConnection: close\n\n").endswith(b"b1\n")
    finally:
        end(running)


def test_tls_without_a_certificate_is_refused(pair: tuple[Authority, Path, Path]):
    """By name, or in the words of the library."""
    _, certificate, _ = pair
    for options, words in (
        ((), "--tls-port needs --certificate and --key"),
        (("--certificate", str(certificate), "--key", str(certificate)), "origin b1 cannot listen on"),
    ):
        done = subprocess.run(
            [*COMMAND, "0", "--tls-port", "0", *options],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert done.returncode in (1, 2)
        assert words in done.stderr


@pytest.mark.parametrize("module", ["soak.lab.origin", "soak.load.worker"])
def test_it_starts_without_what_reads_plans(module: str):
    """Origins and load workers come up many at a time, beside a proxy that is measured: they import what they use."""
    code = (
        f"import sys, {module}; print([name for name in ('pydantic', 'yaml', 'rich') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert "[]\n" == done.stdout
