"""Sockets and binaries that answer, and those that do not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from soak.errors import LabError
from soak.proxies._asking import ask_http, ask_version, exchange, find_binary


@asynccontextmanager
async def serving(path: Path, answer: bytes) -> AsyncIterator[list[bytes]]:
    """Answer every connection with the same bytes; yields what was asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(65_536))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield asked
    finally:
        server.close()
        await server.wait_closed()


async def test_a_socket_in_a_deep_directory_is_reached(tmp_path, monkeypatch):
    """Its path is longer than a Unix socket's may be."""
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    monkeypatch.chdir(deep)
    async with serving(Path("s"), b"answer") as asked:
        assert b"answer" == await exchange(deep / "s", b"ask", finish=True)
    assert [b"ask"] == asked


async def test_nobody_there_is_an_os_error(tmp_path):
    """No file, and a file that is no socket."""
    with pytest.raises(FileNotFoundError):
        await exchange(tmp_path / "none", b"")
    (tmp_path / "file").touch()
    with pytest.raises(ConnectionRefusedError):
        await exchange(tmp_path / "file", b"")


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ((200, ""), b"HTTP/1.1 200 OK\r\n\r\n"),
        ((400, "bad"), b"HTTP/1.1 400 Bad Request\r\nA: b\r\n\r\nbad\n"),
        ((500, "plain"), b"HTTP/1.0 500 x\r\n\r\nplain"),
        (
            (200, "onetwo"),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3;x\r\ntwo\r\n0\r\n\r\n",
        ),
    ],
)
async def test_a_request_returns_status_and_text(tmp_path, expected, answer):
    """Whole, or in chunks that are put together."""
    async with serving(tmp_path / "s", answer) as asked:
        assert expected == await ask_http(tmp_path / "s", "POST", "/load", {"A": "b"}, b"body")
    assert asked[0].startswith(
        b"POST /load HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nConnection: close\r\n"
    )
    assert asked[0].endswith(b"\r\nA: b\r\n\r\nbody")


async def test_chunks_that_were_cut_are_an_os_error(tmp_path):
    """The end of an answer is no end of its chunks."""
    cut = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n"
    async with serving(tmp_path / "s", cut):
        with pytest.raises(OSError, match="was cut after 3 bytes"):
            await ask_http(tmp_path / "s", "GET", "/stats")


@pytest.mark.parametrize("answer", [b"", b"hello", b"HTTP/1.1 many\r\n\r\n"])
async def test_what_is_no_http_is_an_os_error(tmp_path, answer):
    """Also an answer that was cut."""
    async with serving(tmp_path / "s", answer):
        with pytest.raises(OSError, match="answered by what is no HTTP"):
            await ask_http(tmp_path / "s", "GET", "/load")


def test_binaries_are_looked_for_in_order(tmp_path):
    """The first that can be executed; the configured one before all; a missing one says the fix."""
    own = tmp_path / "own"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)

    assert own == find_binary("x", None, (tmp_path / "none", own, "sh"), "fix")
    assert own == find_binary("x", str(own), ("sh",), "fix")
    with pytest.raises(LabError, match="no x was found in this Python's packages nor on PATH; fix"):
        find_binary("x", None, (tmp_path / "none",), "fix")
    with pytest.raises(LabError, match=r"proxy\.binary '.*/none' is not an executable file; fix"):
        find_binary("x", str(tmp_path / "none"), ("sh",), "fix")


def test_a_version_is_taken_from_what_a_binary_says(tmp_path):
    """On either output; else its words are in the error."""
    assert "1.2.3" == ask_version(["echo", "v1.2.3"], r"v([\d.]+)", "fix")
    assert "1.2" == ask_version(["sh", "-c", "echo v1.2 >&2; exit 3"], r"v([\d.]+)", "fix")
    with pytest.raises(LabError, match=r"'echo no' ended with 0 and no version: 'no'; fix"):
        ask_version(["echo", "no"], r"v([\d.]+)", "fix")
    with pytest.raises(LabError, match=r"does not run: .*; fix"):
        ask_version([str(tmp_path / "none")], "x", "fix")


async def test_who_does_not_listen_for_a_moment_is_waited_for(tmp_path):
    """A process that executes itself anew leaves its socket's file behind meanwhile; without patience that is an error."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
        gone.listen()
    with pytest.raises(ConnectionRefusedError):
        await exchange(path, b"ask", finish=True)
    waiting = asyncio.create_task(exchange(path, b"ask", finish=True, patience_s=10))
    await asyncio.sleep(0)
    async with serving(path, b"answer"):
        assert b"answer" == await waiting
