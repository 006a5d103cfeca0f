"""The command line of a running varnishd: a line protocol over TCP, opened with a secret (varnish-cli(7)).

The caller sets the deadline. Errors are ``OSError``, also for what is no answer of a varnishd.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import Any

OK = 200
_MUST_AUTHENTICATE = 107
_HEADER_BYTES = 13
_HEAD = re.compile(rb"(\d{3}) (\d+) *\n")
_MOST_BYTES = 8 * 1024 * 1024


class VarnishCli:
    """One opened command line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, *words: str) -> tuple[int, str]:
        """Send one command and return the status (200 is good) and the text of its answer."""
        self._writer.write((" ".join(map(quoted, words)) + "\n").encode())
        await self._writer.drain()
        return await self.answer()

    async def ask_json(self, *words: str) -> Sequence[Any]:
        """Send a command that answers in JSON and return what it lists, without the three fields before it."""
        status, text = await self.ask(*words)
        if status != OK:
            raise OSError(f"'{' '.join(words)}' was answered by {status}: {text}")
        try:
            value = json.loads(text)
        except ValueError as error:
            raise OSError(f"'{' '.join(words)}' was answered by what is no JSON: {text[:100]!r}") from error
        return list(value[3:])

    async def answer(self) -> tuple[int, str]:
        """Read one answer: status and length on a line of 13 bytes, then the text."""
        try:
            head = await self._reader.readexactly(_HEADER_BYTES)
            if (form := _HEAD.fullmatch(head)) is None or int(form[2]) > _MOST_BYTES:
                raise OSError(f"what answers is no command line of a varnishd: {head!r}")
            text = await self._reader.readexactly(int(form[2]) + 1)
        except asyncio.IncompleteReadError as error:
            raise OSError("the command line of varnishd was closed within an answer") from error
        return int(form[1]), text[:-1].decode(errors="replace")


@asynccontextmanager
async def varnish_cli(host: str, port: int, secret: bytes) -> AsyncIterator[VarnishCli]:
    """Open a command line. Raises ``OSError`` when nobody listens or the secret is not taken."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        cli = VarnishCli(reader, writer)
        status, text = await cli.answer()
        if status == _MUST_AUTHENTICATE:
            status, text = await cli.ask("auth", proof(text[:32], secret))
        if status != OK:
            raise OSError(f"varnishd does not open its command line: {status} {text.strip()}")
        yield cli
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def proof(challenge: str, secret: bytes) -> str:
    """Return what proves that one knows the secret (varnish-cli(7))."""
    line = challenge.encode() + b"\n"
    return sha256(line + secret + line).hexdigest()


def quoted(word: str) -> str:
    """Return a word as the command line wants it: between quotes when it holds anything unusual."""
    if word and all(c.isalnum() or c in "._-/*" for c in word):
        return word
    escaped: Mapping[str, str] = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escaped.get(c, c) for c in word) + '"'
