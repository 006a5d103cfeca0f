"""Our backend: ``python -m soak.lab.origin --name b1 --port 0``. Says who it is, echoes the request id, misbehaves on command.

``soak.lab.answers`` says what it answers, ``soak.lab.connection`` is the wire; this file is the process. It must cost little,
because it shares the machine with what is measured: uvloop, llhttp, and a short way for what was asked before
(``soak.lab.repeats``). It prints ``{"ready":true,"port":N}`` once it listens, ends at once on SIGTERM, and never outlives its parent,
unless somebody else than soak runs it (``--stay``, and ``--pid-file`` where others are to find it).

With ``--tls-port N --certificate PEM --key PEM`` it speaks TLS there, too: what a proxy passes on unread ends at the origin.

A pipe on stdin takes one JSON object a line (the fields of ``Misbehaviour``, or ``{"stats":true}``) and is answered on stdout.
With ``--shared FILE --row I`` its counters outlive it (``soak.lab.shared``).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import signal
import ssl
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from soak.lab.answers import Origin
from soak.lab.connection import OriginProtocol
from soak.lab.repeats import Repeats
from soak.lab.shared import Shared

_PR_SET_PDEATHSIG = 1
_BACKLOG = 4096


@dataclass(frozen=True, slots=True)
class Secure:
    """A second listener, with TLS."""

    port: int
    certificate: Path
    """Full chain, PEM."""
    key: Path

    def context(self) -> ssl.SSLContext:
        """Return what its handshakes are made with. Raises ``OSError`` for files that are no pair."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.set_alpn_protocols(["http/1.1"])
        made.load_cert_chain(self.certificate, self.key)
        return made


class _Control(asyncio.Protocol):
    """Commands on stdin, replies on stdout; the end of stdin is the end of the origin."""

    def __init__(self, origin: Origin, end: Callable[[], None]) -> None:
        self._origin = origin
        self._end = end
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        """Obey each whole line."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            try:
                reply = self._origin.command(json.loads(line))
            except ValueError as error:
                reply = {"error": f"not JSON: {error}"}
            _say(reply)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        """End: whoever commanded us is gone."""
        self._end()


def _say(value: Mapping[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent ends, however it ends (prctl(2)); a suspended process dies too."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


async def serve(
    name: str, host: str, port: int, shared: Shared | None = None, secure: Secure | None = None
) -> None:
    """Serve until SIGTERM, SIGINT or the end of a stdin pipe."""
    loop = asyncio.get_running_loop()
    origin = Origin(name, shared)
    repeats = Repeats(origin)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)

    async def listen(port: int, context: ssl.SSLContext | None = None) -> asyncio.Server:
        return await loop.create_server(
            lambda: OriginProtocol(origin, repeats, loop),
            host,
            port,
            ssl=context,
            backlog=_BACKLOG,
            reuse_address=True,
        )

    servers = [await listen(port)]
    if secure is not None:
        servers.append(await listen(secure.port, secure.context()))
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        await loop.connect_read_pipe(lambda: _Control(origin, ended.set), sys.stdin)
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    _say({"ready": True, **dict(zip(("port", "tls_port"), ports, strict=False))})
    await ended.wait()
    for server in servers:
        server.close()


def _secure_of(parser: argparse.ArgumentParser, wish: argparse.Namespace) -> Secure | None:
    if wish.tls_port is None:
        return None
    if wish.certificate is None or wish.key is None:
        parser.error("--tls-port needs --certificate and --key")
    return Secure(wish.tls_port, wish.certificate.absolute(), wish.key.absolute())


@contextlib.contextmanager
def _pid_in(path: Path | None) -> Iterator[None]:
    """Leave the pid in a file for as long as this process serves. Raises ``OSError``."""
    if path is None:
        yield
        return
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(f"{os.getpid()}\n")
    fresh.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one origin."""
    parser = argparse.ArgumentParser(
        prog="python -m soak.lab.origin", description="A backend of soak's labs."
    )
    parser.add_argument("--name", required=True, help="what it calls itself in X-Soak-Origin")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, help="0: any free one")
    parser.add_argument("--dir", default=None, help="working directory")
    parser.add_argument("--shared", type=Path, default=None, help="the file that the lab's origins share")
    parser.add_argument("--row", type=int, default=0, help="which row of it is this origin's")
    parser.add_argument("--tls-port", type=int, default=None, help="speak TLS there, too; 0: any free one")
    parser.add_argument("--certificate", type=Path, default=None, help="full chain for it, PEM")
    parser.add_argument("--key", type=Path, default=None, help="its key, PEM")
    parser.add_argument("--stay", action="store_true", help="outlive whoever started it")
    parser.add_argument("--pid-file", type=Path, default=None, help="write the pid there; removed at the end")
    wish = parser.parse_args(argv)
    secure = _secure_of(parser, wish)
    if not wish.stay:
        die_with_parent()
    if wish.dir is not None:
        os.chdir(wish.dir)
    try:
        shared = None if wish.shared is None else Shared.open(wish.shared, wish.row)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"origin {wish.name} cannot use {wish.shared}: {error}\n")
        return 1
    try:
        with _pid_in(wish.pid_file):
            uvloop.run(serve(wish.name, wish.host, wish.port, shared, secure))
    except OSError as error:  # ssl.SSLError is one
        where = f"{wish.host}:{wish.port}" + (f" and {wish.tls_port} with TLS" if secure is not None else "")
        sys.stderr.write(f"origin {wish.name} cannot listen on {where}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
