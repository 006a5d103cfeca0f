"""The server side of a websocket that echoes (RFC 6455). Pure: bytes in, bytes out.

Small on purpose: no extensions, no subprotocols, one job. Every rule that a peer breaks is answered with the close code
that the standard gives, and whatever comes is bounded by ``MAX_MESSAGE_BYTES``.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from hashlib import sha1

MAX_MESSAGE_BYTES = 1024 * 1024
"""Longest message; a longer one ends the connection with code 1009."""
_MAX_CONTROL_BYTES = 125
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_FIN, _MASKED = 0x80, 0x80
PROTOCOL_ERROR, NOT_TEXT, TOO_BIG = 1002, 1007, 1009
"""Close codes (RFC 6455 section 7.4.1)."""
_KNOWN_CODES = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})


def accept_of(key: bytes) -> bytes | None:
    """Return the ``Sec-WebSocket-Accept`` for a ``Sec-WebSocket-Key``; None when that is not 16 bytes in base64."""
    try:
        if len(base64.b64decode(key, validate=True)) != 16:
            return None
    except binascii.Error:
        return None
    return base64.b64encode(sha1(key + _GUID, usedforsecurity=False).digest())


def frame(opcode: int, payload: bytes) -> bytes:
    """Return one whole unmasked frame, as servers send it."""
    n = len(payload)
    if n < 126:
        return bytes((_FIN | opcode, n)) + payload
    if n < 65_536:
        return bytes((_FIN | opcode, 126)) + n.to_bytes(2, "big") + payload
    return bytes((_FIN | opcode, 127)) + n.to_bytes(8, "big") + payload


def unmasked(payload: bytes, mask: bytes) -> bytes:
    """Return the payload without its mask (RFC 6455 section 5.3); one big integer, because bytes one by one are slow."""
    n = len(payload)
    whole = (mask * (n // 4 + 1))[:n]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(whole, "little")).to_bytes(n, "little")


class _BrokenRuleError(Exception):
    """The peer broke a rule."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class _Frame:
    final: bool
    opcode: int
    payload: bytes


class EchoSocket:
    """One connection after its handshake."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._opcode = 0
        """Of the message that is being received in fragments; 0: none."""
        self._fragments = bytearray()
        self.messages = 0
        """Echoed so far."""
        self.closed = False
        """Nothing more is to be read: send what there is, then close the connection."""
        self.broken = False
        """Closed because the peer broke a rule, so that it may still be sending."""

    def feed(self, data: bytes) -> bytes:
        """Take what came from the peer and return what to send."""
        if self.closed:
            return b""
        self._buffer += data
        out: list[bytes] = []
        try:
            while not self.closed and (received := self._take()) is not None:
                out.append(self._obey(received))
        except _BrokenRuleError as error:
            self.broken = True
            out.append(self._end(error.code, str(error)))
        return b"".join(out)

    def _take(self) -> _Frame | None:
        """Take one whole frame off the buffer; None when it has not come yet."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        n = second & 0x7F
        self._check(first, second, n)
        head = 2 + (2 if n == 126 else 8 if n == 127 else 0)
        if len(buffer) < head:
            return None
        if n > 125:
            n = int.from_bytes(buffer[2:head], "big")
        if first & 0x0F < _CLOSE and n + len(self._fragments) > MAX_MESSAGE_BYTES:
            raise _BrokenRuleError(TOO_BIG, f"a message is longer than {MAX_MESSAGE_BYTES} bytes")
        end = head + 4 + n
        if len(buffer) < end:
            return None
        payload = unmasked(bytes(buffer[head + 4 : end]), bytes(buffer[head : head + 4]))
        del buffer[:end]
        return _Frame(bool(first & _FIN), first & 0x0F, payload)

    def _check(self, first: int, second: int, n: int) -> None:
        """Refuse a frame by its first two bytes, before its payload is waited for."""
        opcode = first & 0x0F
        if first & 0x70:
            raise _BrokenRuleError(PROTOCOL_ERROR, "a reserved bit is set")
        if not second & _MASKED:
            raise _BrokenRuleError(PROTOCOL_ERROR, "a frame of a client is not masked")
        if opcode in (_CLOSE, _PING, _PONG):
            if n > _MAX_CONTROL_BYTES or not first & _FIN:
                raise _BrokenRuleError(PROTOCOL_ERROR, "a control frame is long or fragmented")
        elif opcode not in (_CONTINUATION, _TEXT, _BINARY):
            raise _BrokenRuleError(PROTOCOL_ERROR, f"opcode {opcode} is reserved")
        elif (opcode == _CONTINUATION) is not bool(self._opcode):
            raise _BrokenRuleError(PROTOCOL_ERROR, "fragments are out of order")

    def _obey(self, received: _Frame) -> bytes:
        match received.opcode:
            case 0x8:
                return self._answer_close(received.payload)
            case 0x9:
                return frame(_PONG, received.payload)
            case 0xA:
                return b""
        self._opcode = self._opcode or received.opcode
        self._fragments += received.payload
        if not received.final:
            return b""
        opcode, message = self._opcode, bytes(self._fragments)
        self._opcode = 0
        self._fragments.clear()
        if opcode == _TEXT:
            _require_text(message)
        self.messages += 1
        return frame(opcode, message)

    def _answer_close(self, payload: bytes) -> bytes:
        """Echo the code, once it is one that may be sent (RFC 6455 sections 5.5.1 and 7.4)."""
        if not payload:
            self.closed = True
            return frame(_CLOSE, b"")
        code = int.from_bytes(payload[:2], "big")
        if len(payload) == 1 or not (code in _KNOWN_CODES or 3000 <= code <= 4999):
            raise _BrokenRuleError(PROTOCOL_ERROR, "the close code is not valid")
        _require_text(payload[2:])
        return self._end(code, "")

    def _end(self, code: int, reason: str) -> bytes:
        self.closed = True
        self._buffer.clear()
        self._fragments.clear()
        return frame(_CLOSE, code.to_bytes(2, "big") + reason.encode())


def _require_text(message: bytes) -> None:
    try:
        message.decode()
    except UnicodeDecodeError:
        raise _BrokenRuleError(NOT_TEXT, "a text is not UTF-8") from None
