"""HTTP/2 frames as bytes (RFC 9113 sections 4 and 6): numbers, names, and those that a client sends. Pure; keeps no state."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from struct import Struct

from soak.load.hpack import MAX_LIST_BYTES

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
MAX_FRAME_BYTES = 16_384
"""Payload that either side may send unless the other says that it takes more; we never say so."""
DEFAULT_WINDOW = 65_535
MAX_WINDOW = (1 << 31) - 1
STREAM_WINDOW = 1 << 24
"""Bytes that a peer may send on a stream before it hears from us. Bodies are folded at once, so this costs no memory."""
CONNECTION_WINDOW = 1 << 30

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)

END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20


class Setting(IntEnum):
    """Parameters of SETTINGS that matter here (section 6.5.2)."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Code(IntEnum):
    """Why a stream or a connection ends (section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


_NAMES: Mapping[int, str] = {code.value: code.name for code in Code}


def code_name(code: int) -> str:
    """Return the name of an error code, or its number when it has none."""
    return _NAMES.get(code, f"error code {code:#x}")


class H2Error(Exception):
    """The peer broke a rule of the connection, which ends with this code."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


HEAD = Struct(">IBI")
"""Length and type in one number, flags, stream."""
_U32 = Struct(">I")
_TWO_U32 = Struct(">II")
_SETTING = Struct(">HI")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame whole."""
    return HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def settings(values: Mapping[int, int]) -> bytes:
    """Return SETTINGS with these parameters."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(name, value) for name, value in values.items()))


def parse_settings(payload: bytes) -> list[tuple[int, int]]:
    """Return the parameters in order. Raises ``H2Error`` for a payload that is no whole number of them."""
    if len(payload) % 6:
        raise H2Error(Code.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes, which is no multiple of 6")
    return list(_SETTING.iter_unpack(payload))


def u32(payload: bytes, at: int = 0) -> int:
    """Return an unsigned number of 32 bits."""
    value: int = _U32.unpack_from(payload, at)[0]
    return value


def window_update(stream: int, increment: int) -> bytes:
    """Return WINDOW_UPDATE; stream 0 is the connection."""
    return frame(WINDOW_UPDATE, 0, stream, _U32.pack(increment))


def rst_stream(stream: int, code: Code) -> bytes:
    """Return RST_STREAM."""
    return frame(RST_STREAM, 0, stream, _U32.pack(code))


def goaway(code: Code, text: bytes = b"") -> bytes:
    """Return a client's GOAWAY: a client without pushes has processed no stream of its peer."""
    return frame(GOAWAY, 0, 0, _TWO_U32.pack(0, code) + text[:256])


def opening() -> bytes:
    """Return what a client says first: preface, SETTINGS, and a wide window for the whole connection."""
    return (
        PREFACE
        + settings(
            {
                Setting.ENABLE_PUSH: 0,
                Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                Setting.MAX_HEADER_LIST_SIZE: MAX_LIST_BYTES,
            }
        )
        + window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW)
    )


SETTINGS_ACK = frame(SETTINGS, ACK, 0)


def unpadded(payload: bytes, flags: int) -> bytes:
    """Return what a padded payload holds (section 6.1). Raises ``H2Error`` for more padding than there is payload."""
    if not flags & PADDED:
        return payload
    if not payload:
        raise H2Error(Code.FRAME_SIZE_ERROR, "a padded frame without the length of its padding")
    padding = payload[0]
    if padding >= len(payload):
        raise H2Error(Code.PROTOCOL_ERROR, f"{padding} bytes of padding in a payload of {len(payload)} bytes")
    return payload[1 : len(payload) - padding]
