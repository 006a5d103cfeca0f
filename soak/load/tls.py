"""TLS over any stream transport, by OpenSSL's memory buffers: what the event loop's own TLS cannot do is offer a session.

``TlsLayer`` is a protocol to the transport below and a transport to the protocol above. It holds no data of its own:
what comes in is decrypted and handed up at once, what goes out waits in the transport below. It ends in order
(close_notify, RFC 8446 section 6.1) and tells a cut from an end: without the peer's close_notify the connection is lost
with an error, so that a body that ends with the connection is not taken for whole (RFC 9112 section 9.8).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from enum import IntEnum
from typing import Any, cast

from soak.load.libssl import TlsSession, offer, session_of

_RECORD_BYTES = 16_384
"""Most plain text in one record (RFC 8446 section 5.1); a read returns at most one."""
_MOST_UNASKED_BYTES = 256 * 1024
"""What the peer may make us send (key updates, alerts) without reading it, before we end the connection."""
CLOSE_TIMEOUT_S = 1.0
"""How long a connection that we close waits for the peer's close_notify; a hung peer must not hold our files."""

Keep = Callable[[TlsSession | None, str], None]
"""Takes the newest session of a connection that ends in order, and the protocol version."""


class _Stage(IntEnum):
    HANDSHAKE = 0
    OPEN = 1
    CLOSING = 2
    """Our close_notify is sent; what still comes is of no interest but for the peer's."""
    CLOSED = 3


class TlsLayer(asyncio.Protocol, asyncio.Transport):
    """The client's side of one TLS connection.

    ``above.connection_made`` is called after a handshake that succeeded, ``above.connection_lost`` once after that.
    ``up`` is done when the handshake is, or carries why it failed: ``ssl.SSLError``, ``TimeoutError`` after
    ``timeout_s`` seconds, or another ``OSError``. A ``session`` is offered; ``resumed`` says whether it was taken.
    ``keep`` is not called when the connection is aborted or cut: such a session must not be resumed (RFC 5246 section 7.2.2).
    """

    def __init__(
        self,
        above: asyncio.Protocol,
        context: ssl.SSLContext,
        server_name: str,
        *,
        timeout_s: float,
        session: TlsSession | None = None,
        keep: Keep | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.up: asyncio.Future[None] = loop.create_future()
        self._above = above
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        if session is not None:
            offer(self._tls, session)
        self._keep = keep
        self._stage = _Stage.HANDSHAKE
        self._below: asyncio.Transport | None = None
        self._error: Exception | None = None
        self._asked_bytes = 0
        self._is_known_above = False
        self._loop = loop
        self._timer = loop.call_later(timeout_s, self._too_late, timeout_s)

    @property
    def resumed(self) -> bool:
        """Whether the peer took the session that was offered, so that no certificate was shown or verified."""
        return bool(self._tls.session_reused)

    # -- the transport below speaks ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._below = cast("asyncio.Transport", transport)  # uvloop's is one by shape, not by class
        if self._stage is _Stage.CLOSED:
            self._below.abort()
            return
        self._advance()

    def data_received(self, data: bytes) -> None:
        """Decrypt what came."""
        if self._stage is not _Stage.CLOSED:
            self._incoming.write(data)
            self._advance()

    def eof_received(self) -> bool:
        """Tell an end from a cut; the transport below then closes."""
        if self._stage is _Stage.HANDSHAKE:
            self._break(ConnectionResetError("the peer closed the connection during the handshake"))
        elif self._stage is _Stage.OPEN:
            self._break(ConnectionResetError("the peer closed the connection without close_notify"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell above, or the handshake's waiter."""
        self._stage = _Stage.CLOSED
        self._timer.cancel()
        self._below = None
        error = self._error or exc
        self._fail_handshake(error or ConnectionResetError("the connection was lost during the handshake"))
        if self._is_known_above:
            self._is_known_above = False
            self._above.connection_lost(error)

    # -- the engine of TLS ---------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Go as far as what came allows, then send what that made necessary."""
        try:
            if self._stage is _Stage.HANDSHAKE:
                self._tls.do_handshake()
                self._come_up()
            if self._stage is _Stage.OPEN:
                self._read()
            if self._stage is _Stage.CLOSING:
                self._tls.unwrap()
                self._close_below()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._break(error)
            return
        self._flush()
        if self._below is not None and self._below.get_write_buffer_size() > (
            _MOST_UNASKED_BYTES + self._asked_bytes
        ):
            self._break(ConnectionResetError("the peer asks for TLS answers that it does not read"))
            self.abort()

    def _come_up(self) -> None:
        self._stage = _Stage.OPEN
        self._timer.cancel()
        self._is_known_above = True
        if not self.up.done():
            self.up.set_result(None)
        self._above.connection_made(self)

    def _read(self) -> None:
        read, above = self._tls.read, self._above
        while self._stage is _Stage.OPEN:
            data = read(_RECORD_BYTES)
            if not data:  # the peer's close_notify: it sends no more; neither do we
                above.eof_received()
                self.close()
                return
            above.data_received(data)

    def _flush(self) -> None:
        if self._outgoing.pending and self._below is not None and not self._below.is_closing():
            self._below.write(self._outgoing.read())

    def _break(self, error: Exception) -> None:
        """End because of an error: send the alert that it made, if any, and wait for nothing else."""
        if self._stage is _Stage.OPEN:
            self._above.eof_received()
        if self._stage is not _Stage.CLOSING:  # once we are closing, nothing is wrong for anybody
            self._error = self._error or error
        self._stage = _Stage.CLOSED
        self._flush()
        self._fail_handshake(error)
        self._close_below()

    def _fail_handshake(self, error: Exception) -> None:
        if not self.up.done():
            self.up.set_exception(error)
            self.up.exception()  # a dial that was cancelled will not ask: that is no error of the event loop

    def _close_below(self) -> None:
        """Close once what is written has gone; at once when that takes too long."""
        self._timer.cancel()
        self._stage = _Stage.CLOSED
        if self._below is not None:
            self._below.close()
            if self._below is not None and self._below.get_write_buffer_size():
                self._timer = self._loop.call_later(CLOSE_TIMEOUT_S, self.abort)

    def _too_late(self, timeout_s: float) -> None:
        self._fail_handshake(TimeoutError(f"the TLS handshake took longer than {timeout_s:g} s"))
        self.abort()

    # -- a transport to the protocol above -----------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Encrypt and send; what is written to a connection that is closing is dropped, as every transport does."""
        if self._stage is not _Stage.OPEN:
            return
        try:
            left = memoryview(data)
            while left:
                left = left[self._tls.write(left) :]
        except ssl.SSLError as error:
            self._break(error)
            return
        self._asked_bytes += len(data)
        self._flush()

    def close(self) -> None:
        """End in order: hand over the session, say close_notify, wait for the peer's, but not for long."""
        if self._stage is _Stage.HANDSHAKE:
            self.abort()
        if self._stage is not _Stage.OPEN:
            return
        if self._keep is not None:
            self._keep(session_of(self._tls), self._tls.version() or "")
        self._stage = _Stage.CLOSING
        self._timer = self._loop.call_later(CLOSE_TIMEOUT_S, self.abort)
        try:
            self._tls.unwrap()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError:  # nothing to say goodbye to
            pass
        self._flush()
        self._close_below()

    def abort(self) -> None:
        """Close at once, without a word."""
        self._stage = _Stage.CLOSED
        self._timer.cancel()
        self._fail_handshake(ConnectionAbortedError("the connection was given up during the handshake"))
        if self._below is not None:
            self._below.abort()

    def is_closing(self) -> bool:
        """Whether writing is over."""
        return self._stage > _Stage.OPEN

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the transport below has not sent yet."""
        return 0 if self._below is None else self._below.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return ``ssl_object``, or what the transport below knows."""
        if name == "ssl_object":
            return self._tls
        return default if self._below is None else self._below.get_extra_info(name, default)
