"""Opening connections: resolve, connect, handshake, each step with its own deadline and its own classification."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from abc import abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from cryptography import x509

from soak.load import outcome as classify
from soak.load.outcome import Stage
from soak.load.sessions import Attempt
from soak.load.tls import CLOSE_TIMEOUT_S, TlsLayer
from soak.model import Outcome
from soak.tasks import spawn

if TYPE_CHECKING:
    from soak.load.engine import Engine
    from soak.load.lane import Lane

_MAX_SERIALS = 256
_MAX_ADDRESSES = 8
_BIND_ADDRESS_NO_PORT = 24
"""IP_BIND_ADDRESS_NO_PORT of linux/in.h: bind an address and leave the port to connect(), where only the whole four-tuple must
be free. Python has no name for it before 3.13."""
_serials: dict[bytes, str] = {}


class Dialed(asyncio.Protocol):
    """A connection of any protocol, as far as it must be brought up and accounted for."""

    __slots__ = (
        "__weakref__",
        "attempt",
        "closed_by_us",
        "connected_ns",
        "dial_task",
        "dialed_ns",
        "expires_ns",
        "id",
        "resumed",
        "serial",
        "stage",
        "transport",
    )

    id: int
    stage: Stage
    transport: asyncio.Transport | None
    dial_task: asyncio.Task[None] | None
    dialed_ns: int
    """When its connect began, names resolved; 0 until then. Set by ``start``."""
    attempt: Attempt | None
    """To resume a TLS session; None where that is not asked for. Set by ``start``."""
    connected_ns: int
    """When it was usable; 0 until then."""
    expires_ns: int
    """When it is to be retired, where its protocol does that."""
    serial: str
    """Of the certificate that it showed."""
    resumed: bool
    closed_by_us: bool

    @abstractmethod
    def dial_failed(self, ended: Outcome, error: str, now: int) -> None:
        """End every request that waits for it: it did not come up. Its stage is ``CLOSED`` by then."""


def client_context(ca_file: str | None, *, alpn: Sequence[str] = ()) -> ssl.SSLContext:
    """Return a client context that verifies the chain and the name. Without a CA file the system's authorities count.

    ``alpn`` are the protocols to offer in the handshake; whether the peer chose one is for the connection to see.

    Raises ``OSError``, which ``ssl.SSLError`` is, when the file is missing or holds no PEM certificate.
    """
    if ca_file is not None:
        Path(ca_file).open("rb").close()  # its error names the file; OpenSSL's does not
    context = ssl.create_default_context(cafile=ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= (
        ssl.OP_NO_RENEGOTIATION
    )  # a peer that wishes to shake hands anew and anew gets nothing for it
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


class Sources:
    """Many addresses of 127.0.0.0/8 to connect from, in turn, so that ports in TIME_WAIT are never all there are.

    Each of 200 networks in turn, so that neighbours in time have ports of their own to look among; one address comes up
    again after 12.9 million connections. Workers take every n-th. 127.0.0.0/16 is left to those who listen.
    """

    def __init__(self, worker: int, workers: int) -> None:
        self._next = worker
        self._step = workers
        self.told = False

    def take(self) -> str:
        """Return the next address."""
        n = self._next
        self._next += self._step
        return f"127.{1 + n % 200}.{n // 200 % 255}.{1 + n // 51_000 % 254}"

    def bind(self, sock: socket.socket, address: Any, engine: Engine, traffic: str) -> None:
        """Give the socket a source address, if its target is on the loopback network of IPv4; else say so, once."""
        if sock.family == socket.AF_INET and address[0].startswith("127."):
            sock.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
            sock.bind((self.take(), 0))
        elif not self.told:
            self.told = True
            engine.note("load.sources_not_spread", traffic=traffic, target=str(address[0]))


def start(lane: Lane, connection: Dialed) -> None:
    """Open the connection in a task of its own; its request is sent, or failed, by what comes of it."""
    connection.dialed_ns = 0
    connection.attempt = None
    connection.dial_task = spawn(_dial(lane, connection), name="dial")


async def _dial(lane: Lane, connection: Dialed) -> None:
    sock: socket.socket | None = None
    try:
        sock = await _connect(lane, connection)
        await _bring_up(lane, connection, sock)
        if connection.stage in (Stage.CONNECTING, Stage.HANDSHAKING):
            raise ConnectionResetError("the peer closed the connection while it was being set up")  # noqa: TRY301
    except asyncio.CancelledError:
        _discard(sock)
        raise
    except Exception as error:  # noqa: BLE001 -- a request must be booked whatever happens
        _discard(sock)
        _failed(lane, connection, error)
    finally:
        connection.dial_task = None


async def _connect(lane: Lane, connection: Dialed) -> socket.socket:
    """Return a connected socket: of the addresses that the name has, the first that answers."""
    loop = asyncio.get_running_loop()
    host, port = lane.spec.host, lane.spec.port
    addresses = _literal(host, port) or await _resolve(loop, host, port)
    connection.stage = Stage.CONNECTING
    connection.dialed_ns = monotonic_ns()
    for left, (family, address) in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
        sock: socket.socket | None = None
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            if lane.sources is not None:
                lane.sources.bind(sock, address, lane.engine, lane.name)
            await loop.sock_connect(sock, address)
        except BaseException as error:
            _discard(sock)
            if not left or not isinstance(error, OSError) or classify.is_our_fault(error):
                raise
        else:
            return sock
    raise socket.gaierror(socket.EAI_NONAME, f"{lane.spec.host!r} has no address")


async def _bring_up(lane: Lane, connection: Dialed, sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    if lane.context is None:
        await loop.create_connection(lambda: connection, sock=sock)
        return
    connection.stage = Stage.HANDSHAKING
    if lane.sessions is not None:
        connection.attempt = Attempt(lane.sessions, monotonic_ns())
        await _resume(lane, connection, sock, connection.attempt)
        return
    await loop.create_connection(
        lambda: connection,
        sock=sock,
        ssl=lane.context,
        server_hostname=lane.spec.server_name,
        ssl_handshake_timeout=lane.engine.tls_timeout_s,
        ssl_shutdown_timeout=CLOSE_TIMEOUT_S,
    )


async def _resume(lane: Lane, connection: Dialed, sock: socket.socket, attempt: Attempt) -> None:
    """Bring TLS up with a session of an earlier connection: the event loop's own TLS cannot offer one."""
    assert lane.context is not None
    layer = TlsLayer(
        connection,
        lane.context,
        lane.spec.server_name,
        timeout_s=lane.engine.tls_timeout_s,
        session=attempt.offered.session if attempt.offered is not None else None,
        keep=attempt.bring_home,
    )
    try:
        await asyncio.get_running_loop().create_connection(lambda: layer, sock=sock)
        await layer.up
    except BaseException:
        layer.abort()
        raise


def _discard(sock: socket.socket | None) -> None:
    """Close a socket that no transport owns; one that a transport has taken over has been detached by it."""
    if sock is not None and sock.fileno() >= 0:
        sock.close()


@lru_cache(maxsize=64)
def _literal(host: str, port: int) -> list[tuple[int, Any]]:
    """Return family and address of a host that is an address; empty for a name."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return []
    return [(socket.AF_INET if version == 4 else socket.AF_INET6, (host, port))]


async def _resolve(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[tuple[int, Any]]:
    """Return families and addresses of a name. It is asked for again at each connect, so that a moved target is followed."""
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(info[0], info[4]) for info in infos[:_MAX_ADDRESSES]]


def _failed(lane: Lane, connection: Dialed, error: Exception) -> None:
    stage, connection.stage = connection.stage, Stage.CLOSED
    if stage in (Stage.CLOSED, Stage.BUSY, Stage.IDLE):  # already booked: given up, or lost after it came up
        return
    ended = classify.of_dial_error(stage, error)
    if ended is Outcome.CLIENT_RESOURCE and not isinstance(error, OSError):
        lane.engine.internal_error(error)
    connection.dial_failed(ended, f"{type(error).__name__}: {error}"[:300], monotonic_ns())


def note_tls(engine: Engine, connection: Dialed, now: int, *, of_proxy: bool = True) -> None:
    """Note which certificate a handshake showed and whether the session was resumed.

    Through a byte pipe the certificate is the origin's: evidence of whom a request met, no sighting of what the proxy serves.

    In a resumed handshake the server shows no certificate: what OpenSSL tells is the one of the session's first handshake,
    and says nothing of what is served now. So its serial is neither a sighting nor evidence.
    """
    assert connection.transport is not None
    tls = connection.transport.get_extra_info("ssl_object")
    if tls is None:
        return
    if connection.attempt is not None:
        connection.attempt.settle(resumed=tls.session_reused)
    if tls.session_reused:
        connection.resumed = True
        engine.tls_resumed += 1
        return
    engine.tls_full += 1
    der = tls.getpeercert(binary_form=True)
    if der:
        connection.serial = serial = serial_of(der)
        if of_proxy:
            engine.see(engine.serials, serial.encode(), now)


def serial_of(der: bytes) -> str:
    """Return a certificate's serial in lower-case hex. Cached: a run sees few certificates and many handshakes."""
    serial = _serials.get(der)
    if serial is None:
        if len(_serials) >= _MAX_SERIALS:
            _serials.clear()
        serial = _serials[der] = f"{x509.load_der_x509_certificate(der).serial_number:x}"
    return serial
