"""A load engine in this process and hostile peers on loopback: what the tests of the engine stand on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from time import monotonic_ns
from typing import Any, Self, TypeVar

import uvloop

from soak.load.engine import Engine
from soak.load.pacer import slots_due_before
from soak.load.traffic import ClassSpec, LoadSlice, pattern
from soak.measure.ledger import Ledger
from soak.measure.window import WorkerReport, from_line, to_line
from soak.model import Outcome

BODY = pattern(16)
NS = 1_000_000_000
T = TypeVar("T")
UNHURRIED_NS = 10_000_000


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.requests = 0

    async def request(self) -> bytes:
        """Read a request whole; return its id. Raises ``IncompleteReadError`` at the end."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head[:-4].split(b"\r\n")[1:])
        await self.reader.readexactly(int(fields.get(b"content-length", b"0")))
        self.requests += 1
        return fields[b"x-soak-id"]

    async def send(self, data: bytes) -> None:
        if self.writer.is_closing():  # uvloop's transport raises RuntimeError instead
            raise ConnectionResetError
        self.writer.write(data)
        await self.writer.drain()

    async def hang(self) -> None:
        """Say nothing until the client is gone."""
        while await self.reader.read(65_536):
            pass
        raise EOFError

    def reset(self) -> None:
        """Close with RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Behaviour = Callable[[Peer], Awaitable[None]]


def answer(
    request_id: bytes,
    body: bytes = BODY,
    *,
    status: str = "200 OK",
    length: int | None = None,
    headers: bytes = b"",
) -> bytes:
    """A good answer, or one that is wrong in the way asked for."""
    n = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Length: {n}\r\n".encode()
    return head + b"X-Soak-Id: " + request_id + b"\r\n" + headers + b"\r\n" + body


async def well_behaved(peer: Peer) -> None:
    """Answer each request as promised."""
    while True:
        await peer.send(answer(await peer.request()))


@dataclass
class Server:
    """A listening server whose connections all behave alike."""

    behaviour: Behaviour
    tls: ssl.SSLContext | None = None
    port: int = 0
    listener: socket.socket | None = None
    """A bound socket to listen on, in place of the port."""
    accepted: int = 0
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        where: dict[str, Any] = (
            {"host": "127.0.0.1", "port": self.port} if self.listener is None else {"sock": self.listener}
        )
        self._server = await asyncio.start_server(self._serve, ssl=self.tls, backlog=1024, **where)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.add(writer)
        try:
            await self.behaviour(Peer(reader, writer))
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._server.wait_closed()


def spec(port: int, **changes: Any) -> ClassSpec:
    """One class on loopback that expects ``BODY`` and its own id."""
    base = ClassSpec("c", 40, "127.0.0.1", port, f"127.0.0.1:{port}", response_bytes=len(BODY))
    return replace(base, **changes)


def slice_of(*classes: ClassSpec, **changes: Any) -> LoadSlice:
    """A quarter of a second of load that starts in 20 ms, with deadlines that only a hang reaches."""
    base = LoadSlice(
        worker=0,
        workers=1,
        t0_ns=monotonic_ns() + 20_000_000,
        seconds=0.25,
        seed=1,
        classes=classes,
        connect_timeout_s=10.0,
        tls_timeout_s=10.0,
        response_timeout_s=10.0,
        body_timeout_s=10.0,
        max_lag_s=10.0,  # a noisy machine must not turn slots into missed ones
        supervised=False,
    )
    return replace(base, **changes)


@dataclass
class Result:
    """All reports of a run, checked."""

    load: LoadSlice
    reports: list[WorkerReport]
    errors: list[dict[str, Any]]

    @property
    def outcomes(self) -> Counter[Outcome]:
        out: Counter[Outcome] = Counter()
        for report in self.reports:
            for window in report.windows:
                out.update(window.outcomes)
        return out

    def total(self, what: str) -> int:
        """Sum of a window's field over the run."""
        return sum(getattr(w, what) for r in self.reports for w in r.windows)

    def connections(self, what: str) -> int:
        return sum(getattr(r.connections, what) for r in self.reports)

    @property
    def notes(self) -> list[str]:
        return [str(n["name"]) for r in self.reports for n in r.notes]

    @property
    def evidence(self) -> list[Any]:
        return [e for r in self.reports for e in r.evidence]

    def check(self) -> Result:
        """Assert what must hold whatever happened."""
        assert [] == self.errors, self.errors
        assert "load.internal_error" not in self.notes
        check_identities(self.reports)
        assert [False] * (len(self.reports) - 1) + [True] == [r.final for r in self.reports]
        assert {0} == {w.in_flight for w in self.reports[-1].windows}
        scheduled = sum(slots_due_before(c.rate, int(self.load.seconds * NS)) for c in self.load.classes)
        assert scheduled == self.total("scheduled")
        assert self.total("sent") == sum(self.outcomes.values())
        check_connections(self.reports)
        return self


def check_identities(reports: list[WorkerReport]) -> None:
    """Both identities, for every row and cumulatively at every second; seconds follow each other; the wire is lossless."""
    ledger = Ledger()
    done: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    seconds = [r.second for r in reports]
    assert seconds == list(range(seconds[0], seconds[0] + len(seconds)))
    for report in reports:
        assert report == replace(
            from_line(to_line(report)), notes=report.notes, windows=report.windows, evidence=report.evidence
        )
        for w in report.windows:
            assert w.scheduled == w.sent + w.dropped + w.missed
            assert w.second == report.second
            assert w.latency.count == w.service.count == sum(w.outcomes.values())
            assert w.lag.count == w.sent
            sent[w.traffic] += w.sent
            done[w.traffic] += sum(w.outcomes.values())
        for w in report.windows:
            assert sent[w.traffic] == done[w.traffic] + w.in_flight
        ledger.add(replace(report, windows=[replace(w, scope=0) for w in report.windows]))
        assert [] == ledger.violations()


def check_connections(reports: list[WorkerReport]) -> None:
    """At every second what was opened is closed by somebody or still open."""
    opened = closed = 0
    for r in reports:
        opened += r.connections.opened
        closed += r.connections.closed_by_peer + r.connections.closed_by_us
        assert opened == closed + r.open_connections
        assert r.open_connections >= 0


async def drive(
    load: LoadSlice, during: Callable[[Engine], Coroutine[Any, Any, None]] | None = None
) -> Result:
    """Run a slice to its end in this loop; ``during`` runs beside it."""
    errors: list[dict[str, Any]] = []
    reports: list[WorkerReport] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    engine = Engine(load, reports.append)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        if during is not None:
            group.create_task(
                during(engine)
            )  # its first step comes before the first slot, however late both are
        group.create_task(engine.run())
    for _ in range(3):
        await asyncio.sleep(0)
    return Result(load, reports, list(errors))


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run on the loop that the worker uses."""
    return uvloop.run(main)


def unhurried(attempt: Callable[[], Result]) -> Result:
    """Return a run in which each slot was sent when it was due, or the fifth attempt.

    A process that stood still for a while sends several at once, and meets at once what the peer did meanwhile. Tests of what
    comes between two requests ask for runs in which there was a between.
    """
    for _ in range(4):
        result = attempt()
        if max(w.lag.max_ns for r in result.reports for w in r.windows) < UNHURRIED_NS:
            return result
    return attempt()


async def against(server: Server, load: Callable[[int], LoadSlice]) -> Result:
    """Run a slice against a server."""
    async with server:
        return (await drive(load(server.port))).check()
