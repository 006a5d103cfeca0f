"""Classification: a table that reads as sentences, with every outcome that HTTP/1.1 can end in."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from soak.load import outcome as classify
from soak.load.outcome import STALE_WINDOW_NS, Stage
from soak.model import Outcome

O = Outcome  # noqa: E741 -- the table is the point
UP, SHAKE = Stage.CONNECTING, Stage.HANDSHAKING

DIALS = [
    ("a name that does not resolve", Stage.RESOLVING, socket.gaierror(-2, "no such name"), O.DNS),
    ("a name that cannot be encoded", Stage.RESOLVING, UnicodeError("label too long"), O.DNS),
    ("nobody listens", UP, OSError(errno.ECONNREFUSED, ""), O.CONNECT_REFUSED),
    ("no route", UP, OSError(errno.EHOSTUNREACH, ""), O.CONNECT_UNREACHABLE),
    ("a firewall says no", UP, OSError(errno.EPERM, ""), O.CONNECT_UNREACHABLE),
    ("the kernel gave up", UP, OSError(errno.ETIMEDOUT, ""), O.CONNECT_TIMEOUT),
    ("a reset while connecting", UP, OSError(errno.ECONNRESET, ""), O.CONNECT_RESET),
    ("no files left", UP, OSError(errno.EMFILE, ""), O.CLIENT_RESOURCE),
    ("no ports left", UP, OSError(errno.EADDRNOTAVAIL, ""), O.CLIENT_RESOURCE),
    ("no buffers left", UP, OSError(errno.ENOBUFS, ""), O.CLIENT_RESOURCE),
    ("a bug of ours while connecting", UP, ValueError("bug"), O.CLIENT_RESOURCE),
    ("an unknown authority", SHAKE, ssl.SSLCertVerificationError(1, "self-signed"), O.TLS_CERTIFICATE),
    ("an alert", SHAKE, ssl.SSLError(1, "alert"), O.TLS_HANDSHAKE),
    ("a reset in the handshake", SHAKE, ConnectionResetError(errno.ECONNRESET, ""), O.TLS_HANDSHAKE),
    ("a bare timeout in the handshake", SHAKE, TimeoutError(), O.TLS_TIMEOUT),
    (
        "the loop's handshake timeout",
        SHAKE,
        ConnectionAbortedError("SSL handshake is taking longer than 5 seconds"),
        O.TLS_TIMEOUT,
    ),
    ("no memory in the handshake", SHAKE, OSError(errno.ENOMEM, ""), O.CLIENT_RESOURCE),
]


@pytest.mark.parametrize(("what", "stage", "error", "expected"), DIALS, ids=[row[0] for row in DIALS])
def test_a_dial_that_failed(what: str, stage: Stage, error: Exception, expected: Outcome) -> None:
    """A connection that did not come up is classified by its stage and its error."""
    assert expected is classify.of_dial_error(stage, error)


LOST = [
    ("a fresh connection closed without a byte", False, False, 0, O.CUT_BEFORE_RESPONSE),
    ("a reused one closed at once", True, False, 0, O.STALE_REUSE),
    ("a reused one closed at the window's edge", True, False, STALE_WINDOW_NS, O.STALE_REUSE),
    ("a reused one closed after it", True, False, STALE_WINDOW_NS + 1, O.CUT_BEFORE_RESPONSE),
    ("a fresh one closed mid-answer", False, True, 0, O.CUT_MID_RESPONSE),
    ("a reused one closed mid-answer", True, True, 0, O.CUT_MID_RESPONSE),
]


@pytest.mark.parametrize(
    ("what", "reused", "first_byte", "since", "expected"), LOST, ids=[r[0] for r in LOST]
)
def test_a_connection_that_was_lost(
    what: str, reused: bool, first_byte: bool, since: int, expected: Outcome
) -> None:
    """Only a reused connection that ends soon and without a byte is stale_reuse."""
    assert expected is classify.of_lost_connection(reused=reused, first_byte=first_byte, since_sent_ns=since)


LATE = [
    ("while resolving", Stage.RESOLVING, False, O.DNS),
    ("while connecting", Stage.CONNECTING, False, O.CONNECT_TIMEOUT),
    ("while shaking hands", Stage.HANDSHAKING, False, O.TLS_TIMEOUT),
    ("before the first byte", Stage.BUSY, False, O.RESPONSE_TIMEOUT),
    ("after the first byte", Stage.BUSY, True, O.BODY_TIMEOUT),
]


@pytest.mark.parametrize(("when", "stage", "first_byte", "expected"), LATE, ids=[r[0] for r in LATE])
def test_a_deadline_that_passed(when: str, stage: Stage, first_byte: bool, expected: Outcome) -> None:
    """The stage says which deadline it was."""
    assert expected is classify.of_timeout(stage, first_byte=first_byte)


ANSWERS = [
    ("as promised", 200, 200, True, True, O.OK),
    ("an expected error is as promised", 404, 404, True, True, O.OK),
    ("not found", 404, 200, False, False, O.STATUS_4XX),
    ("unavailable", 503, 200, False, False, O.STATUS_5XX),
    ("a redirect", 302, 200, True, True, O.STATUS_UNEXPECTED),
    ("another success", 204, 200, True, True, O.STATUS_UNEXPECTED),
    ("a success where an error was expected", 200, 404, True, True, O.STATUS_UNEXPECTED),
    ("a status beyond all classes", 999, 200, True, True, O.STATUS_UNEXPECTED),
    ("somebody else's answer", 200, 200, False, True, O.IDENTITY_MISMATCH),
    ("somebody else's answer, and broken", 200, 200, False, False, O.IDENTITY_MISMATCH),
    ("the right answer, but broken", 200, 200, True, False, O.BODY_MISMATCH),
]


@pytest.mark.parametrize(
    ("what", "status", "wanted", "identity_ok", "body_ok", "expected"), ANSWERS, ids=[r[0] for r in ANSWERS]
)
def test_a_whole_answer(
    *, what: str, status: int, wanted: int, identity_ok: bool, body_ok: bool, expected: Outcome
) -> None:
    """Status first, then whose answer it is, then whether it is whole."""
    got = classify.of_answer(status=status, expected_status=wanted, identity_ok=identity_ok, body_ok=body_ok)
    assert expected is got


def test_every_outcome_of_http1_is_in_these_tables() -> None:
    """Nothing in the closed enum is left out, but what HTTP/2, the parser or a connection alone can say."""
    tables = [row[-1] for table in (DIALS, LOST, LATE, ANSWERS) for row in table]
    assert set(Outcome) - {O.H2_GOAWAY, O.H2_REFUSED_STREAM, O.PROTOCOL_ERROR, O.TLS_NOT_RESUMED} == set(
        tables
    )
