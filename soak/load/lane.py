"""One traffic class at work: its pacer, its expectations, its rows. How a request travels is said by a subclass.

``Lane`` books the slot and the end of each request, whatever the protocol; ``dispatch`` puts it on its way. The common case is
``soak.load.http1lane``. Owned by one ``Engine``; touches no files and no clock but the monotonic one.
"""

from __future__ import annotations

import ssl
import zlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from soak.load import dial
from soak.load import outcome as classify
from soak.load.flight import Flight
from soak.load.fold import Row
from soak.load.pacer import Pacer, PoissonPacer, UniformPacer, skip_to
from soak.load.traffic import ClassSpec, LoadSlice, pattern
from soak.measure.histogram import UNIT_SHIFT, bucket_of
from soak.model import FailedRequest, Outcome

if TYPE_CHECKING:
    from soak.load.engine import Engine
    from soak.load.http1 import Http1Connection
    from soak.load.sessions import Sessions

_UNBOUNDED = 1 << 40
_OK = Outcome.OK
"""Of this module: on Python 3.11 to ask an enumeration costs ten times as much."""


class Lane(ABC):
    """One traffic class of one worker."""

    sessions: Sessions | None = None
    """To resume on new connections; None where sessions are not resumed."""
    sources: dial.Sources | None = None
    """Addresses to connect from; None: the kernel's choice."""

    def __init__(
        self, engine: Engine, spec: ClassSpec, load: LoadSlice, number: int, context: ssl.SSLContext | None
    ) -> None:
        self.engine = engine
        self.spec = spec
        self.name = spec.name
        self.context = context
        self.pacer: Pacer = (
            PoissonPacer(
                spec.rate, load.t0_ns, load.seed * 1000 + number, worker=load.worker, workers=load.workers
            )
            if load.arrivals == "poisson"
            else UniformPacer(spec.rate, load.t0_ns, worker=load.worker, workers=load.workers)
        )
        if load.from_second:
            skip_to(self.pacer, load.t0_ns + load.from_second * 1_000_000_000)
        self.workers = load.workers
        self.keep = spec.connection == "reuse"
        self.in_flight = 0
        self.rows: dict[int, Row] = {}
        self.row = Row(0)
        self.rows[0] = self.row
        if lost := load.lost.get(spec.name, 0):
            self.row.outcomes[Outcome.CLIENT_RESOURCE] = lost
        self.max_age_ns = int(load.max_age_s * 1e9)
        self.idle_timeout_ns = int(load.idle_timeout_s * 1e9)
        self.streaming = spec.streaming
        body_timeout_s = load.body_timeout_s if spec.body_timeout_s is None else spec.body_timeout_s
        self.body_timeout_ns = int(body_timeout_s * 1e9)
        # Unlike ids of any other run, and of a worker that this one replaces: origins know those for minutes.
        since = f"{load.t0_ns >> 20:x}" + (f"-{load.from_second:x}" if load.from_second else "")
        self._prefix = f"{since}.{load.worker:x}.{number:x}.".encode()
        self._sequence = 0
        self._build_request(spec)
        self._build_expectations(spec)

    def _build_request(self, spec: ClassSpec) -> None:
        body = pattern(spec.request_bytes) if spec.request_bytes else b""
        lines = [f"{spec.method} {spec.path} HTTP/1.1", f"Host: {spec.authority}"]
        lines += [f"{name}: {value}" for name, value in spec.headers]
        if body or spec.method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {len(body)}")
        if not self.keep:
            lines.append("Connection: close")
        self.request_head = ("\r\n".join(lines) + "\r\nX-Soak-Id: ").encode("latin-1")
        self.request_tail = b"\r\n\r\n" + body

    def _build_expectations(self, spec: ClassSpec) -> None:
        self.check_identity = spec.check_identity
        self.expect_status = spec.status
        self.expect_length = -1 if spec.response_bytes is None else spec.response_bytes
        self.expect_crc = -1
        if spec.check_body and spec.response_bytes is not None:
            self.expect_crc = zlib.crc32(pattern(spec.response_bytes))
        self.max_body = _UNBOUNDED if self.expect_length < 0 else max(self.expect_length, 64 * 1024)

    # -- slots ---------------------------------------------------------------------------------------------------

    def fire(self, due: int, now: int) -> None:
        """Send the request of a slot: on an idle connection if there is one, else on a new one."""
        engine = self.engine
        row = self.row
        lag = now - due
        if lag > engine.max_lag_ns or engine.unsupervised:
            row.missed += 1
            return
        if engine.in_flight >= engine.max_in_flight:
            row.dropped += 1
            return
        row.sent += 1
        bucket = lag >> UNIT_SHIFT
        if bucket >= 256:
            shift = bucket.bit_length() - 8
            bucket = (shift << 7) + (bucket >> shift)
        counts = row.lag
        try:
            counts[bucket] += 1
        except KeyError:
            counts[bucket] = 1
        row.lag_sum += lag
        if lag > row.lag_max:  # noqa: PLR1730 -- hot path: max() is a call
            row.lag_max = lag
        engine.in_flight += 1
        self.in_flight += 1
        self._sequence += 1
        request_id = self._prefix + b"%x" % self._sequence
        self.dispatch(request_id, due, now)

    @abstractmethod
    def dispatch(self, request_id: bytes, due: int, now: int) -> None:
        """Put a request on its way. What becomes of it is told to ``done``, exactly once."""

    def compose(self, flight: Flight) -> bytes:
        """Return the request of a flight as it goes over the wire (HTTP/1.1)."""
        return self.request_head + flight.request_id + self.request_tail

    def judge(self, flight: Flight) -> Outcome:
        """Compare a whole answer with what was promised."""
        identity_ok = not self.check_identity or flight.seen_id == flight.request_id
        body_ok = (self.expect_length < 0 or flight.body_length == self.expect_length) and (
            self.expect_crc < 0 or flight.body_crc == self.expect_crc
        )
        if identity_ok and body_ok and flight.status == self.expect_status:
            return Outcome.OK
        return classify.of_answer(
            status=flight.status, expected_status=self.expect_status, identity_ok=identity_ok, body_ok=body_ok
        )

    def mismatch(self, flight: Flight) -> str:
        """Say what was wrong with an answer: what came, and what was promised."""
        return (
            f"status {flight.status}, id {flight.seen_id[:64].decode('latin-1')!r}, "
            f"body {flight.body_length} bytes crc32 {flight.body_crc:08x}; "
            f"expected status {self.expect_status}, id {flight.request_id.decode()!r}, "
            f"body {self.expect_length} bytes crc32 {max(self.expect_crc, 0):08x}"
        )

    # -- called by connections -----------------------------------------------------------------------------------

    def connected(self, connection: dial.Dialed, now: int) -> None:
        """Book a new usable connection."""
        engine = self.engine
        engine.opened += 1
        engine.open_connections += 1
        connection.expires_ns = now + int(self.max_age_ns * engine.jitter())
        if self.context is not None:
            dial.note_tls(engine, connection, now, of_proxy=self.spec.through == "http")
        row, took = self.row, now - connection.dialed_ns
        bucket = bucket_of(took)
        row.handshake[bucket] = row.handshake.get(bucket, 0) + 1
        row.handshake_sum += took
        row.handshake_max = max(row.handshake_max, took)

    def closed(self, connection: dial.Dialed) -> None:
        """Book the end of a connection, and by whom."""
        engine = self.engine
        if connection.connected_ns:
            engine.open_connections -= 1
            if connection.closed_by_us:
                engine.closed_by_us += 1
            else:
                engine.closed_by_peer += 1

    def unsolicited(self, connection: Http1Connection) -> None:
        """Close an idle connection on which bytes came that nobody asked for; say so."""
        self.engine.note("load.unsolicited_bytes", traffic=self.name, connection=connection.id)
        connection.abort()

    def delivered_twice(self, flight: Flight) -> None:
        """Name a request of which an origin said that it had been delivered before; the origins count them all."""
        self.engine.note(
            "load.delivered_twice",
            traffic=self.name,
            request=flight.request_id.decode(),
            origin=flight.origin[:64].decode("latin-1"),
            sent_s=round(self.engine.at(flight.sent), 3),
        )

    def done(self, flight: Flight, ended: Outcome, now: int, error: str) -> None:  # noqa: C901 -- hot path: calls cost
        """Book the end of a request."""
        engine = self.engine
        engine.in_flight -= 1
        self.in_flight -= 1
        engine.busy.discard(flight)
        row = self.row
        if flight.row_scope != row.scope:
            row = self._row_for(flight, ended)
        answered = now
        if self.streaming and flight.first_byte:
            answered = flight.first_byte
        latency = answered - flight.due
        bucket = latency >> UNIT_SHIFT
        if bucket >= 256:
            shift = bucket.bit_length() - 8
            bucket = (shift << 7) + (bucket >> shift)
        counts = row.latency
        try:
            counts[bucket] += 1
        except KeyError:
            counts[bucket] = 1
        row.latency_sum += latency
        if latency > row.latency_max:  # noqa: PLR1730 -- hot path: max() is a call
            row.latency_max = latency
        service = now - flight.sent
        bucket = service >> UNIT_SHIFT
        if bucket >= 256:
            shift = bucket.bit_length() - 8
            bucket = (shift << 7) + (bucket >> shift)
        counts = row.service
        try:
            counts[bucket] += 1
        except KeyError:
            counts[bucket] = 1
        row.service_sum += service
        if service > row.service_max:  # noqa: PLR1730 -- hot path: max() is a call
            row.service_max = service
        row.bytes_received += flight.body_length
        if flight.generation:
            engine.see(engine.generations, flight.generation, answered)
        if flight.origin:
            engine.see(engine.origins, flight.origin, answered)
        if ended is _OK:
            row.ok += 1
        else:
            self._failed(row, flight, ended, now, error)

    def _row_for(self, flight: Flight, ended: Outcome) -> Row:
        """Return the row to book an end on whose request was sent in an earlier scope."""
        engine = self.engine
        may_carry = engine.scope_is_steady(flight.row_scope) or self._struck_late(ended)
        if ended is not Outcome.OK and may_carry and not engine.scope_is_steady(self.row.scope):
            self.row.carried += 1
            return self.row
        return self._row_of(flight.row_scope)

    def _row_of(self, scope: int) -> Row:
        row = self.rows.get(scope)
        if row is None:
            row = self.rows[scope] = Row(scope)
        return row

    def _struck_late(self, ended: Outcome) -> bool:
        """Whether what broke the request came long after it was due: a download that was going well until it was cut."""
        return self.streaming and ended is Outcome.CUT_MID_RESPONSE

    def _struck_ns(self, flight: Flight, ended: Outcome, now: int) -> int:
        """Return the instant that a failure is ascribed to: its slot's, or that of the cut of a download."""
        return now if self._struck_late(ended) else flight.due

    def _age_ns(self, flight: Flight, now: int) -> int:
        """Return how old the connection was when the request failed."""
        return now - flight.connected_ns

    def _failed(self, row: Row, flight: Flight, ended: Outcome, now: int, error: str) -> None:
        row.outcomes[ended] = row.outcomes.get(ended, 0) + 1
        row.last_failure_due = max(row.last_failure_due, self._struck_ns(flight, ended, now))
        if ended is Outcome.STALE_REUSE and not self.spec.idempotent:
            row.stale_non_idempotent += 1
        engine = self.engine
        if not engine.room_for_evidence(ended):
            return
        if self.streaming and self._struck_late(ended):
            age_s = (now - flight.first_byte) / 1e9
            error = f"{error}, {age_s:.1f} s and {flight.body_length} bytes into the answer"
        at = engine.at
        engine.evidence.append(
            FailedRequest(
                id=flight.request_id.decode(),
                traffic=self.name,
                scope=row.scope,
                outcome=ended,
                due_s=at(flight.due),
                sent_s=at(flight.sent),
                first_byte_s=at(flight.first_byte) if flight.first_byte else None,
                done_s=at(now),
                connection=flight.id,
                connection_age_s=self._age_ns(flight, now) / 1e9 if flight.connected_ns else None,
                reused=flight.reused,
                idempotent=self.spec.idempotent,
                status=flight.status or None,
                origin=flight.origin[:64].decode("latin-1"),
                generation=flight.generation[:64].decode("latin-1"),
                serial=flight.serial,
                error=error[:300],
            )
        )

    # -- once in a while -----------------------------------------------------------------------------------------

    def enter_scope(self, scope: int) -> None:
        """Stamp requests with this scope from now on."""
        self.row = self._row_of(scope)

    def take_rows(self) -> list[Row]:
        """Return the rows of the second that ended and begin new ones; the present scope's is always among them."""
        rows = [row for row in self.rows.values() if row is self.row or not row.empty]
        self.row = Row(self.row.scope)
        self.rows = {self.row.scope: self.row}
        return rows

    def tell_seen(self) -> None:  # noqa: B027 -- most lanes tell each answer as it comes
        """Tell the engine what was seen of answers that were not parsed; called before a window is closed."""

    def warm_up(self) -> None:  # noqa: B027 -- most lanes open connections when slots need them
        """Get ready for the first slot, which is not due yet."""

    @property
    def idle_connections(self) -> int:
        """Connections that are open and carry nothing."""
        return 0

    def tidy(self, now: int) -> None:  # noqa: B027 -- a lane without idle connections has nothing to do
        """Look after connections that carry nothing; called ten times a second."""

    def close_idle(self) -> None:  # noqa: B027 -- a lane without idle connections has nothing to do
        """Close every connection that carries nothing: the slice is at its end."""
