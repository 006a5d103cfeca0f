"""Websockets that live for the whole run: one connection, from its upgrade to its cut, and the messages on it.

``soak.load.sockets`` holds the cohort of them. A message is a request: it carries its id and a known payload, and the echo
must be equal. Echoes come in the order of the messages. Whatever ends the connection ends every message on it, exactly once.
"""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, cast

import httptools

from soak.load import outcome as classify
from soak.load.dial import Dialed
from soak.load.http1 import MAX_HEAD_BYTES
from soak.load.outcome import Stage
from soak.load.wsframes import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    FrameError,
    FrameReader,
    Received,
    accept_of,
    client_frame,
)
from soak.model import Outcome

if TYPE_CHECKING:
    from soak.load.sockets import Message, Seat, WebSocketLane

SWITCHING = 101
_NORMAL, _PROTOCOL_ERROR = 1000, 1002
_MAX_UNSENT_PONGS = 64 * 1024
"""Bytes that wait to be written when a ping comes; more, and the peer pings faster than it reads."""


class WebSocket(Dialed):
    """One connection. Its stages: those of a dial, ``BUSY`` while it asks for the upgrade, ``IDLE`` when open, ``CLOSED``."""

    __slots__ = (
        *("began_ns", "closed_ns", "generation", "http", "key", "lane", "messages", "offered", "origin"),
        *("queue", "raw_bytes", "reader", "seat", "status", "upgraded", "wrote_ns"),
    )

    def __init__(self, lane: WebSocketLane, seat: Seat, number: int, now: int) -> None:
        self.lane = lane
        self.seat = seat
        self.id = number
        self.stage = Stage.RESOLVING
        self.transport: asyncio.Transport | None = None
        self.dial_task: asyncio.Task[None] | None = None
        self.connected_ns = self.expires_ns = 0
        self.serial = ""
        self.resumed = self.closed_by_us = False
        self.began_ns = self.wrote_ns = now
        self.closed_ns = 0
        self.queue: deque[Message] = deque()
        """Messages that wait for the connection, or for their echoes."""
        self.messages = 0
        self.reader = FrameReader(lane.max_message_bytes)
        self.http: Any = None
        self.key = b""
        self.offered: dict[bytes, bytes] = {}
        self.status = 0
        self.upgraded = False
        self.raw_bytes = 0
        self.origin = self.generation = b""

    # -- messages ------------------------------------------------------------------------------------------------

    def take(self, message: Message, now: int) -> None:
        """Send a message, or keep it until the connection is open."""
        message.socket = self
        self.queue.append(message)
        self.lane.engine.busy.add(message)
        if self.stage is Stage.IDLE:
            self._write(message, now)
        else:
            message.wrote_ns = now

    def _write(self, message: Message, now: int) -> None:
        message.stage = Stage.BUSY
        message.wrote_ns = now
        message.status = SWITCHING
        message.reused = self.messages > 0
        if message.reused:
            self.lane.engine.reused += 1
        self.messages += 1
        assert self.transport is not None
        self.transport.write(client_frame(TEXT, message.payload, self.lane.next_mask()))

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the upgrade (RFC 6455 section 4.1)."""
        now = monotonic_ns()
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one by shape, not by class
        if self.stage is Stage.CLOSED:  # given up while the handshake was finishing
            self.transport.abort()
            return
        self.connected_ns = self.wrote_ns = now
        self.lane.connected(self, now)
        self.stage = Stage.BUSY
        for message in self.queue:  # from now on they wait for an answer
            message.wrote_ns = now
        self.http = httptools.HttpResponseParser(self)
        self.key = base64.b64encode(self.lane.rng.randbytes(16))
        self.transport.write(self.lane.upgrade(self.key, self.id))

    def data_received(self, data: bytes) -> None:
        """Take the answer to the upgrade, then frames."""
        if self.stage is Stage.IDLE:
            self._take_frames(data)
        elif self.stage is Stage.BUSY:
            self._take_answer(data)

    def eof_received(self) -> bool:
        """Book the cut at once: what is still to be written could hold up the close."""
        self._lost("the peer closed the connection without a close frame")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Book the cut, if nothing was booked yet."""
        self.transport = None
        self.lane.closed(self)
        self.lane.dying.discard(self)
        self._lost(str(exc) if exc else "the connection closed without a close frame")

    # -- the upgrade ---------------------------------------------------------------------------------------------

    def _take_answer(self, data: bytes) -> None:
        self.raw_bytes += len(data)
        rest, wrong = b"", ""
        try:
            self.http.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            self.upgraded = True
        except httptools.HttpParserError as error:
            wrong = f"{type(error).__name__}: {error}"[:200]
        if self.status >= 200:
            ended = classify.of_answer(
                status=self.status, expected_status=SWITCHING, identity_ok=True, body_ok=True
            )
            self._refused(ended, f"the upgrade to a websocket was answered with status {self.status}")
        elif wrong := (self._wrong_with_the_switch() if self.status else wrong):
            self._refused(Outcome.PROTOCOL_ERROR, wrong)
        elif self.status:
            self._open(rest)
        elif self.raw_bytes > MAX_HEAD_BYTES:
            self._refused(Outcome.PROTOCOL_ERROR, f"the header block is larger than {MAX_HEAD_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep what the switch is judged by, and what is evidence."""
        lower = name.lower()
        if lower.startswith(b"sec-websocket-") or lower in (b"upgrade", b"connection"):
            self.offered[lower] = value
        elif lower == b"x-soak-origin":
            self.origin = value
        elif lower == b"x-soak-generation":
            self.generation = value

    def on_headers_complete(self) -> None:
        """Note the status; other 1xx answers are not the answer."""
        status = self.http.get_status_code()
        if status == SWITCHING or status >= 200:
            self.status = status
        else:
            self.offered.clear()

    def _wrong_with_the_switch(self) -> str:
        """Return what is wrong with an answer 101 (RFC 6455 section 4.1); empty when it is right."""
        offered = self.offered
        tokens = [t.strip() for t in offered.get(b"connection", b"").lower().split(b",")]
        accept = offered.get(b"sec-websocket-accept", b"")
        if (
            not self.upgraded
            or offered.get(b"upgrade", b"").lower() != b"websocket"
            or b"upgrade" not in tokens
        ):
            return "status 101 came without an upgrade to websocket"
        if accept != accept_of(self.key):
            return f"Sec-WebSocket-Accept is {accept[:64].decode('latin-1')!r}, not {accept_of(self.key).decode()!r}"
        if b"sec-websocket-extensions" in offered or b"sec-websocket-protocol" in offered:
            return "an extension or a subprotocol was chosen that nobody offered"
        return ""

    def _open(self, rest: bytes) -> None:
        now = monotonic_ns()
        self.http = None
        self.stage = Stage.IDLE
        engine = self.lane.engine
        if self.generation:
            engine.see(engine.generations, self.generation, now)
        if self.origin:
            engine.see(engine.origins, self.origin, now)
        self.seat.opened(self)
        for message in self.queue:
            self._write(message, now)
        if rest:
            self._take_frames(rest)

    # -- frames --------------------------------------------------------------------------------------------------

    def _take_frames(self, data: bytes) -> None:
        reader = self.reader
        reader.feed(data)
        try:
            while self.stage is Stage.IDLE and (received := reader.take()) is not None:
                self._obey(received)
        except FrameError as error:
            self._break_off(Outcome.PROTOCOL_ERROR, str(error))
            return
        if self.stage is Stage.IDLE and reader.mid_message:
            if not self.queue:
                self._break_off(Outcome.PROTOCOL_ERROR, "a message began that nobody asked for")
            elif not self.queue[0].first_byte:
                self.queue[0].first_byte = monotonic_ns()

    def _obey(self, received: Received) -> None:
        opcode = received.opcode
        if opcode <= BINARY:
            self._take_echo(received)
        elif opcode == PING:
            assert self.transport is not None
            if self.transport.get_write_buffer_size() > _MAX_UNSENT_PONGS:
                self._break_off(Outcome.PROTOCOL_ERROR, "pings come faster than their answers are read")
                return
            self.transport.write(client_frame(PONG, received.payload, self.lane.next_mask()))
        elif opcode == CLOSE:
            self._answer_close(received)

    def _take_echo(self, received: Received) -> None:
        if not self.queue:
            self._break_off(Outcome.PROTOCOL_ERROR, "a message came that nobody asked for")
            return
        now = monotonic_ns()
        message = self.queue.popleft()
        lane = self.lane
        payload = received.payload
        message.first_byte = message.first_byte or now
        message.body_length = len(payload)
        if payload == message.payload and received.opcode == TEXT:
            lane.finish(message, Outcome.OK, now, "")
            return
        message.seen_id = payload.split(b" ", 1)[0][:64]
        ended = lane.judge_echo(message)
        lane.finish(message, ended, now, "" if ended is Outcome.OK else lane.wrong_echo(message, received))
        if ended is Outcome.IDENTITY_MISMATCH:  # whose echo comes next is anybody's guess
            self.end_all(Outcome.PROTOCOL_ERROR, "given up with its socket, on which a wrong echo came", now)
            self._hang_up(_PROTOCOL_ERROR)
            self.seat.lost(self, now)

    def _answer_close(self, received: Received) -> None:
        code = received.close_code
        said = "without a code" if code is None else f"{code} {received.close_reason[:100]}".strip()
        self._lost(f"close frame {said}", answer=received.payload[:2])

    # -- the end -------------------------------------------------------------------------------------------------

    def _lost(self, why: str, *, answer: bytes | None = None) -> None:
        """The peer cut the connection, or lost it. ``answer``: what to say to its close frame."""
        stage = self.stage
        if stage is Stage.CLOSED:
            return
        self.stage = Stage.CLOSED
        now = monotonic_ns()
        if self.transport is not None:
            if answer is not None:
                self.transport.write(client_frame(CLOSE, answer, self.lane.next_mask()))
            self._linger(self.transport, now)
        if stage is Stage.BUSY:
            ended = classify.of_lost_connection(
                reused=False, first_byte=bool(self.raw_bytes), since_sent_ns=now - self.wrote_ns
            )
            self.seat.failed(self, ended, f"while asking for the upgrade: {why}", now)
            return
        age_s = (now - self.connected_ns) / 1e9
        by = f"; opened by {self.origin[:64].decode('latin-1')}" if self.origin else ""
        under = f" under generation {self.generation[:64].decode('latin-1')}" if self.generation else ""
        self._end_open(Outcome.CUT_MID_RESPONSE, f"cut after {age_s:.1f} s: {why}{by}{under}", now)

    def _end_open(self, ended: Outcome, error: str, now: int) -> None:
        """End the messages in flight; when there is none, the next slot is told."""
        if not self.end_all(ended, error, now):
            self.seat.owe(ended, error, now)
        self.seat.lost(self, now)

    def end_all(self, ended: Outcome, error: str, now: int) -> int:
        """End every message of the connection; return how many there were."""
        n = len(self.queue)
        while self.queue:
            message = self.queue.popleft()
            message.status = message.status or self.status
            self.lane.finish(message, ended, now, error)
        return n

    def _break_off(self, ended: Outcome, error: str) -> None:
        """The peer broke a rule of the protocol: hang up."""
        now = monotonic_ns()
        self._hang_up(_PROTOCOL_ERROR)
        self._end_open(ended, error, now)

    def _refused(self, ended: Outcome, error: str) -> None:
        """The upgrade was not granted."""
        self.abort()
        self.seat.failed(self, ended, error, monotonic_ns())

    def dial_failed(self, ended: Outcome, error: str, now: int) -> None:
        """End the messages that waited for the connection."""
        self.seat.failed(self, ended, error, now)

    def give_up(self, ended: Outcome, error: str, now: int) -> None:
        """A deadline passed, of the connection while it comes up or of a message."""
        stage = self.stage
        if stage is Stage.CLOSED:
            return
        self.abort()
        if stage is Stage.IDLE:
            self._end_open(ended, f"{error}; the socket was given up with all its messages", now)
        else:
            self.seat.failed(self, ended, error, now)

    def _hang_up(self, code: int) -> None:
        """Say why and close, without waiting for an answer."""
        self.stage = Stage.CLOSED
        self.closed_by_us = True
        if self.transport is not None:
            self.transport.write(client_frame(CLOSE, code.to_bytes(2, "big"), self.lane.next_mask()))
            self._linger(self.transport, monotonic_ns())

    def _linger(self, transport: asyncio.Transport, now: int) -> None:
        """Close once all is written; the lane cuts it off when that takes too long."""
        transport.close()
        self.closed_ns = now
        self.lane.dying.add(self)

    def close(self) -> None:
        """Close in order: the slice is at its end."""
        if self.stage is Stage.IDLE:
            self._hang_up(_NORMAL)
        else:
            self.abort()

    def abort(self) -> None:
        """Close at once, also while it is being dialled."""
        self.stage = Stage.CLOSED
        self.closed_by_us = True
        if self.transport is not None:
            self.transport.abort()
        elif self.dial_task is not None:
            self.dial_task.cancel()
