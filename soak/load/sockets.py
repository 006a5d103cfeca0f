"""A cohort of websockets that live across reloads: N seats, a message for each slot, in rotation.

A seat is one of the N sockets over the whole run: when its connection is cut, the cut is told (to the messages in flight, or
to the seat's next slot), and a new connection takes the seat, after a pause that doubles while connections fail. ``max_age``
and ``idle_timeout`` do not apply: these sockets live for as long as the proxy lets them.
"""

from __future__ import annotations

import math
import ssl
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from soak.load import dial
from soak.load import outcome as classify
from soak.load.flight import Flight
from soak.load.fold import Row
from soak.load.lane import Lane
from soak.load.outcome import Stage
from soak.load.traffic import ClassSpec, LoadSlice, pattern
from soak.load.websocket import SWITCHING, WebSocket
from soak.load.wsframes import Received
from soak.model import Outcome

if TYPE_CHECKING:
    from soak.load.engine import Engine

LEAST_PAUSE_S = 0.1
MOST_PAUSE_S = 5.0
"""Bounds of the pause before a seat connects again; it doubles with each failure and is jittered downwards."""
_MOST_IN_FLIGHT = 256
_LEAST_IN_FLIGHT = 4
_LEAST_MESSAGE_BOUND = 64 * 1024
_OPEN_IN_TICKS = 10
"""Seats are filled over so many looks of ``tidy``: one second."""
_LINGER_NS = 1_000_000_000
"""A peer that does not take our close within this time is cut off."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """What a seat's next slot is told."""

    outcome: Outcome
    error: str
    at_ns: int
    scope: int


class Message:
    """One message on its way to its echo: a request as lane and engine see it (``soak.load.flight.Flight``)."""

    __slots__ = (
        *(
            "_stage",
            "body_crc",
            "body_length",
            "due",
            "first_byte",
            "generation",
            "lane",
            "lost_ns",
            "origin",
        ),
        *("payload", "request_id", "reused", "row_scope", "seen_id", "sent", "socket", "status", "wrote_ns"),
    )

    def __init__(
        self, lane: WebSocketLane, request_id: bytes, payload: bytes, *, due: int, sent: int
    ) -> None:
        self.lane = lane
        self.socket: WebSocket | None = None
        self.request_id = request_id
        self.payload = payload
        self.due = due
        self.sent = self.wrote_ns = sent
        self.first_byte = 0
        self.row_scope = lane.row.scope
        self._stage: Stage | None = None
        self.status = 0
        self.seen_id = self.origin = self.generation = b""
        self.body_length = self.body_crc = 0
        self.reused = False
        self.lost_ns = 0
        """When its socket was lost, where that was before this message was due."""

    @property
    def stage(self) -> Stage:
        """Its own stage once it is written or ended, that of its connection until then."""
        if self._stage is None:
            return Stage.RESOLVING if self.socket is None else self.socket.stage
        return self._stage

    @stage.setter
    def stage(self, stage: Stage) -> None:
        self._stage = stage

    @property
    def id(self) -> int:
        """Number of the connection; 0 for none."""
        return self.socket.id if self.socket is not None else 0

    @property
    def connected_ns(self) -> int:
        """When the connection came up."""
        return self.socket.connected_ns if self.socket is not None else 0

    @property
    def serial(self) -> str:
        """Of the certificate that the connection showed."""
        return self.socket.serial if self.socket is not None else ""

    def give_up(self, ended: Outcome, error: str, now: int) -> None:
        """A deadline passed. The whole connection is given up: an echo that comes later would be taken for the next one's."""
        if (
            self.stage is not Stage.CLOSED and self.socket is not None
        ):  # not ended with another message just now
            self.socket.give_up(ended, error, now)


class Seat:
    """One of the cohort's sockets, over the run."""

    __slots__ = ("ceiling_s", "failure", "lane", "owed", "retry_ns", "socket")

    def __init__(self, lane: WebSocketLane) -> None:
        self.lane = lane
        self.socket: WebSocket | None = None
        """The newest connection; it may be closed."""
        self.owed: _Ending | None = None
        """How an open connection ended while no message was on it: one slot is told, then it connects again."""
        self.failure: _Ending | None = None
        """Why the last attempt to connect failed: told to every slot until the next attempt."""
        self.retry_ns = 0
        self.ceiling_s = LEAST_PAUSE_S

    @property
    def live(self) -> WebSocket | None:
        """The connection, if it is open or coming up."""
        socket = self.socket
        return socket if socket is not None and socket.stage is not Stage.CLOSED else None

    @property
    def full(self) -> bool:
        """Whether no further message may be put on the connection."""
        return self.socket is not None and len(self.socket.queue) >= self.lane.most_in_flight

    def send(self, message: Message, now: int) -> None:
        """Put a message on the connection; without one, tell it why, or connect."""
        live = self.live
        if live is not None:
            live.take(message, now)
        elif self.owed is not None:
            owed, self.owed = self.owed, None
            self._tell(message, owed, now)
            self.connect(now)
        elif self.failure is not None and now < self.retry_ns:
            ago_s = (now - self.failure.at_ns) / 1e9
            self.lane.finish(
                message, self.failure.outcome, now, f"{self.failure.error}, {ago_s:.1f} s ago; will try again"
            )
        else:
            self.connect(now).take(message, now)

    def _tell(self, message: Message, owed: _Ending, now: int) -> None:
        """End a message as what became of the connection before the message was due."""
        message.socket = self.socket
        message.status = SWITCHING
        message.lost_ns = owed.at_ns
        message.row_scope = owed.scope
        ago_s = (now - owed.at_ns) / 1e9
        self.lane.finish(
            message, owed.outcome, now, f"{owed.error}, {ago_s:.1f} s before this message was due"
        )

    def connect(self, now: int) -> WebSocket:
        """Begin a new connection."""
        lane = self.lane
        lane.resting.discard(self)
        self.socket = socket = WebSocket(lane, self, lane.engine.next_connection(), now)
        lane.opening.add(socket)
        dial.start(lane, socket)
        return socket

    # -- told by the connection ----------------------------------------------------------------------------------

    def opened(self, socket: WebSocket) -> None:
        """The connection is open: the next failure begins with the least pause again."""
        self.lane.opening.discard(socket)
        self.failure = None
        self.ceiling_s = LEAST_PAUSE_S

    def owe(self, ended: Outcome, error: str, now: int) -> None:
        """Keep the end of an open connection for the next slot."""
        lane = self.lane
        self.owed = _Ending(ended, error, now, lane.row.scope)
        lane.engine.note("load.socket_lost", traffic=lane.name, outcome=ended.value, error=error[:200])

    def lost(self, socket: WebSocket, now: int) -> None:
        """An open connection ended. It is taken up again soon, or by the slot that is told."""
        self.lane.opening.discard(socket)
        if self.owed is None:
            self._rest(now)

    def failed(self, socket: WebSocket, ended: Outcome, error: str, now: int) -> None:
        """The connection did not come up: tell the messages that waited for it, pause, try again."""
        lane = self.lane
        lane.opening.discard(socket)
        self.failure = _Ending(ended, error, now, lane.row.scope)
        self._rest(now)
        self.ceiling_s = min(2 * self.ceiling_s, MOST_PAUSE_S)
        if not socket.end_all(ended, error, now):
            lane.engine.note(
                "load.socket_not_connected", traffic=lane.name, outcome=ended.value, error=error[:200]
            )

    def _rest(self, now: int) -> None:
        self.retry_ns = now + int(self.ceiling_s * (0.5 + self.lane.rng.random() / 2) * 1e9)
        self.lane.resting.add(self)


class WebSocketLane(Lane):
    """The sockets of one worker. All workers together hold ``connections`` of them, but each at least one."""

    def __init__(
        self, engine: Engine, spec: ClassSpec, load: LoadSlice, number: int, context: ssl.SSLContext | None
    ) -> None:
        super().__init__(engine, spec, load, number, context)
        self.rng = Random(load.seed * 6007 + load.worker * 101 + number)
        mine = max(1, len(range(load.worker, spec.connections, load.workers)))
        self.seats = [Seat(self) for _ in range(mine)]
        each_s = mine * load.workers / spec.rate
        self.most_in_flight = min(
            max(_LEAST_IN_FLIGHT, math.ceil(load.response_timeout_s / each_s)), _MOST_IN_FLIGHT
        )
        self._workers = load.workers
        self._seat = self.seats[0]
        self._pattern = pattern(spec.request_bytes)
        self.max_message_bytes = max(_LEAST_MESSAGE_BOUND, 2 * spec.request_bytes)
        self._connect_ns = int(load.connect_timeout_s * 1e9)
        self._response_ns = int(load.response_timeout_s * 1e9)
        self._tls_ns = int((load.connect_timeout_s + load.tls_timeout_s) * 1e9)
        self.opening: set[WebSocket] = set()
        self.resting: set[Seat] = set()
        """Seats without a connection that are to get one by themselves."""
        self.dying: set[WebSocket] = set()
        """Connections that were closed and whose transport is not gone yet."""
        self._empty = list(self.seats)
        """Seats that never had a connection."""
        self._at_end = False

    def _build_request(self, spec: ClassSpec) -> None:
        lines = [f"GET {spec.path} HTTP/1.1", f"Host: {spec.authority}"]
        lines += [f"{name}: {value}" for name, value in spec.headers]
        lines += ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
        self._upgrade_head = ("\r\n".join(lines) + "\r\nSec-WebSocket-Key: ").encode("latin-1")

    def upgrade(self, key: bytes, number: int) -> bytes:
        """Return the request for an upgrade (RFC 6455 section 4.1)."""
        return b"%s%s\r\nX-Soak-Id: %ss%x\r\n\r\n" % (self._upgrade_head, key, self._prefix, number)

    def next_mask(self) -> bytes:
        """Return a mask for one frame."""
        return self.rng.getrandbits(32).to_bytes(4, "big")

    # -- slots ---------------------------------------------------------------------------------------------------

    def fire(self, due: int, now: int) -> None:
        """Send the message of a slot, on the socket whose turn it is; drop it when too many wait there for echoes."""
        self._seat = seat = self.seats[self.pacer.index // self._workers % len(self.seats)]
        engine = self.engine
        if seat.full and now - due <= engine.max_lag_ns and not engine.unsupervised:
            self.row.dropped += 1
            return
        super().fire(due, now)

    def dispatch(self, request_id: bytes, due: int, now: int) -> None:
        """Put the message of a slot on the socket whose turn it is."""
        payload = b"%s %s" % (request_id, self._pattern)
        payload = payload[: max(self.spec.request_bytes, len(request_id) + 1)]
        self._seat.send(Message(self, request_id, payload, due=due, sent=now), now)

    def finish(self, message: Message, ended: Outcome, now: int, error: str) -> None:
        """Book the end of a message."""
        message.stage = Stage.CLOSED
        self.done(message, ended, now, error)

    def judge_echo(self, message: Message) -> Outcome:
        """Say what is wrong with an echo that is not equal to its message."""
        return classify.of_answer(
            status=SWITCHING,
            expected_status=SWITCHING,
            identity_ok=not self.check_identity or message.seen_id == message.request_id,
            body_ok=not self.spec.check_body,
        )

    def wrong_echo(self, message: Message, received: Received) -> str:
        """Say what came and what was promised."""
        return (
            f"echo of {len(received.payload)} bytes, opcode {received.opcode}, "
            f"beginning {received.payload[:64].decode('latin-1')!r}; "
            f"expected {len(message.payload)} bytes, opcode 1, beginning {message.payload[:64].decode()!r}"
        )

    # -- where a cut is booked -----------------------------------------------------------------------------------

    def _row_for(self, flight: Flight, ended: Outcome) -> Row:
        """A cut that a later slot is told is booked on the scope in which it happened."""
        if isinstance(flight, Message) and flight.lost_ns:
            row = self._row_of(flight.row_scope)
            row.carried += not self.engine.scope_is_steady(flight.row_scope)
            return row
        return super()._row_for(flight, ended)

    def _struck_late(self, ended: Outcome) -> bool:
        """A cut strikes when it happens."""
        return ended is Outcome.CUT_MID_RESPONSE

    def _struck_ns(self, flight: Flight, ended: Outcome, now: int) -> int:
        if isinstance(flight, Message) and flight.lost_ns:
            return flight.lost_ns
        return super()._struck_ns(flight, ended, now)

    def _age_ns(self, flight: Flight, now: int) -> int:
        lost_ns = flight.lost_ns if isinstance(flight, Message) else 0
        return (lost_ns or now) - flight.connected_ns

    # -- once in a while -----------------------------------------------------------------------------------------

    @property
    def idle_connections(self) -> int:
        """Open sockets on which no message is under way."""
        return sum(
            seat.socket is not None and seat.socket.stage is Stage.IDLE and not seat.socket.queue
            for seat in self.seats
        )

    def tidy(self, now: int) -> None:
        """Fill empty seats, a tenth at a look; give up what does not come up; connect again what has paused."""
        for socket in tuple(self.opening):
            self._look_at(socket, now)
        for socket in tuple(self.dying):
            if socket.transport is not None and now - socket.closed_ns > _LINGER_NS:
                socket.transport.abort()
        if self._at_end:
            return
        for _ in range(min(len(self._empty), math.ceil(len(self.seats) / _OPEN_IN_TICKS))):
            seat = self._empty.pop()
            if seat.socket is None:
                seat.connect(now)
        for seat in tuple(self.resting):
            if now >= seat.retry_ns:
                seat.connect(now)

    def _look_at(self, socket: WebSocket, now: int) -> None:
        """Give up a connection that does not come up in time, with the deadlines that requests have."""
        stage = socket.stage
        if stage is Stage.BUSY:
            late = now - socket.wrote_ns > self._response_ns
        else:
            late = now - socket.began_ns > (self._tls_ns if stage is Stage.HANDSHAKING else self._connect_ns)
        if late:
            ended = classify.of_timeout(stage, first_byte=False)
            socket.give_up(ended, f"gave up while {_DOING[stage]}", now)

    def close_idle(self) -> None:
        """Close every socket: the slice is at its end."""
        self._at_end = True
        self.resting.clear()
        for seat in self.seats:
            if (live := seat.live) is not None:
                live.close()
        self.opening.clear()


_DOING = {
    Stage.RESOLVING: "resolving",
    Stage.CONNECTING: "connecting",
    Stage.HANDSHAKING: "handshaking",
    Stage.BUSY: "asking for the upgrade",
}
