"""Frames of a websocket as a client sends and receives them (RFC 6455 section 5). Pure: bytes in, what they mean out.

Strict, and bounded whatever comes: a rule that the server breaks is a ``FrameError``, a message longer than promised too.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from hashlib import sha1

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_FIN, _MASKED, _RESERVED = 0x80, 0x80, 0x70
_MAX_CONTROL_BYTES = 125
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KNOWN_CODES = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})
"""Close codes that may come over the wire (section 7.4.1 and the IANA registry); 3000 to 4999 are for others to define."""


class FrameError(ValueError):
    """The server broke a rule of the protocol; says which."""


@dataclass(frozen=True, slots=True)
class Received:
    """A whole message, or a control frame."""

    opcode: int
    payload: bytes

    @property
    def close_code(self) -> int | None:
        """Code of a close frame; None when it gives none."""
        return int.from_bytes(self.payload[:2], "big") if self.payload else None

    @property
    def close_reason(self) -> str:
        """Reason of a close frame."""
        return self.payload[2:].decode("utf-8", "replace")


def accept_of(key: bytes) -> bytes:
    """Return the ``Sec-WebSocket-Accept`` that answers a ``Sec-WebSocket-Key`` (section 4.2.2)."""
    return base64.b64encode(sha1(key + _GUID, usedforsecurity=False).digest())


def masked(payload: bytes, mask: bytes) -> bytes:
    """Return the payload under a mask of 4 bytes (section 5.3), or without it; as one big integer, for speed."""
    n = len(payload)
    whole = (mask * (n // 4 + 1))[:n]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(whole, "little")).to_bytes(n, "little")


def client_frame(opcode: int, payload: bytes, mask: bytes) -> bytes:
    """Return one whole masked frame, as clients must send it."""
    n = len(payload)
    if n < 126:
        head = bytes((_FIN | opcode, _MASKED | n))
    elif n < 65_536:
        head = bytes((_FIN | opcode, _MASKED | 126)) + n.to_bytes(2, "big")
    else:
        head = bytes((_FIN | opcode, _MASKED | 127)) + n.to_bytes(8, "big")
    return head + mask + masked(payload, mask)


class FrameReader:
    """Takes bytes of one connection in any pieces; gives whole messages and control frames, in order."""

    def __init__(self, max_message_bytes: int) -> None:
        self._max_bytes = max_message_bytes
        self._buffer = bytearray()
        self._opcode = 0
        """Of the message that comes in fragments; 0: none."""
        self._fragments = bytearray()
        self._over = False

    @property
    def mid_message(self) -> bool:
        """Whether a message has begun and is not whole."""
        return bool(self._opcode) or (bool(self._buffer) and self._buffer[0] & 0x0F < CLOSE)

    def feed(self, data: bytes) -> None:
        """Take bytes; look with ``take`` until it returns None before more are fed."""
        if not self._over:
            self._buffer += data

    def take(self) -> Received | None:
        """Return what came next; None when it is not whole yet, and always after a close frame or an error.

        Raises ``FrameError``, once, for a rule that the server broke.
        """
        try:
            return None if self._over else self._take()
        except FrameError:
            self._end()
            raise

    def _end(self) -> None:
        self._over = True
        self._opcode = 0
        self._buffer.clear()
        self._fragments.clear()

    def _take(self) -> Received | None:
        while (frame := self._frame()) is not None:
            final, opcode, payload = frame
            if opcode == CLOSE:
                _check_close(payload)
                self._end()
            if opcode >= CLOSE or (final and not self._opcode):
                return Received(opcode, payload)
            self._fragments += payload
            self._opcode = self._opcode or opcode
            if final:
                whole = Received(self._opcode, bytes(self._fragments))
                self._opcode = 0
                self._fragments.clear()
                return whole
        return None

    def _frame(self) -> tuple[bool, int, bytes] | None:
        """Take one frame off the buffer: whether it is final, its opcode and payload. None: not whole yet."""
        buffer = self._buffer
        if not buffer:
            return None
        first = buffer[0]
        self._check_first(first)
        if len(buffer) < 2:
            return None
        opcode = first & 0x0F
        n = buffer[1]
        head = 2
        if n > _MAX_CONTROL_BYTES:
            if n & _MASKED:
                raise FrameError("a frame of the server is masked")
            if opcode >= CLOSE:
                raise FrameError("a control frame is longer than 125 bytes")
            head, least = (4, 126) if n == 126 else (10, 65_536)
            if len(buffer) < head:
                return None
            n = int.from_bytes(buffer[2:head], "big")
            if n < least:
                raise FrameError("a length is not spelled in the fewest bytes")
        if opcode < CLOSE and n + len(self._fragments) > self._max_bytes:
            raise FrameError(f"a message is longer than {self._max_bytes} bytes")
        end = head + n
        if len(buffer) < end:
            return None
        payload = bytes(buffer[head:end])
        del buffer[:end]
        return bool(first & _FIN), opcode, payload

    def _check_first(self, first: int) -> None:
        """Refuse a frame by its first byte, before the rest is waited for."""
        opcode = first & 0x0F
        if first & _RESERVED:
            raise FrameError("a reserved bit is set though no extension was agreed on")
        if opcode in (CLOSE, PING, PONG):
            if not first & _FIN:
                raise FrameError("a control frame is fragmented")
        elif opcode > BINARY:
            raise FrameError(f"opcode {opcode} is reserved")
        elif opcode == CONTINUATION and not self._opcode:
            raise FrameError("a continuation of nothing came")
        elif opcode != CONTINUATION and self._opcode:
            raise FrameError("a message began inside a fragmented one")


def _check_close(payload: bytes) -> None:
    """Refuse a close frame whose code may not be sent or whose reason is no text (sections 5.5.1 and 7.4)."""
    if not payload:
        return
    code = int.from_bytes(payload[:2], "big")
    if len(payload) == 1 or not (code in _KNOWN_CODES or 3000 <= code <= 4999):
        raise FrameError(f"a close frame has the invalid code {payload[:2].hex()}")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise FrameError("the reason of a close frame is not UTF-8") from None
