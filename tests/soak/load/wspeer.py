"""The server's end of a websocket, spoken by hand, for tests: it can be as wrong as a test asks for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from soak.load.wsframes import accept_of, masked
from tests.soak.load.rig import Behaviour, Peer

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
Speak = Callable[["WsPeer"], Awaitable[None]]


def frame(opcode: int, payload: bytes, *, fin: bool = True, rsv: int = 0, mask: bytes = b"") -> bytes:
    """One frame as a server sends it, or as it must not."""
    n = len(payload)
    size = (
        bytes([n])
        if n < 126
        else b"\x7e" + n.to_bytes(2, "big")
        if n < 65_536
        else b"\x7f" + n.to_bytes(8, "big")
    )
    if mask:
        size = bytes([size[0] | 0x80]) + size[1:]
        payload = mask + masked(payload, mask)
    return bytes([(0x80 if fin else 0) | rsv << 4 | opcode]) + size + payload


def switch(
    key: bytes, *, extra: bytes = b"", upgrade: bytes = b"websocket", connection: bytes = b"Upgrade"
) -> bytes:
    """The answer that grants the upgrade."""
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: %s\r\nConnection: %s\r\nSec-WebSocket-Accept: %s\r\n%s\r\n"
        % (upgrade, connection, accept_of(key), extra)
    )


class WsPeer:
    """An open websocket, seen from the server."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    async def frame(self) -> tuple[int, bytes]:
        """The next frame of the client: opcode and payload. Its mask is required."""
        reader = self.peer.reader
        first, second = await reader.readexactly(2)
        assert second & 0x80, "a client must mask"
        n = second & 0x7F
        if n > 125:
            n = int.from_bytes(await reader.readexactly(2 if n == 126 else 8), "big")
        mask = await reader.readexactly(4)
        return first & 0x0F, masked(await reader.readexactly(n), mask)

    async def message(self) -> bytes:
        """The next message; the end of the connection is ``EOFError``."""
        while True:
            opcode, payload = await self.frame()
            if opcode == CLOSE:
                raise EOFError
            if opcode in (TEXT, BINARY):
                return payload

    async def send(self, *frames: bytes) -> None:
        for one in frames:
            if self.peer.writer.is_closing():
                raise EOFError  # uvloop does not take bytes for a transport that is gone
            await self.peer.send(one)

    async def echo(self, times: int = 1_000_000) -> None:
        for _ in range(times):
            await self.send(frame(TEXT, await self.message()))


async def key_of(peer: Peer) -> bytes:
    """Read a request for an upgrade, check it, and return its key."""
    head = await peer.reader.readuntil(b"\r\n\r\n")
    line, *rest = head[:-4].split(b"\r\n")
    fields = dict(field.lower().split(b": ", 1) for field in rest)
    assert line.startswith(b"GET /")
    assert (b"websocket", b"upgrade", b"13") == (
        fields[b"upgrade"],
        fields[b"connection"],
        fields[b"sec-websocket-version"],
    )
    return next(field for field in rest if field.lower().startswith(b"sec-websocket-key: ")).split(b": ")[1]


def opened(speak: Speak, *, early: bytes = b"", extra: bytes = b"") -> Behaviour:
    """Grant the upgrade, then speak; ``early`` comes in the same bytes as the grant."""

    async def behave(peer: Peer) -> None:
        await peer.send(switch(await key_of(peer), extra=extra) + early)
        await speak(WsPeer(peer))

    return behave


async def echoes(peer: WsPeer) -> None:
    """Be a good server."""
    await peer.echo()
