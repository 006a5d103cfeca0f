"""TLS sessions that a traffic class may resume: a small stock, newest first, of what its own connections brought home.

A TLS 1.3 ticket is used once (RFC 8446 appendix C.4), so each connection takes one and brings one back; the stock grows to
as many as are under way at a time. A TLS 1.2 session may be resumed any number of times, also at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic_ns

from soak.load.libssl import TlsSession

MOST_KEPT = 32
_NS = 1_000_000_000
_SINGLE_USE = "TLSv1.3"
NOTHING_TO_RESUME = "the server gave no session to resume"
REFUSED = "the server did not resume the session that was offered"


@dataclass(frozen=True, slots=True)
class KeptSession:
    """A session in the stock."""

    session: TlsSession
    version: str
    born_ns: int
    """When it was received."""

    @property
    def ends_ns(self) -> int:
        """From when on it is not offered any more."""
        return self.born_ns + self.session.life_s * _NS


class Sessions:
    """The stock of one traffic class of one worker. Instants are nanoseconds of the monotonic clock."""

    def __init__(self) -> None:
        self._kept: list[KeptSession] = []
        self.barren = False
        """Whether the newest connection that ended in order brought no session: this server has none to give."""

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, now: int) -> KeptSession | None:
        """Return the newest session that is still good; a single-use one leaves the stock."""
        kept = self._kept
        while kept:
            newest = kept[-1]
            if now < newest.ends_ns:
                if newest.version == _SINGLE_USE:
                    kept.pop()
                return newest
            kept.pop()  # those beneath may live longer: servers say how long for each
        return None

    def put(
        self, session: TlsSession | None, version: str, now: int, *, offered: KeptSession | None = None
    ) -> None:
        """Take what a connection brought home that ended in order; ``offered`` is the one that it had set out with."""
        self.barren = session is None
        if session is None:
            return
        born_ns = now
        if offered is not None and session.ident == offered.session.ident:
            born_ns = offered.born_ns  # the server gave no new one: the old one, of its old age
        kept = self._kept
        kept[:] = [one for one in kept if one.session.ident != session.ident]
        kept.append(KeptSession(session, version, born_ns))
        del kept[:-MOST_KEPT]

    def refuse(self, refused: KeptSession) -> None:
        """Forget a session that the server did not resume, and all that are not younger: their keys are gone as well.

        Keeping them would count one change of keys again and again, whenever the stock runs low, long after the change.
        """
        self._kept[:] = [one for one in self._kept if one.born_ns > refused.born_ns]


class Attempt:
    """One connection's attempt to resume: what it offers, what came of it, what it brings home."""

    __slots__ = ("_sessions", "offered", "refusal")

    def __init__(self, sessions: Sessions, now: int) -> None:
        self._sessions = sessions
        self.offered = sessions.take(now)
        self.refusal = NOTHING_TO_RESUME if self.offered is None and sessions.barren else ""
        """Why the session was not resumed although it should have been; empty when it was, and when there was none yet."""

    def settle(self, *, resumed: bool) -> None:
        """Note what the handshake came to."""
        if self.offered is not None and not resumed:
            self.refusal = f"{REFUSED} ({self.offered.version})"
            self._sessions.refuse(self.offered)

    def bring_home(self, session: TlsSession | None, version: str) -> None:
        """Put the session of a connection that ended in order into the stock."""
        self._sessions.put(session, version, monotonic_ns(), offered=self.offered)
