"""A traffic class over HTTP/1.1: a pool of idle connections, newest first, and a new one when none is idle."""

from __future__ import annotations

import platform
import ssl
from typing import TYPE_CHECKING

from soak.load import dial, libssl
from soak.load.http1 import Http1Connection
from soak.load.known import KnownAnswers
from soak.load.lane import Lane
from soak.load.outcome import Stage
from soak.load.pacer import connections_before
from soak.load.sessions import Sessions
from soak.load.traffic import ClassSpec, LoadSlice

if TYPE_CHECKING:
    from soak.load.engine import Engine

_IDLE = Stage.IDLE
"""Of this module: on Python 3.11 to ask an enumeration costs ten times as much."""


class Http1Lane(Lane):
    """HTTP/1.1: one request at a time on each connection."""

    connection_type: type[Http1Connection] = Http1Connection

    def __init__(
        self, engine: Engine, spec: ClassSpec, load: LoadSlice, number: int, context: ssl.SSLContext | None
    ) -> None:
        super().__init__(engine, spec, load, number, context)
        self.idle: list[Http1Connection] = []
        alike = (
            self.connection_type is Http1Connection
            and type(self).compose is Lane.compose
            and type(self).judge is Lane.judge
        )
        self.known = KnownAnswers() if self.keep and alike else None
        """Good answers that need no parsing any more; None where one request expects another answer than the next."""
        if spec.connection == "resume":
            self.sessions = Sessions()
            if libssl.LEAKS:
                engine.note("load.sessions_leak", traffic=spec.name, python=platform.python_version())
        if spec.spread_sources:
            self.sources = dial.Sources(load.worker, load.workers)

    def dispatch(self, request_id: bytes, due: int, now: int) -> None:
        """Send on the connection that idles for the shortest time; on a new one if there is none."""
        engine = self.engine
        idle = self.idle
        while idle:
            connection = idle.pop()
            if connection.stage is _IDLE:
                if now >= connection.expires_ns:
                    connection.close()
                    continue
                connection.assign(request_id, due, now, self.row.scope)
                engine.busy.add(connection)
                if connection.requests:
                    engine.reused += 1
                connection.write_request(now)
                return
        connection = self.connection_type(self, engine.next_connection())
        connection.assign(request_id, due, now, self.row.scope)
        engine.busy.add(connection)
        dial.start(self, connection)

    def tell_seen(self) -> None:
        """Tell which origins and generations the answers named that were known."""
        if self.known is None:
            return
        engine = self.engine
        for answer in self.known.take():
            first, last, count = answer.first_ns, answer.last_ns, answer.count
            answer.count = 0
            if answer.generation:
                engine.see_many(engine.generations, answer.generation, first, last, count)
            if answer.origin:
                engine.see_many(engine.origins, answer.origin, first, last, count)

    def warm_up(self) -> None:
        """Open connections where slots follow each other faster than connections can be made.

        Otherwise the first slots would each dial, fall behind by that, and so make the next ones dial too.
        """
        if not self.keep:
            return
        for _ in range(min(connections_before(self.spec.rate / self.workers), self.engine.max_in_flight)):
            dial.start(self, self.connection_type(self, self.engine.next_connection()))

    @property
    def idle_connections(self) -> int:
        """Connections in the pool."""
        return len(self.idle)

    def tidy(self, now: int) -> None:
        """Drop closed connections from the idle list; close those that idle too long or are too old."""
        if self.known is not None:
            self.known.rest()
        kept: list[Http1Connection] = []
        for connection in self.idle:
            if connection.stage is not _IDLE:
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
