"""Servers' sides of TLS for tests: contexts that resume or do not, and one in memory that can be cut at any byte."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Self

from certs.authority import Pair
from soak.tasks import cancel, spawn
from tests.soak.load.rig import Behaviour, Server, well_behaved

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def server_context(
    pair: Pair, directory: Path, version: ssl.TLSVersion = V13, *, tickets: bool = True
) -> ssl.SSLContext:
    """A context of one version and with ticket keys of its own. Without tickets TLS 1.2 still resumes by session id."""
    chain, key = directory / "chain.pem", directory / "key.pem"
    chain.write_bytes(pair.chain_pem)
    key.write_bytes(pair.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(chain, key)
    if not tickets:
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


class InTurn(Server):
    """A server that shakes hands with each context for so many connections, and with the last one from then on."""

    def __init__(
        self,
        *contexts: ssl.SSLContext,
        each: int = 1,
        behaviour: Behaviour = well_behaved,
        delay_s: float = 0.0,
    ) -> None:
        super().__init__(behaviour)
        self._contexts, self._each, self._delay_s = contexts, each, delay_s
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._tasks.append(spawn(self._accept(), name="accept"))
        return self

    async def _accept(self) -> None:
        for accepted in count():
            sock, _ = await asyncio.get_running_loop().sock_accept(self._listener)
            context = self._contexts[min(accepted // self._each, len(self._contexts) - 1)]
            self._tasks.append(spawn(self._shake(sock, context), name="shake"))

    async def _shake(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        await asyncio.sleep(self._delay_s)
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._serve)
        with contextlib.suppress(OSError):  # a client that refuses us
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, sock, ssl=context)

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            await cancel(task)
        self._listener.close()
        for writer in list(self._writers):
            writer.transport.abort()


class Below(asyncio.Transport):
    """The transport below a layer: keeps what is written, says what was done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.done: list[str] = []
        self.unread = 0
        self.protocol: asyncio.Protocol | None = None

    def write(self, data: Any) -> None:
        self.sent += data

    def close(self) -> None:
        self.done.append("close")
        if not self.unread:
            self._lose()

    def abort(self) -> None:
        self.done.append("abort")
        self._lose()

    def is_closing(self) -> bool:
        return bool(self.done)

    def get_write_buffer_size(self) -> int:
        return self.unread

    def _lose(self) -> None:
        if self.protocol is not None:
            protocol, self.protocol = self.protocol, None
            asyncio.get_running_loop().call_soon(protocol.connection_lost, None)


class Above(asyncio.Protocol):
    """The protocol above a layer: a diary."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.data = bytearray()
        self.transport: asyncio.Transport | None = None
        self.lost: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a layer is one
        self.diary.append("made")

    def data_received(self, data: bytes) -> None:
        assert 0 < len(data) <= 16_384
        self.data += data

    def eof_received(self) -> bool:
        self.diary.append("eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc
        self.diary.append("lost")


class Memory:
    """A TLS server without a network: its bytes go where the test wants."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.shaken = False

    def hear(self, data: bytes | bytearray) -> bytes:
        """Take the client's bytes; return what they make the server say."""
        if data:
            self.incoming.write(data)
        if not self.shaken:
            try:
                self.tls.do_handshake()
                self.shaken = True
            except ssl.SSLError:  # wants more, or breaks: what it says is in the answer
                pass
        return self.outgoing.read()

    def say(self, data: bytes) -> bytes:
        """Return the records that carry these bytes."""
        left = memoryview(data)
        while left:
            left = left[self.tls.write(left) :]
        return self.outgoing.read()

    def read(self) -> bytes:
        try:
            return self.tls.read(65_536)
        except ssl.SSLWantReadError:
            return b""

    def goodbye(self) -> bytes:
        """Return a close_notify."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self.outgoing.read()


def taken(below: Below) -> bytes:
    """Take what was written to the transport below."""
    data = bytes(below.sent)
    below.sent.clear()
    return data


def shake(layer: asyncio.Protocol, below: Below, server: Memory, *, rounds: int = 4) -> None:
    """Carry bytes both ways until the handshake is through."""
    for _ in range(rounds):
        if said := server.hear(taken(below)):
            layer.data_received(said)


def resumptions(contexts: Sequence[ssl.SSLContext]) -> int:
    """How many handshakes these servers resumed, by their own count."""
    return sum(context.session_stats()["hits"] for context in contexts)
