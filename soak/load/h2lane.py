"""The HTTP/2 lane: few connections, many requests on each; a slot for which there is no room is dropped, never queued.

A request takes the least loaded open connection, so that all connections and all workers of the proxy behind them share
the work, and a lost connection costs as few requests as may be. Only when none has room it waits for one that is being
dialled, or dials another. Connections that only finish what they carry (old ones, or after GOAWAY) do not count.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from soak.load import dial
from soak.load.flight import Flight
from soak.load.h2frames import MAX_FRAME_BYTES
from soak.load.h2stream import H2Stream
from soak.load.hpack import literal, literal_head
from soak.load.http2 import H2Connection
from soak.load.lane import Lane
from soak.load.traffic import ClassSpec, LoadSlice, pattern

if TYPE_CHECKING:
    from soak.load.engine import Engine

_CONNECTION_SPECIFIC = frozenset(
    {"connection", "host", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "content-length"}
)
_ROOM_FOR_ID = 256


class H2Lane(Lane):
    """HTTP/2: at most ``spec.connections`` (over all workers) that take requests, with ``spec.streams`` on each."""

    def __init__(
        self, engine: Engine, spec: ClassSpec, load: LoadSlice, number: int, context: ssl.SSLContext | None
    ) -> None:
        """Raises ``ValueError`` for a class that is no HTTP/2: connections for one request, or a head of more than a frame."""
        if spec.connection != "reuse":
            raise ValueError(
                f"{spec.name}: h2 keeps its connections, so connection cannot be {spec.connection!r}"
            )
        super().__init__(
            engine, spec, load, number, dial.client_context(load.ca_file, alpn=("h2",)) if context else None
        )
        self.connections: list[H2Connection] = []
        """Those that take requests: open or being dialled."""
        share, extra = divmod(spec.connections, load.workers)
        self.most = max(1, share + (load.worker < extra))
        self.peer_streams = spec.streams
        self._next: H2Connection | None = None

    def _build_request(self, spec: ClassSpec) -> None:
        """Encode everything but the id once; without a table, so it is the same on every connection."""
        self.body = pattern(spec.request_bytes)
        fields = [
            (":method", spec.method),
            (":scheme", "https" if spec.tls else "http"),
            (":path", spec.path),
            (":authority", spec.authority),
        ]
        fields += [
            (name.lower(), value) for name, value in spec.headers if name.lower() not in _CONNECTION_SPECIFIC
        ]
        if self.body or spec.method in ("POST", "PUT", "PATCH"):
            fields.append(("content-length", str(len(self.body))))
        block = b"".join(literal(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields)
        self.request_head = block + literal_head(b"x-soak-id")
        if len(self.request_head) > MAX_FRAME_BYTES - _ROOM_FOR_ID:
            raise ValueError(
                f"{spec.name}: a head of {len(self.request_head)} bytes does not fit into one frame"
            )

    @property
    def streams(self) -> int:
        """Requests that a connection may carry, as far as is known before its peer has said so itself."""
        return max(1, min(self.spec.streams, self.peer_streams))

    def compose(self, flight: Flight) -> bytes:
        """Return the header block of a request."""
        request_id = flight.request_id
        return b"%b%c%b" % (self.request_head, len(request_id), request_id)

    # -- slots ---------------------------------------------------------------------------------------------------

    def fire(self, due: int, now: int) -> None:
        """Send the request of a slot; drop the slot when no stream may be opened for it."""
        engine = self.engine
        if now - due <= engine.max_lag_ns and not engine.unsupervised and not self.find_room():
            self.row.dropped += 1
            return
        super().fire(due, now)

    def find_room(self) -> bool:
        """Look for the connection that the next request takes; whether there is one, or one more may be dialled."""
        best: H2Connection | None = None
        least = 1 << 30
        for connection in self.connections:
            load = connection.load
            if load >= connection.limit:
                continue
            if not connection.ready:
                load += 1 << 20  # rather a busy one that is open
            if load < least:
                best, least = connection, load
        self._next = best
        return best is not None or len(self.connections) < self.most

    def dispatch(self, request_id: bytes, due: int, now: int) -> None:
        """Put the request on the connection that was found, or on a new one."""
        connection = self._next
        if connection is None:
            connection = H2Connection(self, self.engine.next_connection())
            self.connections.append(connection)
            dial.start(self, connection)
        stream = H2Stream(connection, request_id, due, now, self.row.scope)
        self.engine.busy.add(stream)
        connection.take(stream, now)

    # -- connections ---------------------------------------------------------------------------------------------

    def forget(self, connection: H2Connection) -> None:
        """Put no more requests on a connection."""
        if connection in self.connections:
            self.connections.remove(connection)

    @property
    def idle_connections(self) -> int:
        """Open connections that carry nothing."""
        return sum(1 for connection in self.connections if not connection.load)

    def tidy(self, now: int) -> None:
        """Retire connections that are too old; close those that idle too long."""
        for connection in tuple(self.connections):
            if not connection.connected_ns:
                continue
            is_old = now >= connection.expires_ns
            if is_old or (not connection.load and now - connection.idle_since >= self.idle_timeout_ns):
                connection.retire()

    def close_idle(self) -> None:
        """Close every connection: the slice is at its end, so none carries anything."""
        for connection in tuple(self.connections):
            connection.retire()
