"""The short way for requests that were answered before: the same bytes with another id get the same answer with that id.

A proxy sends an origin the same head again and again, except for the request id. Parsing it, deciding and composing the
answer cost more than everything else that an origin does, and it shares the cores with what is measured. So the head without its
id is remembered beside the finished answer; whatever differs in a single byte goes the long way. Only what the long way
has answered whole, on a kept connection, at once and without surprises is ever learned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from soak.lab.answers import DUPLICATE_LINE, ID_LINE, Answer, Origin, Request
from soak.lab.shared import REQUESTS

_ID = re.compile(rb"\r\n[Xx]-[Ss]oak-[Ii]d: ([!-~]{1,64})\r\n")
_END = b"\r\n\r\n"
_MOST = 4096
"""Most heads that are remembered; then all are forgotten. 1,000 routes fit."""
_LONGEST_HEAD = 1024


@dataclass(frozen=True, slots=True)
class _Known:
    """An answer without its id."""

    method: bytes
    body_bytes: int
    """Of the request."""
    before: bytes
    """The answer's head up to the id."""
    after: bytes
    """The rest of the head."""
    body: memoryview | None
    """None: an echo of the request's body."""


class Repeats:
    """What one origin has learned."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._known: dict[tuple[bytes, bytes], _Known] = {}

    def answer(self, data: bytes) -> tuple[bytes, bytes | memoryview] | None:
        """Return head and body of the answer if ``data`` is one whole request of a known kind, and count it; else None."""
        found = _ID.search(data)
        if found is None or self._origin.misbehaves:
            return None
        start, end = found.span(1)
        head_end = data.find(_END, end) + len(_END)
        known = self._known.get((data[:start], data[end:head_end]))
        if known is None or len(data) - head_end != known.body_bytes:
            return None
        request_id = data[start:end]
        self._origin.counters[REQUESTS] += 1
        again = known.method == b"POST" and self._origin.is_duplicate(known.method, request_id)
        head = b"".join((known.before, request_id, DUPLICATE_LINE if again else b"", known.after))
        return head, data[head_end:] if known.body is None else known.body

    def learn(self, data: bytes, request: Request, answer: Answer) -> None:
        """Remember the answer that the long way gave to ``data``, when it was this one request, whole and plain."""
        found = _ID.search(data)
        if found is None or not self._is_plain(request, answer) or found[1] != request.request_id:
            return
        start, end = found.span(1)
        head_end = data.find(_END, end) + len(_END)
        suffix = data[end:head_end]
        if head_end > _LONGEST_HEAD or len(data) - head_end != request.body_bytes or _ID.search(suffix):
            return
        body = None if request.url == b"/echo" else memoryview(answer.body[0])
        before, _, after = self._origin.head(answer).partition(ID_LINE + request.request_id)
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[data[:start], suffix] = _Known(
            request.method, request.body_bytes, before + ID_LINE, after, body
        )

    def _is_plain(self, request: Request, answer: Answer) -> bool:
        return (
            answer.status == 200
            and not (answer.close or answer.http_1_0 or answer.headers or answer.drip_s)
            and request.method in (b"GET", b"POST")
            and not request.expects_continue
            and not self._origin.misbehaves
            and (request.url == b"/echo" or request.url.startswith(b"/bytes/"))
        )
