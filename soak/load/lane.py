"""One traffic class at work: its pacer, its idle connections, its expectations, its rows.

Everything that happens per request outside the connection itself is here: booking the slot, choosing a connection,
booking the end. Owned by one ``Engine``; touches no files and no clock but the monotonic one.
"""

from __future__ import annotations

import ssl
import zlib
from typing import TYPE_CHECKING

from soak.load import dial
from soak.load.fold import Row
from soak.load.http1 import Http1Connection
from soak.load.outcome import Stage
from soak.load.pacer import Pacer, PoissonPacer, UniformPacer, skip_to
from soak.load.traffic import ClassSpec, LoadSlice, pattern
from soak.measure.histogram import UNIT_SHIFT
from soak.model import FailedRequest, Outcome

if TYPE_CHECKING:
    from soak.load.engine import Engine

_UNBOUNDED = 1 << 40


class Lane:
    """One traffic class of one worker."""

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
        self.keep = spec.connection == "reuse"
        self.in_flight = 0
        self.idle: list[Http1Connection] = []
        self.rows: dict[int, Row] = {}
        self.row = Row(0)
        self.rows[0] = self.row
        if lost := load.lost.get(spec.name, 0):
            self.row.outcomes[Outcome.CLIENT_RESOURCE] = lost
        self.max_age_ns = int(load.max_age_s * 1e9)
        self.idle_timeout_ns = int(load.idle_timeout_s * 1e9)
        self._prefix = b"%x.%x." % (load.worker, number)
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
        counts[bucket] = counts.get(bucket, 0) + 1
        row.lag_sum += lag
        if lag > row.lag_max:  # noqa: PLR1730 -- hot path: max() is a call
            row.lag_max = lag
        engine.in_flight += 1
        self.in_flight += 1
        self._sequence += 1
        request_id = self._prefix + b"%x" % self._sequence
        idle = self.idle
        while idle:
            connection = idle.pop()
            if connection.stage is Stage.IDLE:
                if now >= connection.expires_ns:
                    connection.close()
                    continue
                connection.assign(request_id, due, now, row.scope)
                engine.busy.add(connection)
                engine.reused += 1
                connection.write_request(now)
                return
        connection = Http1Connection(self, engine.next_connection())
        connection.assign(request_id, due, now, row.scope)
        engine.busy.add(connection)
        dial.start(self, connection)

    # -- called by connections -----------------------------------------------------------------------------------

    def connected(self, connection: Http1Connection, now: int) -> None:
        """Book a new usable connection."""
        engine = self.engine
        engine.opened += 1
        engine.open_connections += 1
        connection.expires_ns = now + int(self.max_age_ns * engine.jitter())
        if self.context is not None:
            dial.note_tls(engine, connection, now)

    def closed(self, connection: Http1Connection) -> None:
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

    def done(self, connection: Http1Connection, ended: Outcome, now: int, error: str) -> None:
        """Book the end of a request."""
        engine = self.engine
        engine.in_flight -= 1
        self.in_flight -= 1
        engine.busy.discard(connection)
        row = self.row
        if connection.row_scope != row.scope:
            row = self._row_for(connection.row_scope, failed=ended is not Outcome.OK)
        latency = now - connection.due
        bucket = latency >> UNIT_SHIFT
        if bucket >= 256:
            shift = bucket.bit_length() - 8
            bucket = (shift << 7) + (bucket >> shift)
        counts = row.latency
        counts[bucket] = counts.get(bucket, 0) + 1
        row.latency_sum += latency
        if latency > row.latency_max:  # noqa: PLR1730 -- hot path: max() is a call
            row.latency_max = latency
        service = now - connection.sent
        bucket = service >> UNIT_SHIFT
        if bucket >= 256:
            shift = bucket.bit_length() - 8
            bucket = (shift << 7) + (bucket >> shift)
        counts = row.service
        counts[bucket] = counts.get(bucket, 0) + 1
        row.service_sum += service
        if service > row.service_max:  # noqa: PLR1730 -- hot path: max() is a call
            row.service_max = service
        row.bytes_received += connection.body_length
        if connection.generation:
            engine.see(engine.generations, connection.generation, now)
        if connection.origin:
            engine.see(engine.origins, connection.origin, now)
        if ended is Outcome.OK:
            row.ok += 1
        else:
            self._failed(row, connection, ended, now, error)
        connection.origin = connection.generation = b""

    def _row_for(self, scope: int, *, failed: bool) -> Row:
        """Return the row to book an end on whose request was sent in an earlier scope."""
        engine = self.engine
        if failed and engine.scope_is_steady(scope) and not engine.scope_is_steady(self.row.scope):
            self.row.carried += 1
            return self.row
        row = self.rows.get(scope)
        if row is None:
            row = self.rows[scope] = Row(scope)
        return row

    def _failed(self, row: Row, connection: Http1Connection, ended: Outcome, now: int, error: str) -> None:
        row.outcomes[ended] = row.outcomes.get(ended, 0) + 1
        row.last_failure_due = max(row.last_failure_due, connection.due)
        if ended is Outcome.STALE_REUSE and not self.spec.idempotent:
            row.stale_non_idempotent += 1
        engine = self.engine
        if not engine.room_for_evidence(ended):
            return
        at = engine.at
        engine.evidence.append(
            FailedRequest(
                id=connection.request_id.decode(),
                traffic=self.name,
                scope=row.scope,
                outcome=ended,
                due_s=at(connection.due),
                sent_s=at(connection.sent),
                first_byte_s=at(connection.first_byte) if connection.first_byte else None,
                done_s=at(now),
                connection=connection.id,
                connection_age_s=(now - connection.connected_ns) / 1e9 if connection.connected_ns else None,
                reused=connection.requests > 1,
                idempotent=self.spec.idempotent,
                status=connection.status or None,
                origin=connection.origin[:64].decode("latin-1"),
                generation=connection.generation[:64].decode("latin-1"),
                serial=connection.serial,
                error=error[:300],
            )
        )

    # -- once in a while -----------------------------------------------------------------------------------------

    def enter_scope(self, scope: int) -> None:
        """Stamp requests with this scope from now on."""
        row = self.rows.get(scope)
        if row is None:
            row = self.rows[scope] = Row(scope)
        self.row = row

    def take_rows(self) -> list[Row]:
        """Return the rows of the second that ended and begin new ones; the present scope's is always among them."""
        rows = [row for row in self.rows.values() if row is self.row or not row.empty]
        self.row = Row(self.row.scope)
        self.rows = {self.row.scope: self.row}
        return rows

    def tidy(self, now: int) -> None:
        """Drop closed connections from the idle list; close those that idle too long or are too old."""
        kept: list[Http1Connection] = []
        for connection in self.idle:
            if connection.stage is not Stage.IDLE:
                continue
            if now >= connection.expires_ns or now - connection.idle_since >= self.idle_timeout_ns:
                connection.close()
            else:
                kept.append(connection)
        self.idle[:] = kept

    def close_idle(self) -> None:
        """Close every idle connection."""
        for connection in self.idle:
            connection.close()
        self.idle.clear()
