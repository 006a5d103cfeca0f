"""An HTTP/2 connection fed by hand, and a small honest server to go wrong with: what the tests of HTTP/2 stand on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any, cast

from soak.load import h2frames as h2
from soak.load.h2lane import H2Lane
from soak.load.h2stream import H2Stream
from soak.load.hpack import Decoder, literal, literal_head
from soak.load.http2 import H2Connection
from soak.load.lane import Lane
from soak.load.outcome import Stage
from soak.model import Outcome
from tests.soak.load.rig import BODY, Behaviour, Peer

Frame = tuple[int, int, int, bytes]
"""Kind, flags, stream, payload."""
SETTINGS = h2.settings({})
READY = SETTINGS + h2.SETTINGS_ACK
LAST = h2.END_HEADERS | h2.END_STREAM


def frames(data: bytes) -> Iterator[Frame]:
    """Cut whole frames."""
    at = 0
    while at < len(data):
        word, flags, number = h2.HEAD.unpack_from(data, at)
        end = at + h2.HEAD_BYTES + (word >> 8)
        assert end <= len(data)
        yield word & 0xFF, flags, number, data[at + h2.HEAD_BYTES : end]
        at = end


def block(*fields: tuple[bytes, bytes], status: bytes = b"200") -> bytes:
    """A header block of literals."""
    return b"".join(literal(name, value) for name, value in [(b":status", status), *fields])


def headers(number: int, payload: bytes | None = None, flags: int = h2.END_HEADERS) -> bytes:
    """A HEADERS frame; by default a good beginning of an answer."""
    if payload is None:
        payload = block((b"x-soak-id", b"%d" % number), (b"content-length", b"16"))
    return h2.frame(h2.HEADERS, flags, number, payload)


def data(number: int, body: bytes = BODY, flags: int = h2.END_STREAM) -> bytes:
    """A DATA frame; by default a good body."""
    return h2.frame(h2.DATA, flags, number, body)


def answer(number: int, body: bytes = BODY) -> bytes:
    """A good answer to the request on a stream, whose id is the stream's number in these tests."""
    return headers(number) + data(number, body)


def rst(number: int, code: int = h2.Code.CANCEL) -> bytes:
    """A reset."""
    return h2.rst_stream(number, h2.Code(code))


def goaway(last: int, code: int = 0, debug: bytes = b"") -> bytes:
    """A server's GOAWAY."""
    return h2.frame(h2.GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big") + debug)


class FakeTransport(asyncio.Transport):
    """Takes bytes; closes when told; may be full."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closing = self.aborted = False
        self.tls: Any = None

    def write(self, data: Any) -> None:
        assert not self.closing
        self.written += data

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.tls if name == "ssl_object" else default

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True


@dataclass
class FakeLane:
    """What a connection sees of its class."""

    body: bytes = b""
    streams: int = 16
    max_body: int = 64 * 1024
    check_identity: bool = True
    expect_status: int = 200
    expect_length: int = len(BODY)
    expect_crc: int = -1
    request_head: bytes = literal(b":method", b"GET") + literal_head(b"x-soak-id")
    ends: dict[bytes, tuple[Outcome, str]] = field(default_factory=dict)
    opened: int = 0
    over: int = 0
    forgotten: int = 0

    def __post_init__(self) -> None:
        self.engine = SimpleNamespace(reused=0)
        self.spec = SimpleNamespace(streams=self.streams)
        self.peer_streams = self.streams

    compose = H2Lane.compose
    judge = Lane.judge
    mismatch = Lane.mismatch

    def connected(self, connection: H2Connection, now: int) -> None:
        self.opened += 1
        connection.expires_ns = now + 3_600_000_000_000

    def closed(self, connection: H2Connection) -> None:
        self.over += 1

    def forget(self, connection: H2Connection) -> None:
        self.forgotten += 1

    def done(self, stream: H2Stream, ended: Outcome, now: int, error: str) -> None:
        assert stream.request_id not in self.ends
        assert stream.stage is Stage.CLOSED
        assert (ended is Outcome.OK) == (error == "")
        self.ends[stream.request_id] = (ended, error)


class Bench:
    """A connection between a fake lane and a fake transport. Needs a running loop. Request ids are stream numbers."""

    def __init__(self, requests: int = 1, *, first: bytes = READY, up: bool = True, **lane: Any) -> None:
        self.lane = FakeLane(**lane)
        self.connection = H2Connection(cast("H2Lane", self.lane), 1)
        self.transport = FakeTransport()
        self.requests: list[H2Stream] = []
        self.connection.stage = Stage.CONNECTING
        for _ in range(requests):
            self.ask()
        if up:
            self.connection.connection_made(self.transport)
            self.feed(first)

    @classmethod
    def dialing(cls) -> Bench:
        """A connection that is not up yet."""
        return cls(0, up=False)

    def ask(self) -> H2Stream:
        """Put one more request on the connection."""
        now = monotonic_ns()
        stream = H2Stream(self.connection, b"%d" % (2 * len(self.requests) + 1), now, now, 0)
        self.requests.append(stream)
        self.connection.take(stream, now)
        return stream

    def feed(self, *pieces: bytes) -> None:
        """Deliver bytes as a real transport would: not after a close."""
        for piece in pieces:
            if piece and not self.transport.closing:
                self.connection.data_received(piece)

    async def settle(self) -> None:
        """Let what was said go out."""
        await asyncio.sleep(0)

    def lose(self, exc: Exception | None = None) -> None:
        """End the connection from below."""
        self.transport.closing = True
        self.connection.connection_lost(exc)

    @property
    def said(self) -> list[Frame]:
        """Frames that we sent after the opening."""
        assert self.transport.written.startswith(h2.opening())
        return list(frames(bytes(self.transport.written[len(h2.opening()) :])))

    def said_of(self, kind: int) -> list[Frame]:
        """Those of a kind."""
        return [frame for frame in self.said if frame[0] == kind]

    def end(self, number: int = 1) -> Outcome | None:
        """How a request ended; None: not yet."""
        end = self.lane.ends.get(b"%d" % number)
        return end[0] if end else None

    def text(self, number: int = 1) -> str:
        """What was said of it."""
        return self.lane.ends[b"%d" % number][1]


H2Behaviour = Callable[["H2Peer"], Awaitable[None]]


def speaking_h2(behave: H2Behaviour, first: bytes = SETTINGS) -> Behaviour:
    """A behaviour of a server whose connections open with HTTP/2's preface."""

    async def serve(peer: Peer) -> None:
        speaker = H2Peer(peer, first)
        await speaker.open()
        await behave(speaker)

    return serve


class H2Peer:
    """A server's end over a real socket: reads requests, answers them as told."""

    def __init__(self, peer: Peer, first: bytes = SETTINGS) -> None:
        self.peer = peer
        self.bodies: dict[int, int] = {}
        self.ids: dict[int, bytes] = {}
        self._first = first
        self._decoder = Decoder()

    async def open(self) -> None:
        """Read the preface; say SETTINGS and acknowledge the client's."""
        assert h2.PREFACE == await self.peer.reader.readexactly(len(h2.PREFACE))
        await self.peer.send(self._first + h2.SETTINGS_ACK)

    async def frame(self) -> Frame:
        """Read one frame. Raises ``IncompleteReadError`` at the end."""
        word, flags, number = h2.HEAD.unpack(await self.peer.reader.readexactly(h2.HEAD_BYTES))
        return word & 0xFF, flags, number, await self.peer.reader.readexactly(word >> 8)

    async def request(self) -> tuple[int, bytes]:
        """Read up to a whole request; return its stream and its id."""
        while True:
            kind, flags, number, payload = await self.frame()
            if kind == h2.HEADERS:
                self.ids[number] = dict(self._decoder.decode(payload))[b"x-soak-id"]
                self.bodies[number] = 0
            elif kind == h2.DATA:
                self.bodies[number] += len(payload)
                if payload:
                    await self.peer.send(
                        h2.window_update(0, len(payload)) + h2.window_update(number, len(payload))
                    )
            if kind in (h2.HEADERS, h2.DATA) and flags & h2.END_STREAM:
                self.peer.requests += 1
                return number, self.ids.pop(number)

    async def answer(self, number: int, request_id: bytes, body: bytes = BODY) -> None:
        """Send a good answer."""
        fields = block((b"x-soak-id", request_id), (b"content-length", b"%d" % len(body)))
        pieces = [body[i : i + h2.MAX_FRAME_BYTES] for i in range(0, len(body), h2.MAX_FRAME_BYTES)] or [b""]
        await self.peer.send(
            headers(number, fields)
            + b"".join(data(number, piece, flags=0) for piece in pieces[:-1])
            + data(number, pieces[-1])
        )
