"""How a request ended: the one place that classifies. Pure functions from what was observed to one ``Outcome``."""

from __future__ import annotations

import errno
import socket
import ssl
from enum import IntEnum

from soak.model import Outcome


class Stage(IntEnum):
    """How far a connection has come."""

    RESOLVING = 0
    CONNECTING = 1
    HANDSHAKING = 2
    BUSY = 3
    """A request is in flight."""
    IDLE = 4
    CLOSED = 5


STALE_WINDOW_NS = 1_000_000_000
"""A reused connection that closes without an answer this soon after the send was closed before the peer saw the request.

Later than that, the peer had the request and gave up on it: ``cut_before_response``."""

_OUR_FAULT = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM, errno.EAGAIN}
)
_UNREACHABLE = frozenset(
    {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.EACCES, errno.EPERM}
)


def is_our_fault(error: BaseException) -> bool:
    """Whether this machine ran out of files, ports or buffers."""
    return isinstance(error, OSError) and error.errno in _OUR_FAULT


def of_dial_error(stage: Stage, error: BaseException) -> Outcome:
    """Classify why a connection did not come up. What is no error of the network is a fault of our own."""
    if isinstance(error, socket.gaierror | UnicodeError):
        return Outcome.DNS
    if not isinstance(error, OSError):
        return Outcome.CLIENT_RESOURCE
    return of_handshake_error(error) if stage is Stage.HANDSHAKING else of_connect_error(error)


def of_connect_error(error: BaseException) -> Outcome:
    """Classify a failed TCP connect."""
    if is_our_fault(error):
        return Outcome.CLIENT_RESOURCE
    code = error.errno if isinstance(error, OSError) else None
    if code == errno.ECONNREFUSED:
        return Outcome.CONNECT_REFUSED
    if code in _UNREACHABLE:
        return Outcome.CONNECT_UNREACHABLE
    if code == errno.ETIMEDOUT or isinstance(error, TimeoutError):
        return Outcome.CONNECT_TIMEOUT
    return Outcome.CONNECT_RESET


def of_handshake_error(error: BaseException) -> Outcome:
    """Classify a failed TLS handshake. A certificate that does not verify is its own class."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Outcome.TLS_CERTIFICATE
    if isinstance(error, TimeoutError) or (
        isinstance(error, ConnectionAbortedError) and "longer than" in str(error)
    ):
        return Outcome.TLS_TIMEOUT
    if is_our_fault(error):
        return Outcome.CLIENT_RESOURCE
    return Outcome.TLS_HANDSHAKE


def of_lost_connection(*, reused: bool, first_byte: bool, since_sent_ns: int) -> Outcome:
    """Classify a connection that ended while a request was in flight, before the answer was whole."""
    if first_byte:
        return Outcome.CUT_MID_RESPONSE
    if reused and since_sent_ns <= STALE_WINDOW_NS:
        return Outcome.STALE_REUSE
    return Outcome.CUT_BEFORE_RESPONSE


def of_timeout(stage: Stage, *, first_byte: bool) -> Outcome:
    """Classify a deadline that passed."""
    if stage is Stage.RESOLVING:
        return Outcome.DNS
    if stage is Stage.CONNECTING:
        return Outcome.CONNECT_TIMEOUT
    if stage is Stage.HANDSHAKING:
        return Outcome.TLS_TIMEOUT
    return Outcome.BODY_TIMEOUT if first_byte else Outcome.RESPONSE_TIMEOUT


def of_answer(*, status: int, expected_status: int, identity_ok: bool, body_ok: bool) -> Outcome:
    """Classify a whole answer. A wrong status says most, then whose answer it is, then whether it is whole.

    An error answer is often made by the proxy itself, which knows no request id, so its status goes first.
    """
    if status != expected_status:
        if 400 <= status < 500:
            return Outcome.STATUS_4XX
        if 500 <= status < 600:
            return Outcome.STATUS_5XX
        return Outcome.STATUS_UNEXPECTED
    if not identity_ok:
        return Outcome.IDENTITY_MISMATCH
    if not body_ok:
        return Outcome.BODY_MISMATCH
    return Outcome.OK
