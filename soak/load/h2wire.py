"""The wire of an HTTP/2 connection: bytes to frames and back (RFC 9113 sections 4 and 6), as far as no stream is concerned.

Cuts what comes into frames, puts header blocks together, answers PING, writes all frames of one turn of the loop together.
What a peer may make it hold is bounded: one incomplete frame, one header block, its own unread replies. What frames mean
for requests is the subclass's business.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from time import monotonic_ns

from soak.load import h2frames as h2
from soak.load.dial import Dialed
from soak.load.h2frames import HEAD, HEAD_BYTES, Code, H2Error
from soak.load.h2stream import MAX_HEAD_BYTES
from soak.load.outcome import Stage

_MAX_CONTINUATIONS = 64
MAX_IDLE_FRAMES = 10_000
"""Frames without progress of any request (PING, SETTINGS, empty DATA ...) before the peer is taken for a flood."""
MAX_UNREAD_REPLIES = 1_000
_OF_CONNECTION = {h2.SETTINGS: "SETTINGS", h2.PING: "PING", h2.GOAWAY: "GOAWAY"}


class H2Wire(Dialed):
    """Framing of one connection. A breach of the protocol is an ``H2Error``, which ``_break`` gets."""

    __slots__ = (
        "_block",
        "_flush_due",
        "_idle_frames",
        "_loop",
        "_need",
        "_out",
        "_out_bytes",
        "_paused",
        "_rest",
        "_stage",
        "_unread_replies",
        "ready",
    )

    def __init__(self, number: int) -> None:
        self.id = number
        self._stage = Stage.RESOLVING
        self._loop = asyncio.get_running_loop()
        self.transport = None
        self.dial_task = None
        self.connected_ns = self.expires_ns = 0
        self.serial = ""
        self.resumed = self.closed_by_us = False
        self.ready = False
        """The peer's SETTINGS came: requests may be sent."""
        self._rest = bytearray()
        self._need = 0
        self._block: tuple[int, int, list[bytes]] | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flush_due = self._paused = False
        self._unread_replies = self._idle_frames = 0

    # -- writing -------------------------------------------------------------------------------------------------

    def _say(self, data: bytes) -> None:
        """Have bytes sent: all of one turn of the loop go out together."""
        self._out.append(data)
        self._out_bytes += len(data)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _reply(self, data: bytes) -> None:
        """Send what the peer made us send. One that does not read its replies gets no more of them."""
        if self._paused:
            self._unread_replies += 1
            if self._unread_replies > MAX_UNREAD_REPLIES:
                raise H2Error(Code.ENHANCE_YOUR_CALM, "the peer does not read the replies that it asks for")
        self._say(data)

    def _flush(self) -> None:
        self._flush_due = False
        while self._out and self.transport is not None and self._stage is not Stage.CLOSED:
            data = b"".join(self._out)
            self._out.clear()
            self._out_bytes = 0
            self.transport.write(data)
            if not self._paused:
                self._pump_all()

    def pause_writing(self) -> None:
        """Send no more of request bodies: the peer does not read."""
        self._paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self._paused = False
        self._unread_replies = 0
        self._pump_all()

    # -- reading --------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take frames as they come, whole or in pieces."""
        if self._stage is Stage.CLOSED:
            return
        if self._rest:
            self._rest += data
            if len(self._rest) < self._need:
                return
            data = bytes(self._rest)
            self._rest.clear()
        try:
            self._parse(data, monotonic_ns())
        except H2Error as error:
            self._break(error)
        if self._out:
            self._flush()

    def _parse(self, data: bytes, now: int) -> None:
        at, end = 0, len(data)
        unpack = HEAD.unpack_from
        while end - at >= HEAD_BYTES:
            word, flags, number = unpack(data, at)
            kind = word & 0xFF
            if not self.ready and (kind != h2.SETTINGS or flags & h2.ACK):
                raise H2Error(Code.PROTOCOL_ERROR, f"the first frame is no SETTINGS: {data[at : at + 40]!r}")
            length = word >> 8
            if length > h2.MAX_FRAME_BYTES:
                raise H2Error(Code.FRAME_SIZE_ERROR, f"a frame of {length} bytes, more than we allow")
            start = at + HEAD_BYTES
            stop = start + length
            if stop > end:
                self._need = HEAD_BYTES + length
                break
            if self._block is not None and kind != h2.CONTINUATION:
                raise H2Error(Code.PROTOCOL_ERROR, "a header block was interrupted by another frame")
            number &= 0x7FFFFFFF
            if kind == h2.DATA:
                self._on_data(number, flags, data[start:stop], now)
            elif kind == h2.HEADERS:
                self._on_headers(number, flags, data[start:stop], now)
            else:
                self._on_other(kind, number, flags, data[start:stop], now)
            if self._stage is Stage.CLOSED:
                return
            at = stop
        else:
            self._need = HEAD_BYTES
        if at < end:
            self._rest += data[at:]

    def _calm(self) -> None:
        self._idle_frames += 1
        if self._idle_frames > MAX_IDLE_FRAMES:
            raise H2Error(Code.ENHANCE_YOUR_CALM, f"{MAX_IDLE_FRAMES} frames that carry nothing")

    def _on_headers(self, number: int, flags: int, payload: bytes, now: int) -> None:
        payload = h2.unpadded(payload, flags) if flags & h2.PADDED else payload
        if flags & h2.HAS_PRIORITY:
            if len(payload) < 5:
                raise H2Error(Code.FRAME_SIZE_ERROR, "HEADERS too short for the priority that they announce")
            payload = payload[5:]
        if flags & h2.END_HEADERS:
            self._on_block(number, flags, payload, now)
        else:
            self._live(number, "HEADERS")
            self._block = (number, flags, [payload])

    def _on_continuation(self, number: int, flags: int, payload: bytes, now: int) -> None:
        if self._block is None or self._block[0] != number:
            raise H2Error(Code.PROTOCOL_ERROR, f"CONTINUATION on stream {number} continues nothing")
        _, first_flags, parts = self._block
        parts.append(payload)
        if len(parts) > _MAX_CONTINUATIONS or sum(map(len, parts)) > MAX_HEAD_BYTES:
            raise H2Error(
                Code.ENHANCE_YOUR_CALM,
                f"a header block larger than {MAX_HEAD_BYTES} bytes, or in too many pieces",
            )
        if flags & h2.END_HEADERS:
            self._block = None
            self._on_block(number, first_flags, b"".join(parts), now)

    def _on_other(self, kind: int, number: int, flags: int, payload: bytes, now: int) -> None:
        if kind == h2.CONTINUATION:
            self._on_continuation(number, flags, payload, now)
            return
        self._calm()
        if kind == h2.WINDOW_UPDATE:
            _must_have("WINDOW_UPDATE", payload, 4)
            self._on_window_update(number, h2.u32(payload) & h2.MAX_WINDOW)
        elif kind == h2.RST_STREAM:
            _must_have("RST_STREAM", payload, 4)
            self._on_reset(number, h2.u32(payload), now)
        elif kind == h2.PUSH_PROMISE:
            raise H2Error(Code.PROTOCOL_ERROR, "PUSH_PROMISE, although we said that we take no pushes")
        elif kind == h2.PRIORITY:  # deprecated (section 5.3.2): nothing in it counts
            if not number:
                raise H2Error(Code.PROTOCOL_ERROR, "PRIORITY on stream 0")
        elif kind in _OF_CONNECTION:
            if number:
                raise H2Error(
                    Code.PROTOCOL_ERROR, f"{_OF_CONNECTION[kind]} on stream {number}, not on the connection"
                )
            self._on_connection_frame(kind, flags, payload, now)

    def _on_connection_frame(self, kind: int, flags: int, payload: bytes, now: int) -> None:
        if kind == h2.GOAWAY:
            if len(payload) < 8:
                raise H2Error(Code.FRAME_SIZE_ERROR, f"GOAWAY of {len(payload)} bytes")
            self._on_goaway(h2.u32(payload) & h2.MAX_WINDOW, h2.u32(payload, 4), payload[8:], now)
        elif kind == h2.PING:
            _must_have("PING", payload, 8)
            if not flags & h2.ACK:
                self._reply(h2.frame(h2.PING, h2.ACK, 0, payload))
        elif flags & h2.ACK:
            _must_have("an acknowledgement of SETTINGS", payload, 0)
        else:
            self._reply(h2.SETTINGS_ACK)
            self._on_settings(h2.parse_settings(payload), now)

    # -- what a subclass makes of it -----------------------------------------------------------------------------

    @abstractmethod
    def _pump_all(self) -> None:
        """Go on sending what waited for windows or for the peer's reading."""

    @abstractmethod
    def _live(self, number: int, kind: str) -> object | None:
        """Return an open stream; None for a closed one whose frames are to be ignored. Raises ``H2Error`` for others."""

    @abstractmethod
    def _on_data(self, number: int, flags: int, payload: bytes, now: int) -> None: ...

    @abstractmethod
    def _on_block(self, number: int, flags: int, block: bytes, now: int) -> None: ...

    @abstractmethod
    def _on_settings(self, values: list[tuple[int, int]], now: int) -> None: ...

    @abstractmethod
    def _on_window_update(self, number: int, increment: int) -> None: ...

    @abstractmethod
    def _on_reset(self, number: int, code: int, now: int) -> None: ...

    @abstractmethod
    def _on_goaway(self, last: int, code: int, debug: bytes, now: int) -> None: ...

    @abstractmethod
    def _break(self, error: H2Error) -> None:
        """End the connection: the peer broke the protocol."""


def _must_have(kind: str, payload: bytes, length: int) -> None:
    if len(payload) != length:
        raise H2Error(Code.FRAME_SIZE_ERROR, f"{kind} of {len(payload)} bytes; it has {length}")
