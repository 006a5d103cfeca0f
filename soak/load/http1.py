"""One HTTP/1.1 connection: sends a request, checks the answer to the last byte, says how it ended.

A raw ``asyncio.Protocol`` with llhttp (httptools) as parser, one request at a time. The connection carries its request's
instants itself: no object is made per request. It decides nothing about pacing or pooling; it calls back its class
(``Lane``) when a request ended and when it may be used again.
"""

from __future__ import annotations

import asyncio
import zlib
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, cast

import httptools

from soak.load import outcome as classify
from soak.load.dial import Dialed
from soak.load.outcome import Stage
from soak.model import Outcome

if TYPE_CHECKING:
    from soak.load.http1lane import Http1Lane
    from soak.load.known import KnownAnswer

MAX_HEAD_BYTES = 64 * 1024
"""An answer whose header block is larger is a protocol error (nginx and HAProxy send at most 32 KiB)."""
_FRAMING_PER_BODY_BYTE = 8
"""A chunked body of one-byte chunks needs 6 bytes for each; endless trailers and chunk extensions need more."""
_MAX_LEARNED_NAMES = 512
# Names of this module's own: on Python 3.11 to ask an enumeration for a member costs ten times as much, and it is asked six times for each request.
_BUSY, _IDLE, _CLOSED, _OK = Stage.BUSY, Stage.IDLE, Stage.CLOSED, Outcome.OK

_WANTED = {
    b"x-soak-id": 1,
    b"x-soak-origin": 2,
    b"x-soak-generation": 3,
    b"content-length": 4,
    b"transfer-encoding": 5,
    b"x-soak-duplicate": 6,
}
_known: dict[bytes, int] = dict(_WANTED)


def _learn(name: bytes) -> int:
    """Return the slot of a header name in any spelling; 0 when it does not matter. Spellings are remembered, boundedly."""
    slot = _WANTED.get(name.lower(), 0)
    if len(_known) < _MAX_LEARNED_NAMES:
        _known[name] = slot
    return slot


class Http1Connection(Dialed):
    """A connection of one traffic class, from connect to close."""

    __slots__ = (
        "body_crc",
        "body_length",
        "content_length",
        "due",
        "first_byte",
        "generation",
        "head_done",
        "idle_since",
        "lane",
        "message_done",
        "origin",
        "parser",
        "raw_bytes",
        "request_id",
        "requests",
        "reusable",
        "row_scope",
        "seen_id",
        "sent",
        "status",
        "trailing",
        "wrote_ns",
    )

    def __init__(self, lane: Http1Lane, number: int) -> None:
        self.lane = lane
        self.id = number
        self.stage = Stage.RESOLVING
        self.transport: asyncio.Transport | None = None
        self.parser: Any = None
        self.dial_task: asyncio.Task[None] | None = None
        self.requests = 0
        self.attempt = None
        self.dialed_ns = self.connected_ns = 0
        self.expires_ns = 0
        self.idle_since = 0
        self.serial = ""
        self.resumed = False
        self.closed_by_us = False
        self.request_id = b""
        self.due = self.sent = self.wrote_ns = 0
        self.row_scope = 0
        self._reset_answer()

    def _reset_answer(self) -> None:
        """Forget the answer that was parsed: whoever sends a request finds nothing of one before it."""
        self.first_byte = 0
        self.status = 0
        self.seen_id = self.origin = self.generation = b""
        self.content_length = -1
        self.body_length = 0
        self.body_crc = 0
        self.raw_bytes = 0
        self.head_done = False
        self.message_done = False
        self.trailing = False
        self.reusable = False

    @property
    def reused(self) -> bool:
        """Whether the connection had carried a request before this one."""
        return self.requests > 1

    # -- the request ---------------------------------------------------------------------------------------------

    def assign(self, request_id: bytes, due: int, sent: int, scope: int) -> None:
        """Take a request; it is written by ``write_request``, at once or when the connection is up."""
        self.request_id = request_id
        self.due = due
        self.sent = sent
        self.row_scope = scope
        self.first_byte = 0

    def write_request(self, now: int) -> None:
        """Send the assigned request."""
        self.stage = _BUSY
        self.wrote_ns = now
        self.requests += 1
        assert self.transport is not None
        self.transport.write(self.lane.compose(self))

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note a usable connection (after the handshake, where there is one) and send the request that waited for it."""
        now = monotonic_ns()
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one by shape, not by class
        if self.stage is _CLOSED:  # given up while the handshake was finishing
            self.transport.abort()
            return
        self.connected_ns = now
        self.parser = httptools.HttpResponseParser(self)
        self.lane.connected(self, now)
        if self.due:
            self.write_request(now)
        else:  # made before the first slot
            self.stage = _IDLE
            self.idle_since = now
            self.lane.idle.append(self)

    def data_received(self, data: bytes) -> None:
        """Parse what came; finish the request when its answer is whole."""
        if self.stage is not _BUSY:
            if self.stage is _IDLE:  # bytes that nobody asked for: the connection cannot be trusted any more
                self.lane.unsolicited(self)
            return
        if not self.first_byte:
            self.first_byte = monotonic_ns()
            known = self.lane.known
            if known is not None and (answer := known.find(data, self.request_id)) is not None:
                self._finish_known(answer)
                return
        self.raw_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(Outcome.PROTOCOL_ERROR, "the peer switched protocols without being asked")
            return
        except httptools.HttpParserError as error:
            self._fail(Outcome.PROTOCOL_ERROR, f"{type(error).__name__}: {error}"[:200])
            return
        if self.message_done:
            self._finish(data)
        else:
            self._look_at_rest()

    def _look_at_rest(self) -> None:
        """Fail a request whose answer can no longer become a good one, or would fill memory."""
        if self.status == 101:
            self._fail(Outcome.PROTOCOL_ERROR, "the peer switched protocols without being asked")
        elif self.raw_bytes > MAX_HEAD_BYTES + _FRAMING_PER_BODY_BYTE * self.body_length:
            what = "framing is" if self.head_done else "header block is"
            self._fail(Outcome.PROTOCOL_ERROR, f"the {what} larger than {MAX_HEAD_BYTES} bytes")
        elif self.body_length > self.lane.max_body:
            self._fail(
                Outcome.BODY_MISMATCH, f"the body is longer than the promised {self.lane.max_body} bytes"
            )

    def eof_received(self) -> bool:
        """Let the transport close: a half-closed peer gets no more requests, from this very moment."""
        if self.stage is _IDLE:
            self.stage = _CLOSED
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Classify what the close did to a request in flight; forget the connection."""
        stage, self.stage = self.stage, _CLOSED
        self.parser = None
        self.transport = None
        lane = self.lane
        lane.closed(self)
        if stage is not _BUSY:
            return
        now = monotonic_ns()
        if self.head_done and exc is None and self.content_length == -1:  # the body ended with the connection
            self._finish_by_close(now)
            return
        ended = classify.of_lost_connection(
            reused=self.reused, first_byte=bool(self.first_byte), since_sent_ns=now - self.wrote_ns
        )
        lane.done(self, ended, now, str(exc) if exc else "the peer closed the connection")

    # -- llhttp callbacks ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A message after the answer was whole is trailing garbage."""
        if self.message_done:
            self.trailing = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the few headers that are evidence."""
        slot = _known.get(name)
        if slot is None:
            slot = _learn(name)
        if slot == 0:
            return
        if slot == 1:
            self.seen_id = value
        elif slot == 2:
            self.origin = value
        elif slot == 3:
            self.generation = value
        elif slot == 4:
            self.content_length = 0
        elif slot == 6:
            self.lane.delivered_twice(self)
        elif b"chunked" in value.lower():
            self.content_length = -2  # the end is in the message, not in the close (RFC 9112 section 6.3)

    def on_headers_complete(self) -> None:
        """Note the status; 1xx answers are not the answer (RFC 9110 section 15.2)."""
        self.status = self.parser.get_status_code()
        if self.status >= 200:
            self.head_done = True
        else:
            self.seen_id = self.origin = self.generation = b""
            self.content_length = -1

    def on_body(self, body: bytes) -> None:
        """Fold the body into length and checksum; it is not kept."""
        self.body_length += len(body)
        self.body_crc = zlib.crc32(body, self.body_crc)

    def on_message_complete(self) -> None:
        """Mark the answer whole; what follows in the same chunk is looked at before it counts."""
        if self.status >= 200:
            self.message_done = True
            self.reusable = self.parser.should_keep_alive()  # llhttp forgets it with the next byte

    # -- the end of a request ------------------------------------------------------------------------------------

    def _finish_known(self, answer: KnownAnswer) -> None:
        """End a request whose answer equals, but for the id, one that was parsed whole and found good.

        What that one said of origin and generation is counted there, and told once a second (``Lane.tell_seen``).
        """
        now = self.first_byte
        if not answer.count:
            answer.first_ns = now
        answer.last_ns = now
        answer.count += 1
        self.body_length = answer.body_length
        lane = self.lane
        lane.done(self, _OK, now, "")
        self.body_length = 0
        if now < self.expires_ns:
            self.stage = _IDLE
            self.idle_since = now
            lane.idle.append(self)
        else:
            self.close()

    def _finish(self, data: bytes) -> None:
        if self.trailing:
            self._fail(Outcome.PROTOCOL_ERROR, "bytes followed the end of the answer")
            return
        now = monotonic_ns()
        lane = self.lane
        ended = lane.judge(self)
        if ended is _OK and lane.known is not None and self.reusable and len(data) == self.raw_bytes:
            lane.known.learn(data, self)
        if ended is _OK and self.attempt is not None and self.attempt.refusal:
            lane.done(self, Outcome.TLS_NOT_RESUMED, now, self.attempt.refusal)
        else:
            lane.done(self, ended, now, "" if ended is _OK else lane.mismatch(self))
        if (
            ended is Outcome.IDENTITY_MISMATCH
        ):  # whose answer comes next on this connection is anybody's guess
            self.abort()
            return
        self._rest(now)

    def _rest(self, now: int) -> None:
        """Go back to the pool, or close."""
        lane = self.lane
        if lane.keep and self.reusable and now < self.expires_ns:
            self.stage = _IDLE
            self.idle_since = now
            self._reset_answer()
            lane.idle.append(self)
            return
        self.close()
        if lane.keep and not self.reusable:  # the answer said close: the peer's decision, not ours
            self.closed_by_us = False

    def _finish_by_close(self, now: int) -> None:
        lane = self.lane
        ended = lane.judge(self)
        error = "" if ended is _OK else lane.mismatch(self)
        if ended is _OK and self.attempt is not None and self.attempt.refusal:
            ended, error = Outcome.TLS_NOT_RESUMED, self.attempt.refusal
        lane.done(self, ended, now, error)

    def _fail(self, ended: Outcome, error: str) -> None:
        self.stage = _CLOSED
        self.lane.done(self, ended, monotonic_ns(), error)
        self.abort()

    def dial_failed(self, ended: Outcome, error: str, now: int) -> None:
        """End the request that waited for the connection; one made before the first slot has none."""
        if self.due:
            self.lane.done(self, ended, now, error)

    def give_up(self, ended: Outcome, error: str, now: int) -> None:
        """End the request because a deadline passed, whether its connection is up or still being made."""
        self.stage = _CLOSED
        if self.transport is None and self.dial_task is not None:
            self.dial_task.cancel()
        self.lane.done(self, ended, now, error)
        self.abort()

    def close(self) -> None:
        """Close in order, by our own wish. What still comes is of no interest."""
        self.stage = _CLOSED
        self.closed_by_us = True
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.stage = _CLOSED
        self.closed_by_us = True
        if self.transport is not None:
            self.transport.abort()
