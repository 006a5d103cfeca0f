"""Opening connections: resolve, connect, handshake, each step with its own deadline and its own classification."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from cryptography import x509

from soak.load import outcome as classify
from soak.load.outcome import Stage
from soak.model import Outcome
from soak.tasks import spawn

if TYPE_CHECKING:
    from soak.load.engine import Engine
    from soak.load.lane import Lane

_MAX_SERIALS = 256
_MAX_ADDRESSES = 8
_TLS_SHUTDOWN_S = 1.0
"""How long a connection that we close waits for the peer's close_notify; a hung peer must not hold our files."""
_serials: dict[bytes, str] = {}


class Dialed(asyncio.Protocol):
    """A connection of any protocol, as far as it must be brought up and accounted for."""

    __slots__ = (
        "__weakref__",
        "closed_by_us",
        "connected_ns",
        "dial_task",
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
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def start(lane: Lane, connection: Dialed) -> None:
    """Open the connection in a task of its own; its request is sent, or failed, by what comes of it."""
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
    addresses = await _resolve(loop, lane.spec.host, lane.spec.port)
    connection.stage = Stage.CONNECTING
    for left, (family, address) in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
        sock: socket.socket | None = None
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
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
    await loop.create_connection(
        lambda: connection,
        sock=sock,
        ssl=lane.context,
        server_hostname=lane.spec.server_name,
        ssl_handshake_timeout=lane.engine.tls_timeout_s,
        ssl_shutdown_timeout=_TLS_SHUTDOWN_S,
    )


def _discard(sock: socket.socket | None) -> None:
    """Close a socket that no transport owns; one that a transport has taken over has been detached by it."""
    if sock is not None and sock.fileno() >= 0:
        sock.close()


async def _resolve(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[tuple[int, Any]]:
    """Return families and addresses. Names are asked for again at each connect, so that a moved target is followed."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [(info[0], info[4]) for info in infos[:_MAX_ADDRESSES]]
    return [(socket.AF_INET if version == 4 else socket.AF_INET6, (host, port))]


def _failed(lane: Lane, connection: Dialed, error: Exception) -> None:
    stage, connection.stage = connection.stage, Stage.CLOSED
    if stage in (Stage.CLOSED, Stage.BUSY, Stage.IDLE):  # already booked: given up, or lost after it came up
        return
    ended = classify.of_dial_error(stage, error)
    if ended is Outcome.CLIENT_RESOURCE and not isinstance(error, OSError):
        lane.engine.internal_error(error)
    connection.dial_failed(ended, f"{type(error).__name__}: {error}"[:300], monotonic_ns())


def note_tls(engine: Engine, connection: Dialed, now: int) -> None:
    """Note which certificate a handshake showed and whether the session was resumed."""
    assert connection.transport is not None
    tls = connection.transport.get_extra_info("ssl_object")
    if tls is None:
        return
    if tls.session_reused:
        connection.resumed = True
        engine.tls_resumed += 1
    else:
        engine.tls_full += 1
    der = tls.getpeercert(binary_form=True)
    if der:
        connection.serial = serial = serial_of(der)
        engine.see(engine.serials, serial.encode(), now)


def serial_of(der: bytes) -> str:
    """Return a certificate's serial in lower-case hex. Cached: a run sees few certificates and many handshakes."""
    serial = _serials.get(der)
    if serial is None:
        if len(_serials) >= _MAX_SERIALS:
            _serials.clear()
        serial = _serials[der] = f"{x509.load_der_x509_certificate(der).serial_number:x}"
    return serial
