"""What an origin answers, and what it gets wrong on command. Pure: no sockets, no clock.

Paths: ``/bytes/N`` (the first N bytes of the known pattern), ``/drip/MS/bytes/N`` (the same, evenly over MS milliseconds),
``/echo`` (the request's body), ``/cache/KEY/bytes/N`` (``soak.lab.caching``), ``/ws`` (a websocket that echoes), ``/status/CODE``, ``/``
(its name), and ``/delay/MS/...`` (any of these, MS milliseconds later).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from http import HTTPStatus
from typing import Any

from soak.lab.caching import cacheable
from soak.lab.shared import DRIPS, DUPLICATES, NON_IDEMPOTENT, REQUESTS, Shared, stats_of
from soak.lab.websocket import accept_of
from soak.load.traffic import pattern
from soak.proxies.base import DUPLICATE_HEADER, ID_HEADER, ORIGIN_HEADER, VARIANT_HEADER

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Longest body, either way."""
MAX_HEADER_BYTES = 64 * 1024
"""Longest request line and headers together."""
_MAX_DELAY_S = 600.0
KEPT_HEADERS = frozenset(
    {
        b"connection",
        b"if-modified-since",
        b"if-none-match",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"upgrade",
        VARIANT_HEADER.lower().encode(),
    }
)
"""Request headers on which some answer depends, beside those that every answer depends on."""
DUPLICATE_LINE = f"\r\n{DUPLICATE_HEADER}: 1".encode()
_IDEMPOTENT = frozenset({b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT"})
"""RFC 9110 section 9.2.2 (a CONNECT never gets further than the refusal)."""
_NO_BODY = frozenset({101, 204, 304})
ID_LINE = f"\r\n{ID_HEADER}: ".encode()
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
    headers: dict[bytes, bytes] = field(default_factory=dict)
    """Those of ``KEPT_HEADERS``, by lower-case name."""
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
    headers: bytes = b""
    """More header lines, each after its line break."""
    anonymous: bool = False
    """Does not echo the request id: a cache may give this answer to others."""
    drip_s: float = 0.0
    """The body leaves evenly over this time."""
    switches: bool = False
    """After this answer the connection is a websocket."""


class Origin:
    """What all connections of one origin share."""

    def __init__(self, name: str, shared: Shared | None = None) -> None:
        self.name = name
        self.known = KnownBytes()
        self.misbehaviour = Misbehaviour()
        self.misbehaves = False
        self.draw = random.Random(1)
        self.shared = shared or Shared.alone()
        self.counters = self.shared.counters
        self.connections = 0
        self.websockets = 0
        """Open now."""
        self._own_name = f"{name}\n".encode()
        self._label = f"\r\n{ORIGIN_HEADER}: {name}".encode()

    def command(self, value: Any) -> dict[str, Any]:
        """Obey one line from the control pipe and return the reply."""
        if not isinstance(value, dict):
            return {"error": "a command is a JSON object"}
        if value == {"stats": True}:
            open_now = {"connections": self.connections, "websockets_open": self.websockets}
            return {**stats_of(self.counters), **open_now}
        try:
            self.misbehaviour = Misbehaviour.from_json(value)
        except ValueError as error:
            return {"error": str(error)}
        self.misbehaves = self.misbehaviour != Misbehaviour(seed=self.misbehaviour.seed)
        self.draw = random.Random(self.misbehaviour.seed)
        return {"ok": True}

    def head(self, answer: Answer) -> bytes:
        """Return the status line and headers."""
        parts = [_status_line(answer.status), self._label]
        if not answer.anonymous:
            parts += (ID_LINE, answer.request_id)
        parts.append(answer.headers)
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
        self.counters[REQUESTS] += 1
        answer = Answer(
            200,
            (),
            0,
            now,
            close=not request.keep_alive or bool(request.refused),
            refused=bool(request.refused),
            request_id=request.request_id,
            http_1_0=request.http_1_0,
        )
        if request.refused:
            _say(answer, request.refused)
        elif not (request.has_host or request.http_1_0):  # RFC 9112 section 3.2
            _say(answer, 400)
        else:
            if self.is_duplicate(request.method, request.request_id):
                answer.headers = DUPLICATE_LINE
            self._route(request, answer)
        answer.omit_body = request.method == b"HEAD" or answer.status in _NO_BODY
        if self.misbehaves:
            self._spoil(answer)
        return answer

    def is_duplicate(self, method: bytes, request_id: bytes) -> bool:
        """Count a request that is not idempotent; True when its id was delivered before, to this or another origin."""
        if method in _IDEMPOTENT:
            return False
        self.counters[NON_IDEMPOTENT] += 1
        if not request_id or not self.shared.delivered_before(request_id):
            return False
        self.counters[DUPLICATES] += 1
        return True

    def _route(self, request: Request, answer: Answer) -> None:
        path, _, query = request.url.partition(b"?")
        parts = path.split(b"/")[1:]
        if len(parts) >= 3 and parts[0] == b"delay" and (delay_ms := _number(parts[1])) is not None:
            answer.due += min(delay_ms / 1000, _MAX_DELAY_S)
            parts = parts[2:]
        match parts:
            case _ if request.method == b"CONNECT":
                _say(answer, 405)
            case [b"echo"]:
                answer.body, answer.length = request.body or (), request.body_bytes
            case [b""]:
                answer.body, answer.length = (self._own_name,), len(self._own_name)
            case [b"bytes", number]:
                self._known_bytes(number, answer)
            case [b"drip", milliseconds, b"bytes", number] if (drip_ms := _number(milliseconds)) is not None:
                answer.drip_s = min(drip_ms / 1000, _MAX_DELAY_S)
                self._known_bytes(number, answer)
                self.counters[DRIPS] += answer.status == 200
            case [b"cache", key, b"bytes", number] if key:
                self._cacheable(key, number, query, request, answer)
            case [b"ws"]:
                _handshake(request, answer)
            case [b"status", number] if 200 <= (_number(number) or 0) <= 599:
                _say(answer, int(number))
            case _:
                _say(answer, 404)

    def _known_bytes(self, text: bytes, answer: Answer) -> None:
        number = _number(text)
        if number is None or number > MAX_BODY_BYTES:
            _say(answer, 404 if number is None else 413)
            return
        answer.body, answer.length = (self.known.prefix(number),), number

    def _cacheable(self, key: bytes, text: bytes, query: bytes, request: Request, answer: Answer) -> None:
        number = _number(text)
        found = None
        if number is not None and number <= MAX_BODY_BYTES:
            found = cacheable(key, number, query, request.headers)
        if found is None:
            _say(answer, 404)
            return
        self.counters[found.column] += 1
        answer.status, answer.body, answer.length = found.status, found.body, found.length
        answer.headers += found.headers
        answer.anonymous = True

    def _spoil(self, answer: Answer) -> None:
        wish, draw = self.misbehaviour, self.draw.random
        answer.due += wish.latency_ms / 1000
        answer.reset = draw() < wish.reset_ratio
        if draw() < wish.status_ratio:
            _say(answer, int(wish.status))
        answer.cut = draw() < wish.cut_ratio
        if draw() < wish.wrong_id_ratio:
            answer.request_id = b"not-" + answer.request_id
        if draw() < wish.wrong_body_ratio and answer.length:
            body = bytearray(b"".join(answer.body))
            body[len(body) // 2] ^= 0x01
            answer.body = (bytes(body),)


def _handshake(request: Request, answer: Answer) -> None:
    """Open a websocket, or say what is missing (RFC 6455 section 4.2)."""
    headers = request.headers
    wishes = headers.get(b"connection", b"").lower().replace(b" ", b"").split(b",")
    if headers.get(b"upgrade", b"").lower() != b"websocket" or b"upgrade" not in wishes:
        _say(answer, 426)
        answer.headers += b"\r\nUpgrade: websocket"
    elif headers.get(b"sec-websocket-version") != b"13":
        _say(answer, 426)
        answer.headers += b"\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13"
    elif request.method != b"GET" or (accept := accept_of(headers.get(b"sec-websocket-key", b""))) is None:
        _say(answer, 400)
    else:
        answer.status, answer.switches = 101, True
        answer.headers += b"\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept


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


def _say(answer: Answer, status: int) -> None:
    """Make it an answer of this status that says so in words."""
    text = b"" if status in _NO_BODY else f"{status} {_phrase(status)}\n".encode()
    answer.status, answer.body, answer.length = status, (text,) if text else (), len(text)
    answer.drip_s, answer.switches = 0.0, False
