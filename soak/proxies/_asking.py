"""What adapters share: find a binary, ask it for its version, ask a running proxy over its Unix socket."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from soak.errors import LabError

_VERSION_TIMEOUT_S = 10
_LOOK_AGAIN_S = 0.02
_MOST_BYTES = 8 * 1024 * 1024


def find_binary(name: str, configured: str | None, candidates: Sequence[Path | str], how_to_get: str) -> Path:
    """Return the configured binary, or the first candidate that is executable (a bare name: on PATH). Raises ``LabError``."""
    if configured is not None:
        found = shutil.which(os.path.expanduser(configured))  # noqa: PTH111 - a bare name must stay bare for PATH
        if found is None:
            raise LabError(f"proxy.binary {configured!r} is not an executable file; {how_to_get}")
        return Path(found).absolute()
    for candidate in candidates:
        if found := shutil.which(str(candidate)):
            return Path(found).absolute()
    raise LabError(f"no {name} was found in this Python's packages nor on PATH; {how_to_get}")


def ask_version(command: Sequence[str], pattern: str, how_to_get: str) -> str:
    """Run a command that says a version and return the pattern's first group. Raises ``LabError`` with its words."""
    words = " ".join(command)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"'{words}' does not run: {error}; {how_to_get}") from error
    said = (done.stdout + done.stderr).decode(errors="replace").strip()
    if match := re.search(pattern, said):
        return match[1]
    raise LabError(f"'{words}' ended with {done.returncode} and no version: {said[-500:]!r}; {how_to_get}")


async def exchange(socket: Path, request: bytes, *, finish: bool = False, patience_s: float = 0.0) -> bytes:
    """Send a request over a fresh connection to a Unix socket and return all that comes back until it is closed.

    The socket is named through its opened directory, so that a deep one fits into the 107 bytes of unix(7). The caller sets
    the deadline. ``finish`` closes the sending half, which tells a command line that no other command follows. Raises ``OSError`` when nobody listens, not even
    ``patience_s`` seconds later (a process that executes itself anew), or when the connection is reset.
    """
    reader, writer = await _connected(socket, patience_s)
    try:
        writer.write(request)
        await writer.drain()
        if finish:
            writer.write_eof()
        answer = bytearray()
        while (piece := await reader.read(65_536)) and len(answer) < _MOST_BYTES:
            answer += piece
        return bytes(answer)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _connected(socket: Path, patience_s: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    directory = os.open(socket.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    end = asyncio.get_running_loop().time() + patience_s
    try:
        while True:
            try:
                return await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/{socket.name}")
            except ConnectionRefusedError:
                if asyncio.get_running_loop().time() >= end:
                    raise
            await asyncio.sleep(_LOOK_AGAIN_S)
    finally:
        os.close(directory)


async def ask_http(
    socket: Path, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> tuple[int, str]:
    """Send one request over a fresh connection to an HTTP server on a Unix socket; returns the status and the text.

    Raises ``OSError``, also for what is no HTTP answer.
    """
    fields = {
        "Host": "localhost",
        "Content-Length": str(len(body)),
        "Connection": "close",
        "Accept-Encoding": "identity",
        **(headers or {}),
    }
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    answer = await exchange(socket, ("\r\n".join(lines) + "\r\n\r\n").encode() + body)
    head, _, said = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if not head.startswith(b"HTTP/1.") or not status or not status[0].isdigit():
        raise OSError(f"{path} was answered by what is no HTTP: {answer[:100]!r}")
    if b"\r\ntransfer-encoding: chunked" in head.lower():
        said = _unchunked(said)
    return int(status[0]), said.decode(errors="replace").strip()


def _unchunked(body: bytes) -> bytes:
    """Put chunks together (RFC 9112 section 7.1). Raises ``OSError`` when they were cut."""
    whole = b""
    while True:
        size, _, rest = body.partition(b"\r\n")
        try:
            length = int(size.partition(b";")[0], 16)
        except ValueError:
            raise OSError(f"an answer in chunks was cut after {len(whole)} bytes") from None
        if length == 0:
            return whole
        whole, body = whole + rest[:length], rest[length + 2 :]
