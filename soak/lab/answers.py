"""What an origin answers, and what it gets wrong on command. Pure: no sockets, no clock.

Paths: ``/bytes/N`` (the first N bytes of the known pattern), ``/echo`` (the request's body), ``/delay/MS/...`` (any of these,
MS milliseconds later), ``/status/CODE``, ``/`` (its name).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from http import HTTPStatus
from typing import Any

from soak.load.traffic import pattern
from soak.proxies.base import ID_HEADER, ORIGIN_HEADER

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Longest body, either way."""
MAX_HEADER_BYTES = 64 * 1024
"""Longest request line and headers together."""
_MAX_DELAY_S = 600.0
_NO_BODY = frozenset({204, 304})
_CONTENT_LENGTH = b"\r\nContent-Type: text/plain\r\nContent-Length: %d"


@dataclass(frozen=True, slots=True)
class Misbehaviour:
    """What goes wrong on purpose. Ratios are shares of requests, drawn independently with a seeded generator."""

    latency_ms: float = 0.0
    """Added to every answer."""
    status: int = 503
    status_ratio: float = 0.0
    """Answer with ``status`` instead."""
    reset_ratio: float = 0.0
    """Reset the connection instead of answering."""
    cut_ratio: float = 0.0
    """Send half of the body, then close."""
    wrong_id_ratio: float = 0.0
    """Echo another request's id."""
    wrong_body_ratio: float = 0.0
    """Change one byte of the body."""
    seed: int = 1

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Misbehaviour:
        """Read a command. Raises ``ValueError`` for an unknown field or a number out of range."""
        known = {f.name for f in fields(cls)}
        for name, number in value.items():
            if name not in known:
                raise ValueError(f"unknown field {name!r}; known: {', '.join(sorted(known))}")
            if isinstance(number, bool) or not isinstance(number, int | float) or number < 0:
                raise ValueError(f"{name} is {number!r}; it must be a number of zero or more")
            if name.endswith("_ratio") and number > 1:
                raise ValueError(f"{name} is {number!r}; a ratio is between 0 and 1")
        wish = cls(**value)
        if not 200 <= wish.status <= 599:
            raise ValueError(f"status is {wish.status!r}; it must be between 200 and 599")
        return wish


class KnownBytes:
    """The known pattern, kept once at the longest length asked for so far: each body is a prefix of it."""

    def __init__(self) -> None:
        self._longest = memoryview(pattern(64 * 1024))

    def prefix(self, n: int) -> memoryview:
        """Return the first ``n`` bytes without copying them."""
        if n > len(self._longest):
            self._longest = memoryview(pattern(min(MAX_BODY_BYTES, max(n, 2 * len(self._longest)))))
        return self._longest[:n]


@dataclass(slots=True)
class Request:
    """One request as far as the answer depends on it."""

    method: bytes = b"GET"
    url: bytes = b""
    request_id: bytes = b""
    has_host: bool = False
    expects_continue: bool = False
    header_bytes: int = 0
    body: list[bytes] | None = None
    body_bytes: int = 0
    keep_alive: bool = True
    http_1_0: bool = False
    refused: int = 0
    """Status with which it was refused before its end (413, 431)."""


@dataclass(slots=True)
class Answer:
    """What is sent, and when at the earliest."""

    status: int
    body: Sequence[bytes | memoryview]
    length: int
    due: float = 0.0
    """Loop time."""
    omit_body: bool = False
    """HEAD: the length is said, the bytes are not sent."""
    close: bool = False
    refused: bool = False
    """The rest of the request was not read."""
    request_id: bytes = b""
    http_1_0: bool = False
    reset: bool = False
    cut: bool = False


class Origin:
    """What all connections of one origin share."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.known = KnownBytes()
        self.misbehaviour = Misbehaviour()
        self.misbehaves = False
        self.draw = random.Random(1)
        self.requests = 0
        self.connections = 0
        self._own_name = f"{name}\n".encode()
        self._label = f"\r\n{ORIGIN_HEADER}: {name}\r\n{ID_HEADER}: ".encode()

    def command(self, value: Any) -> dict[str, Any]:
        """Obey one line from the control pipe and return the reply."""
        if not isinstance(value, dict):
            return {"error": "a command is a JSON object"}
        if value == {"stats": True}:
            return {"requests": self.requests, "connections": self.connections}
        try:
            self.misbehaviour = Misbehaviour.from_json(value)
        except ValueError as error:
            return {"error": str(error)}
        self.misbehaves = self.misbehaviour != Misbehaviour(seed=self.misbehaviour.seed)
        self.draw = random.Random(self.misbehaviour.seed)
        return {"ok": True}

    def head(self, answer: Answer) -> bytes:
        """Return the status line and headers."""
        parts = [_status_line(answer.status), self._label, answer.request_id]
        if answer.status not in _NO_BODY:  # RFC 9110 section 8.6: no Content-Length in 204
            parts.append(_CONTENT_LENGTH % answer.length)
        if answer.close:
            parts.append(b"\r\nConnection: close")
        elif answer.http_1_0:
            parts.append(b"\r\nConnection: keep-alive")
        parts.append(b"\r\n\r\n")
        return b"".join(parts)

    def answer(self, request: Request, now: float) -> Answer:
        """Decide the answer to a complete or refused request."""
        self.requests += 1
        delay_s = 0.0
        if request.refused:
            status, body, length = _words(request.refused)
        elif not (request.has_host or request.http_1_0):  # RFC 9112 section 3.2
            status, body, length = _words(400)
        else:
            status, body, length, delay_s = self._route(request)
        answer = Answer(
            status,
            body,
            length,
            now + delay_s,
            omit_body=request.method == b"HEAD" or status in _NO_BODY,
            close=not request.keep_alive or bool(request.refused),
            refused=bool(request.refused),
            request_id=request.request_id,
            http_1_0=request.http_1_0,
        )
        if self.misbehaves:
            self._spoil(answer)
        return answer

    def _route(self, request: Request) -> _Delayed:
        parts = request.url.partition(b"?")[0].split(b"/")[1:]
        delay_s = 0.0
        if len(parts) >= 3 and parts[0] == b"delay" and (delay_ms := _number(parts[1])) is not None:
            delay_s = min(delay_ms / 1000, _MAX_DELAY_S)
            parts = parts[2:]
        if request.method == b"CONNECT":
            content = _words(405)
        elif parts == [b"echo"]:
            content = (200, request.body or (), request.body_bytes)
        elif parts == [b""]:
            content = (200, (self._own_name,), len(self._own_name))
        else:
            content = self._numbered(parts)
        return *content, delay_s

    def _numbered(self, parts: Sequence[bytes]) -> _Content:
        number = _number(parts[1]) if len(parts) == 2 else None
        if number is None:
            return _words(404)
        if parts[0] == b"bytes":
            return (200, (self.known.prefix(number),), number) if number <= MAX_BODY_BYTES else _words(413)
        return _words(number if parts[0] == b"status" and 200 <= number <= 599 else 404)

    def _spoil(self, answer: Answer) -> None:
        wish, draw = self.misbehaviour, self.draw.random
        answer.due += wish.latency_ms / 1000
        answer.reset = draw() < wish.reset_ratio
        if draw() < wish.status_ratio:
            answer.status, answer.body, answer.length = _words(int(wish.status))
        answer.cut = draw() < wish.cut_ratio
        if draw() < wish.wrong_id_ratio:
            answer.request_id = b"not-" + answer.request_id
        if draw() < wish.wrong_body_ratio and answer.length:
            body = bytearray(b"".join(answer.body))
            body[len(body) // 2] ^= 0x01
            answer.body = (bytes(body),)


_Content = tuple[int, Sequence[bytes | memoryview], int]
"""Status, body, length."""
_Delayed = tuple[int, Sequence[bytes | memoryview], int, float]


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) <= 12 else None


_status_lines: dict[int, bytes] = {}


def _status_line(status: int) -> bytes:
    if (line := _status_lines.get(status)) is None:
        line = f"HTTP/1.1 {status} {_phrase(status)}".encode()
        _status_lines[status] = line
    return line


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unassigned"


def _words(status: int) -> _Content:
    if status in _NO_BODY:
        return status, (), 0
    text = f"{status} {_phrase(status)}\n".encode()
    return status, (text,), len(text)
