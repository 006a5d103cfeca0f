"""One request on an HTTP/2 connection: what its answer may look like (RFC 9113 section 8) and what it looked like.

Holds no frames and writes nothing: its connection feeds it fields and data, and ends it when it says that an answer is
malformed. Nothing of a body is kept.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

from soak.load.h2frames import STREAM_WINDOW
from soak.load.hpack import Field
from soak.load.outcome import Stage
from soak.model import Outcome

if TYPE_CHECKING:
    from soak.load.h2lane import H2Lane
    from soak.load.http2 import H2Connection

MAX_HEAD_BYTES = 64 * 1024
"""Header blocks of one answer, all 1xx and the trailers included, as HTTP/1.1 has it."""
_MAX_LEARNED_NAMES = 512

_ORDINARY, _ID, _ORIGIN, _GENERATION, _LENGTH, _STATUS, _TWICE, _WRONG = range(1, 9)
_WANTED = {
    b"x-soak-id": _ID,
    b"x-soak-origin": _ORIGIN,
    b"x-soak-generation": _GENERATION,
    b"content-length": _LENGTH,
    b":status": _STATUS,
    b"x-soak-duplicate": _TWICE,
    # connection-specific fields make an answer malformed (section 8.2.2)
    b"connection": _WRONG,
    b"keep-alive": _WRONG,
    b"proxy-connection": _WRONG,
    b"transfer-encoding": _WRONG,
    b"upgrade": _WRONG,
}
_known: dict[bytes, int] = dict(_WANTED)
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
"""A token (RFC 9110 section 5.6.2) in lower case (RFC 9113 section 8.2.1)."""
_BAD_VALUE = re.compile(rb"[\0\r\n]")


class MalformedError(Exception):
    """An answer that breaks a rule of HTTP; its stream is reset, the connection goes on (section 8.1.1)."""


def _learn(name: bytes) -> int:
    """Return what a field's name means. Good names are remembered, boundedly."""
    kind = _WANTED.get(name)
    if kind is None:
        kind = _ORDINARY if _NAME.fullmatch(name) else _WRONG
    if len(_known) < _MAX_LEARNED_NAMES:
        _known[name] = kind
    return kind


class H2Stream:
    """A request from its slot to its end; a ``Flight``. ``stream_id`` is 0 while it waits for its connection."""

    __slots__ = (
        "_head_bytes",
        "body_at",
        "body_crc",
        "body_length",
        "connection",
        "content_length",
        "due",
        "first_byte",
        "generation",
        "head_done",
        "origin",
        "recv_window",
        "request_id",
        "reused",
        "row_scope",
        "seen_id",
        "send_window",
        "sent",
        "stage",
        "status",
        "stream_id",
        "wrote_ns",
    )

    def __init__(self, connection: H2Connection, request_id: bytes, due: int, sent: int, scope: int) -> None:
        self.connection = connection
        self.request_id = request_id
        self.due = due
        self.sent = self.wrote_ns = sent
        self.row_scope = scope
        self.stage = connection.stage
        self.stream_id = 0
        self.first_byte = 0
        self.status = 0
        self.seen_id = self.origin = self.generation = b""
        self.content_length = -1
        self.body_length = self.body_crc = 0
        self.head_done = self.reused = False
        self.recv_window = STREAM_WINDOW
        self.send_window = self.body_at = self._head_bytes = 0

    @property
    def lane(self) -> H2Lane:
        """The traffic class."""
        return self.connection.lane

    @property
    def id(self) -> int:
        """Number of the connection that carries it."""
        return self.connection.id

    @property
    def connected_ns(self) -> int:
        """When its connection came up."""
        return self.connection.connected_ns

    @property
    def serial(self) -> str:
        """Serial of the certificate that its connection showed."""
        return self.connection.serial

    def give_up(self, ended: Outcome, error: str, now: int) -> None:
        """End it because a deadline passed; its connection stays."""
        if self.stage is not Stage.CLOSED:  # its connection may just have ended, and all its streams with it
            self.connection.give_up(self, ended, error, now)

    # -- the answer ----------------------------------------------------------------------------------------------

    def take_fields(self, fields: list[Field], block_bytes: int, *, last: bool) -> None:
        """Take a whole header block: 1xx, the answer's head, or trailers. Raises ``MalformedError``."""
        self._head_bytes += block_bytes + 32
        if self._head_bytes > MAX_HEAD_BYTES:
            raise MalformedError(f"the header blocks are larger than {MAX_HEAD_BYTES} bytes")
        if self.head_done:
            _check_trailers(fields, last=last)
            return
        status = self._read(fields)
        if status < 200:
            if status == 101 or last:
                raise MalformedError(f"a {status} that {'ends the stream' if last else 'switches protocols'}")
            self.seen_id = self.origin = self.generation = b""
            self.content_length = -1
            return
        self.status = status
        self.head_done = True

    def _read(self, fields: list[Field]) -> int:
        """Keep what is evidence; return the status."""
        status = b""
        is_past_pseudo = False
        for name, value in fields:
            kind = _known.get(name) or _learn(name)
            if kind == _STATUS and not is_past_pseudo and not status:
                status = value
                continue
            is_past_pseudo = True
            if kind == _ORDINARY:
                continue
            if kind == _ID:
                self.seen_id = value
            elif kind == _ORIGIN:
                self.origin = value
            elif kind == _GENERATION:
                self.generation = value
            elif kind == _LENGTH:
                self._promise(value)
            elif kind == _TWICE:
                self.lane.delivered_twice(self)
            else:
                raise MalformedError(f"a field that HTTP/2 does not allow, there or at all: {name[:64]!r}")
        if _BAD_VALUE.search(b"".join([value for _, value in fields])):
            raise MalformedError("a field value with NUL, CR or LF in it")
        return _status_of(status)

    def _promise(self, value: bytes) -> None:
        if not value.isdigit() or len(value) > 18 or self.content_length not in (-1, int(value)):
            raise MalformedError(f"a content-length that cannot be: {value[:32]!r}")
        self.content_length = int(value)

    def take_data(self, data: bytes) -> None:
        """Fold a piece of the body into length and checksum. Raises ``MalformedError``."""
        if not self.head_done:
            raise MalformedError("DATA before the answer's header fields")
        self.body_length += len(data)
        self.body_crc = zlib.crc32(data, self.body_crc)
        if 0 <= self.content_length < self.body_length and self.status not in (204, 304):
            raise MalformedError(f"more than the {self.content_length} bytes that content-length promised")

    def check_end(self) -> None:
        """Check what can be told only at the end of the stream. Raises ``MalformedError``."""
        if not self.head_done:
            raise MalformedError("the stream ended without an answer")
        if self.body_length != self.content_length >= 0 and self.status not in (204, 304):
            raise MalformedError(
                f"{self.body_length} bytes instead of the {self.content_length} that content-length promised"
            )


def _status_of(value: bytes) -> int:
    if len(value) != 3 or not value.isdigit() or value < b"100":
        raise MalformedError(f"no valid ':status' but {value[:16]!r}")
    return int(value)


def _check_trailers(fields: list[Field], *, last: bool) -> None:
    if not last:
        raise MalformedError("trailers that do not end the stream")
    for name, value in fields:
        if _learn(name) in (_STATUS, _WRONG) or _BAD_VALUE.search(value):
            raise MalformedError(f"a trailer that HTTP/2 does not allow: {name[:64]!r}")
