"""The command line of varnishd, spoken to a server of the tests' own; the real one is in test_varnish.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from soak.proxies._varnishcli import proof, quoted, varnish_cli

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
CHALLENGE = "ixslvvxrgkjptxmcgnnsdxsvdmvfympg"


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[int]:
    """A server that answers each connection this way; yields its port."""

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(answered, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def said(status: int, text: str) -> bytes:
    return f"{status:<3d} {len(text):<8d}\n{text}\n".encode()


def test_the_secret_is_proven_as_the_manual_shows():
    """The example of varnish-cli(7): challenge, secret "foo" with its line break, response."""
    expected = "455ce847f0073c7ab3b1465f74507b75d3dc064c1e7de3b71e00de9092fdc89a"

    assert expected == proof(CHALLENGE, b"foo\n")


@pytest.mark.parametrize(
    ("expected", "word"),
    [
        ("vcl.use", "vcl.use"),
        ("soak1.*", "soak1.*"),
        ('""', ""),
        ('"/a \\"b\\" c/\\\\x.vcl"', '/a "b" c/\\x.vcl'),
        ('"a\\nb\\tc"', "a\nb\tc"),
    ],
)
def test_words_are_quoted_when_they_must_be(expected, word):
    """Blanks, quotes and line breaks of a path do not end the word."""
    assert expected == quoted(word)


async def test_it_authenticates_asks_and_reads_what_comes():
    """The challenge is answered, then each command gets its status and its text, or its JSON."""
    heard: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said(107, f"{CHALLENGE}\n\nAuthentication required.\n"))
        for reply in (said(200, "banner"), said(106, "no such VCL"), said(200, '[3, ["x"], 1.5, {"a": 1}]')):
            heard.append((await reader.readline()).decode())
            writer.write(reply)

    async with serving(answer) as port, varnish_cli("127.0.0.1", port, b"foo\n") as cli:
        assert (106, "no such VCL") == await cli.ask("vcl.use", "a b")
        assert [{"a": 1}] == await cli.ask_json("vcl.list", "-j")

    assert [f"auth {proof(CHALLENGE, b'foo' + bytes([10]))}\n", 'vcl.use "a b"\n', "vcl.list -j\n"] == heard


@pytest.mark.parametrize(
    ("words", "greeting"),
    [
        ("no command line of a varnishd: b'HTTP/1.1 400 ", b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        ("no command line of a varnishd: b'200 99999999", b"200 99999999\n"),
        ("was closed within an answer", b"200 10      \nabc"),
        ("was closed within an answer", b""),
        ("does not open its command line: 500 closing", said(500, "closing")),
    ],
)
async def test_what_is_no_answer_is_an_error(words, greeting):
    """Another server's port, a torn answer, a refusal: one sentence each."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await writer.drain()

    async with serving(answer) as port:
        with pytest.raises(OSError, match=words):
            async with varnish_cli("127.0.0.1", port, b"foo\n"):
                pytest.fail("it was opened")


async def test_json_that_is_none_is_an_error():
    """So is a command that was refused."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for reply in (said(200, "banner"), said(200, "no json"), said(101, "Unknown request")):
            writer.write(reply)
            await reader.readline()

    async with serving(answer) as port, varnish_cli("127.0.0.1", port, b"") as cli:
        with pytest.raises(OSError, match=r"'vcl.list -j' was answered by what is no JSON: 'no json'"):
            await cli.ask_json("vcl.list", "-j")
        with pytest.raises(OSError, match=r"'vcl.list -j' was answered by 101: Unknown request"):
            await cli.ask_json("vcl.list", "-j")
