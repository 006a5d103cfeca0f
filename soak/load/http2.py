"""One HTTP/2 connection (RFC 9113): many requests at a time, their flow control, and how each of them ended.

A breach of the protocol ends the connection, and all its requests as
``protocol_error``; a malformed answer ends only its stream. It decides nothing about pacing or which connection a request
takes; that is its lane's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic_ns
from typing import TYPE_CHECKING, cast

from soak.load import h2frames as h2
from soak.load import outcome as classify
from soak.load.h2flow import H2Flow
from soak.load.h2frames import HEAD, Code, H2Error, code_name
from soak.load.h2stream import H2Stream, MalformedError
from soak.load.hpack import Decoder, HpackError
from soak.load.outcome import Stage
from soak.load.tls import CLOSE_TIMEOUT_S
from soak.model import Outcome

if TYPE_CHECKING:
    from soak.load.h2lane import H2Lane

_ALPN = "h2"
_TABLE_RESET = b"\x20"
"""Our first header block shrinks the table that we never use to nothing, so no later limit of the peer concerns us."""
MAX_RESET = 256
"""Streams that we reset and whose frames may still come; past this many the connection is retired."""
_LAST_STREAM = h2.MAX_WINDOW - 1000
"""Past this number a connection is retired; the rest is for requests that wait for it already (RFC 9113 section 5.1.1)."""


class H2Connection(H2Flow):
    """A connection of one traffic class, from connect to close."""

    __slots__ = (
        "_answered",
        "_busy_since",
        "_decoder",
        "_goaway_last",
        "_goaway_text",
        "_progress_ns",
        "_recv_window",
        "_reset",
        "_waiting",
        "idle_since",
        "load",
        "requests",
        "retired",
    )

    def __init__(self, lane: H2Lane, number: int) -> None:
        super().__init__(lane, number)
        self._waiting: deque[H2Stream] = deque()
        self.load = 0
        """Requests that it carries, those that wait included."""
        self.requests = 0
        self.retired = False
        """It takes no new requests and closes when its last one ends."""
        self.idle_since = 0
        self._decoder = Decoder()
        self._reset: set[int] = set()
        self._goaway_last = -1
        self._goaway_text = ""
        self._recv_window = h2.CONNECTION_WINDOW
        self._progress_ns = self._busy_since = 0
        self._answered = False

    @property
    def stage(self) -> Stage:
        """How far it has come; requests that wait for it have come as far."""
        return self._stage

    @stage.setter
    def stage(self, stage: Stage) -> None:
        self._stage = stage
        if stage is not Stage.CLOSED:  # then each is told how it ended
            for stream in self._waiting:
                stream.stage = stage

    # -- requests ------------------------------------------------------------------------------------------------

    def take(self, stream: H2Stream, now: int) -> None:
        """Send a request: now, or as soon as the connection is up and the peer's limit allows it."""
        self.load += 1
        if self.ready and len(self.streams) < self.limit:
            self._open(stream, now)
        else:
            self._waiting.append(stream)

    def _open(self, stream: H2Stream, now: int) -> None:
        lane = self.lane
        stream.stream_id = number = self._next_id
        self._next_id = number + 2
        stream.stage = Stage.BUSY
        stream.wrote_ns = now
        block = lane.compose(stream)
        if self.requests:
            stream.reused = True
            lane.engine.reused += 1
        else:
            block = _TABLE_RESET + block
        self.requests += 1
        if not self.streams:
            self._busy_since = now
            self._answered = False
        self.streams[number] = stream
        flags = h2.END_HEADERS if lane.body else h2.END_HEADERS | h2.END_STREAM
        self._say(HEAD.pack(len(block) << 8 | h2.HEADERS, flags, number) + block)
        if lane.body:
            stream.send_window = self._peer_window
            self._pump(stream)
        if self._next_id >= _LAST_STREAM:
            self.retire()

    def _open_waiting(self, now: int) -> None:
        while self._waiting and len(self.streams) < self.limit and self._stage is not Stage.CLOSED:
            self._open(self._waiting.popleft(), now)

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the conversation (section 3.4); the requests that wait are sent once the peer's SETTINGS are known."""
        now = monotonic_ns()
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one by shape, not by class
        if self._stage is Stage.CLOSED:  # given up while the handshake was finishing
            self.transport.abort()
            return
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and (chosen := tls.selected_alpn_protocol()) != _ALPN:
            self._end_all(Outcome.TLS_HANDSHAKE, f"the peer did not choose h2 by ALPN but {chosen!r}", now)
            self.abort()
            return
        self.connected_ns = self.idle_since = now
        for stream in self._waiting:
            stream.wrote_ns = now
        self.stage = Stage.BUSY
        self.lane.connected(self, now)
        self.transport.write(h2.opening())

    def eof_received(self) -> bool:
        """Let the transport close; until it has, no request is put on this connection."""
        self.retired = True
        self.lane.forget(self)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Classify what the close did to each request."""
        now = monotonic_ns()
        if self._stage is not Stage.CLOSED:
            self._stage = Stage.CLOSED
            text = str(exc) if exc else "the peer closed the connection"
            if self._goaway_text:
                text = f"{text} after {self._goaway_text}"
            stale = self._may_be_stale(now)
            for stream in self._take_all():
                ended = classify.of_lost_connection(
                    reused=stale, first_byte=bool(stream.first_byte), since_sent_ns=now - stream.wrote_ns
                )
                self.lane.done(stream, ended, now, text)
        self.transport = None
        self.lane.forget(self)
        self.lane.closed(self)

    def _may_be_stale(self, now: int) -> bool:
        """Whether the peer may have closed an idle connection, and our requests only crossed its close.

        Not after GOAWAY, whose purpose is to exclude this, and not when it has answered anything since the connection was
        idle: then it was not idle for the peer either.
        """
        return (
            self._goaway_last < 0
            and not self._answered
            and self.requests > len(self.streams)
            and now - self._busy_since <= classify.STALE_WINDOW_NS
        )

    # -- frames of streams --------------------------------------------------------------------------------------

    def _live(self, number: int, kind: str) -> H2Stream | None:
        """Return a stream that is open; None if it is closed and what comes is to be ignored."""
        stream = self.streams.get(number)
        if stream is not None:
            return stream
        self._check_not_idle(number, kind)
        if number not in self._reset:
            raise H2Error(Code.STREAM_CLOSED, f"{kind} on stream {number}, which is closed")
        self._calm()
        return None

    def _on_data(self, number: int, flags: int, payload: bytes, now: int) -> None:
        length = len(payload)
        stream = self._live(number, "DATA")
        self._recv_window -= length
        if self._recv_window < h2.CONNECTION_WINDOW // 2:
            self._replenish()
        if flags & h2.PADDED:
            payload = h2.unpadded(payload, flags)
        if stream is None:
            if flags & h2.END_STREAM:
                self._reset.discard(number)
            return
        self._progress(payload, now)
        stream.recv_window -= length
        if stream.recv_window < 0:
            raise H2Error(Code.FLOW_CONTROL_ERROR, f"more data than the window of stream {number} allows")
        try:
            stream.take_data(payload)
            if flags & h2.END_STREAM:
                self._finish(stream, now)
                return
        except MalformedError as error:
            self._cut_off(stream, Outcome.PROTOCOL_ERROR, str(error), Code.PROTOCOL_ERROR)
            return
        if stream.body_length > self.lane.max_body:
            text = f"the body is longer than the promised {self.lane.max_body} bytes"
            self._cut_off(stream, Outcome.BODY_MISMATCH, text, Code.CANCEL)
        elif stream.recv_window < h2.STREAM_WINDOW // 2:
            self._reply(h2.window_update(number, h2.STREAM_WINDOW - stream.recv_window))
            stream.recv_window = h2.STREAM_WINDOW

    def _replenish(self) -> None:
        if self._recv_window < 0:
            raise H2Error(Code.FLOW_CONTROL_ERROR, "more data than the connection's window allows")
        self._reply(h2.window_update(0, h2.CONNECTION_WINDOW - self._recv_window))
        self._recv_window = h2.CONNECTION_WINDOW

    def _progress(self, payload: bytes, now: int) -> None:
        self._progress_ns = now
        self._answered = True
        if payload:
            self._idle_frames = 0
        else:
            self._calm()

    def _on_block(self, number: int, flags: int, block: bytes, now: int) -> None:
        stream = self._live(number, "HEADERS")
        try:
            fields = self._decoder.decode(block)
        except HpackError as error:
            raise H2Error(Code.COMPRESSION_ERROR, str(error)) from error
        if stream is None:  # its block had to be decoded all the same: the table is the connection's
            if flags & h2.END_STREAM:
                self._reset.discard(number)
            return
        self._progress(block, now)
        if not stream.first_byte:
            stream.first_byte = now
        last = bool(flags & h2.END_STREAM)
        try:
            stream.take_fields(fields, len(block), last=last)
            if last:
                self._finish(stream, now)
        except MalformedError as error:
            self._cut_off(stream, Outcome.PROTOCOL_ERROR, str(error), Code.PROTOCOL_ERROR)

    def _on_reset(self, number: int, code: int, now: int) -> None:
        stream = self.streams.get(number)
        if stream is None:
            self._check_not_idle(number, "RST_STREAM")
            self._reset.discard(number)
            return
        self._answered = True
        self._progress_ns = now
        if code == Code.REFUSED_STREAM:
            ended = Outcome.H2_REFUSED_STREAM
        else:
            ended = Outcome.CUT_MID_RESPONSE if stream.first_byte else Outcome.CUT_BEFORE_RESPONSE
        self._end(stream, ended, now, f"the peer reset the stream: {code_name(code)}")

    def _on_goaway(self, last: int, code: int, debug: bytes, now: int) -> None:
        """Take no new requests; those that the peer has not seen are over (section 6.8)."""
        if 0 <= self._goaway_last < last:
            raise H2Error(Code.PROTOCOL_ERROR, f"GOAWAY raised its last stream to {last}")
        self._goaway_last = last
        said = f": {debug[:80].decode('latin-1')!r}" if debug else ""
        self._goaway_text = f"GOAWAY {code_name(code)}, last stream {last}{said}"
        self.retired = True
        self.lane.forget(self)
        while self._waiting:
            self._over(self._waiting.popleft(), Outcome.H2_GOAWAY, now, self._goaway_text)
        for stream in [s for s in self.streams.values() if s.stream_id > last]:
            self._reset.add(stream.stream_id)
            self._end(stream, Outcome.H2_GOAWAY, now, self._goaway_text)
        self._go_on(now)

    # -- ends ----------------------------------------------------------------------------------------------------

    def _finish(self, stream: H2Stream, now: int) -> None:
        """Judge a whole answer. Raises ``MalformedError``."""
        stream.check_end()
        lane = self.lane
        if stream.body_at < len(lane.body):  # answered before it was asked in full: the rest would be in vain
            self._say(h2.rst_stream(stream.stream_id, Code.CANCEL))
        ended = lane.judge(stream)
        self._end(stream, ended, now, "" if ended is Outcome.OK else lane.mismatch(stream))
        if ended is Outcome.IDENTITY_MISMATCH:  # whose answer comes next is anybody's guess
            self.retire()

    def _cut_off(self, stream: H2Stream, ended: Outcome, error: str, code: Code) -> None:
        """Reset a stream by our own decision; what the peer still sends on it is ignored."""
        self._reset.add(stream.stream_id)
        self._say(h2.rst_stream(stream.stream_id, code))
        self._end(stream, ended, monotonic_ns(), error)
        if len(self._reset) >= MAX_RESET:
            self.retire()

    def _end(self, stream: H2Stream, ended: Outcome, now: int, error: str) -> None:
        del self.streams[stream.stream_id]
        self._blocked.pop(stream.stream_id, None)
        self._over(stream, ended, now, error)
        self._go_on(now)

    def _over(self, stream: H2Stream, ended: Outcome, now: int, error: str) -> None:
        stream.stage = Stage.CLOSED
        self.load -= 1
        self.lane.done(stream, ended, now, error)

    def _go_on(self, now: int) -> None:
        """Send what waited for room; close when there is nothing left to do."""
        if self._waiting and self.ready:
            self._open_waiting(now)
        if not self.load:
            self.idle_since = now
            if self.retired:
                self.close()

    def give_up(self, stream: H2Stream, ended: Outcome, error: str, now: int) -> None:
        """End a request whose deadline passed.

        When that was the dial's, it has failed for all that wait for it, also for those that have not waited as long: they
        would otherwise prolong it for each other without end. A connection on which no answer has come since the request was
        sent is retired: it would swallow more of them.
        """
        if self._stage is not Stage.BUSY:
            self._end_all(ended, error, now)
            if self.dial_task is not None:
                self.dial_task.cancel()
            self.abort()
            return
        if stream.stream_id:
            self._cut_off(stream, ended, error, Code.CANCEL)
        else:
            self._waiting.remove(stream)
            self._over(stream, ended, now, error)
            self._go_on(now)
        if self._progress_ns < stream.wrote_ns:
            self.retire()

    def dial_failed(self, ended: Outcome, error: str, now: int) -> None:
        """End all requests that waited for the connection."""
        self._end_all(ended, error, now)

    def _end_all(self, ended: Outcome, error: str, now: int) -> None:
        for stream in self._take_all():
            self.lane.done(stream, ended, now, error)

    def _take_all(self) -> list[H2Stream]:
        """Close for all requests and return those that must be told."""
        self._stage = Stage.CLOSED
        everybody = [*self.streams.values(), *self._waiting]
        self.streams.clear()
        self._waiting.clear()
        self._blocked.clear()
        self.load = 0
        self.lane.forget(self)
        for stream in everybody:
            stream.stage = Stage.CLOSED
        return everybody

    # -- the end of the connection -------------------------------------------------------------------------------

    def retire(self) -> None:
        """Take no new requests; close when the last one has ended."""
        self.retired = True
        self.lane.forget(self)
        if not self.load and self._stage is Stage.BUSY:
            self.close()

    def close(self) -> None:
        """Close in order. It was the peer's decision if it sent GOAWAY."""
        self._hang_up(h2.goaway(Code.NO_ERROR))
        self.closed_by_us = self._goaway_last < 0

    def _break(self, error: H2Error) -> None:
        text = str(error)
        self._end_all(Outcome.PROTOCOL_ERROR, f"{code_name(error.code)}: {text}", monotonic_ns())
        self._hang_up(h2.goaway(error.code, text.encode()))

    def _hang_up(self, last_words: bytes) -> None:
        """Say why, and close in order; a peer that does not even read that is left after a second."""
        self._stage = Stage.CLOSED
        self.closed_by_us = True
        self.lane.forget(self)
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        transport.write(b"".join([*self._out, last_words]))
        self._out.clear()
        transport.close()
        self._loop.call_later(CLOSE_TIMEOUT_S, self._leave)

    def _leave(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def abort(self) -> None:
        """Close at once."""
        self._stage = Stage.CLOSED
        self.closed_by_us = True
        if self.transport is not None:
            self.transport.abort()
