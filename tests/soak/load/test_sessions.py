"""The stock of TLS sessions: what is taken, how often, for how long, and what a refusal takes with it."""

from __future__ import annotations

import pytest

from soak.load.libssl import TlsSession
from soak.load.sessions import MOST_KEPT, NOTHING_TO_RESUME, Attempt, KeptSession, Sessions

NS = 1_000_000_000
V13, V12 = "TLSv1.3", "TLSv1.2"


def session(ident: bytes, life_s: int = 300) -> TlsSession:
    """A session of no connection: the stock looks at its name and its life alone."""
    return TlsSession(None, ident, life_s)  # type: ignore[arg-type]  # no handle: it is never offered


def stocked(*idents: bytes, version: str = V13) -> Sessions:
    """Sessions received at seconds 1, 2, 3, ..."""
    sessions = Sessions()
    for second, ident in enumerate(idents, 1):
        sessions.put(session(ident), version, second * NS)
    return sessions


def ident_of(kept: KeptSession | None) -> bytes | None:
    return None if kept is None else kept.session.ident


def test_the_newest_ticket_goes_first_and_once() -> None:
    """RFC 8446 appendix C.4: a ticket is used for one connection."""
    sessions = stocked(b"a", b"b")
    assert [b"b", b"a", None] == [ident_of(sessions.take(3 * NS)) for _ in range(3)]


def test_a_session_of_tls_1_2_may_be_offered_again() -> None:
    """Also while another connection is resuming it."""
    sessions = stocked(b"a", version=V12)
    assert [b"a", b"a"] == [ident_of(sessions.take(2 * NS)) for _ in range(2)]


def test_a_session_is_not_offered_past_its_life() -> None:
    """The client would not send it, and that would look like a refusal. What lives longer stays."""
    sessions = Sessions()
    sessions.put(session(b"long", 300), V13, NS)
    sessions.put(session(b"short", 10), V13, NS)
    assert b"long" == ident_of(sessions.take(11 * NS))
    assert (None, 0) == (ident_of(sessions.take(11 * NS)), len(sessions))


@pytest.mark.parametrize(("at_s", "expected"), [(10, b"a"), (11, None)])
def test_life_counts_from_receipt(at_s: int, expected: bytes | None) -> None:
    """And its last nanosecond is not part of it."""
    sessions = Sessions()
    sessions.put(session(b"a", 10), V12, NS)
    assert expected == ident_of(sessions.take(at_s * NS))


def test_a_session_that_comes_home_unchanged_keeps_its_age() -> None:
    """A TLS 1.2 session that is resumed again and again does not live for ever."""
    sessions = Sessions()
    sessions.put(session(b"a", 10), V12, 0)
    offered = sessions.take(9 * NS)
    sessions.put(session(b"a", 10), V12, 9 * NS, offered=offered)
    assert 1 == len(sessions)
    assert None is sessions.take(10 * NS)


def test_the_stock_is_bounded_and_the_oldest_go() -> None:
    """However many are under way at a time."""
    names = [b"%d" % i for i in range(MOST_KEPT + 5)]
    sessions = stocked(*names)
    assert MOST_KEPT == len(sessions)
    taken = [ident_of(sessions.take(100 * NS)) for _ in range(MOST_KEPT)]
    assert names[:4:-1] == taken


def test_a_refused_session_takes_the_older_ones_with_it() -> None:
    """Their keys are gone too: one change of keys is counted once, not whenever the stock runs low."""
    sessions = stocked(b"a", b"b", b"c")
    attempt = Attempt(sessions, 4 * NS)
    sessions.put(session(b"new"), V13, 5 * NS)
    attempt.settle(resumed=False)
    assert "did not resume the session that was offered (TLSv1.3)" in attempt.refusal
    assert [b"new", None] == [ident_of(sessions.take(6 * NS)) for _ in range(2)]


def test_a_resumed_session_is_no_refusal() -> None:
    """And the rest of the stock stays."""
    sessions = stocked(b"a", b"b")
    attempt = Attempt(sessions, 3 * NS)
    attempt.settle(resumed=True)
    assert ("", 1) == (attempt.refusal, len(sessions))


def test_the_first_of_all_has_nothing_to_offer_and_that_is_well() -> None:
    """So have those that begin before the first ended."""
    attempt = Attempt(Sessions(), 0)
    attempt.settle(resumed=False)
    assert (None, "") == (attempt.offered, attempt.refusal)


def test_a_server_that_gives_no_sessions_refuses_all_but_the_first() -> None:
    """A class that resumes sessions must not be green when not one is."""
    sessions = Sessions()
    Attempt(sessions, 0).bring_home(None, V13)
    attempt = Attempt(sessions, 1)
    attempt.settle(resumed=False)
    assert NOTHING_TO_RESUME == attempt.refusal
    attempt.bring_home(session(b"after all"), V13)
    assert "" == Attempt(sessions, 2).refusal
