"""The vocabulary of a run as types: outcomes, phases, scopes, and the records that flow from load to verdict.

Every record is frozen with slots; consumers are folds. A term here means what ``docs/ARCHITECTURE.md`` says, everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """How a request ended. Closed: classified once, in ``soak.load.outcome``."""

    OK = "ok"
    STATUS_4XX = "status_4xx"
    STATUS_5XX = "status_5xx"
    STATUS_UNEXPECTED = "status_unexpected"
    BODY_MISMATCH = "body_mismatch"
    IDENTITY_MISMATCH = "identity_mismatch"
    DNS = "dns"
    CONNECT_REFUSED = "connect_refused"
    CONNECT_RESET = "connect_reset"
    CONNECT_TIMEOUT = "connect_timeout"
    CONNECT_UNREACHABLE = "connect_unreachable"
    TLS_HANDSHAKE = "tls_handshake"
    TLS_CERTIFICATE = "tls_certificate"
    TLS_TIMEOUT = "tls_timeout"
    TLS_NOT_RESUMED = "tls_not_resumed"
    """Answered as promised, but after a full handshake: the server did not resume a session that it had given."""
    STALE_REUSE = "stale_reuse"
    CUT_BEFORE_RESPONSE = "cut_before_response"
    CUT_MID_RESPONSE = "cut_mid_response"
    RESPONSE_TIMEOUT = "response_timeout"
    BODY_TIMEOUT = "body_timeout"
    PROTOCOL_ERROR = "protocol_error"
    H2_GOAWAY = "h2_goaway"
    H2_REFUSED_STREAM = "h2_refused_stream"
    CLIENT_RESOURCE = "client_resource"
    """EMFILE, EADDRNOTAVAIL, ENOBUFS: our own fault; makes the run invalid, never fails the proxy."""

    @property
    def is_failure(self) -> bool:
        """Whether the request did not end as promised."""
        return self is not Outcome.OK

    @property
    def is_proxy_failure(self) -> bool:
        """A failure that is neither our own (client_resource) nor one of two that have budgets of their own.

        These are the stale_reuse race, and tls_not_resumed, where a client pays for a handshake and loses nothing else.
        """
        return self not in (
            Outcome.OK,
            Outcome.CLIENT_RESOURCE,
            Outcome.STALE_REUSE,
            Outcome.TLS_NOT_RESUMED,
        )


class Phase(StrEnum):
    """What was going on when a request was sent."""

    STEADY = "steady"
    FAULT = "fault"
    RECOVERY = "recovery"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a request is stamped with at send: the phase and the faults that were under way.

    Ids grow by one with each change; scope 0 is the first steady phase. ``start_s`` is seconds since run start.
    A request sent in a steady scope that *fails* after a fault began is booked on the newer scope and counted
    as ``carried`` there: it was in flight when the fault struck.
    """

    id: int
    phase: Phase
    faults: tuple[int, ...] = ()
    start_s: float = 0.0


class SightKind(StrEnum):
    """What independent observations are kept of, with first and last instant."""

    GENERATION = "generation"
    SERIAL = "serial"
    ORIGIN = "origin"


class SightVia(StrEnum):
    """Who saw it."""

    TRAFFIC = "traffic"
    PROBE = "probe"
    """A fresh, non-resumed handshake each second."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """First and last time that something was seen, in seconds since run start, and how often."""

    kind: SightKind
    value: str
    via: SightVia
    first_s: float
    last_s: float
    count: int


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """One failed request, kept whole: an evidence row. Instants are seconds since run start; None if never reached."""

    id: str
    traffic: str
    scope: int
    outcome: Outcome
    due_s: float
    sent_s: float
    first_byte_s: float | None
    done_s: float
    connection: int
    connection_age_s: float | None
    reused: bool
    idempotent: bool
    status: int | None
    origin: str
    generation: str
    serial: str
    error: str


@dataclass(frozen=True, slots=True)
class SelfStats:
    """The load worker, watched by itself, over one second."""

    cpu_s: float
    """CPU seconds used since the worker started (cumulative)."""
    rss_bytes: int
    fds: int
    loop_gap_s: float
    """Longest time by which a timer wake came late in this second."""
    lag_p50_s: float
    lag_p99_s: float
    lag_p999_s: float
    lag_max_s: float


@dataclass(frozen=True, slots=True)
class ConnectionStats:
    """Connection events (counted since the last report, or summed)."""

    opened: int = 0
    closed_by_peer: int = 0
    closed_by_us: int = 0
    tls_full: int = 0
    tls_resumed: int = 0
    reused: int = 0
    """Requests that went out on a connection that had already carried one."""


@dataclass(frozen=True, slots=True)
class Member:
    """One living process of a subject: its pid with its start prove who it is."""

    pid: int
    started: float
    """Seconds since boot."""
    role: str
    """A value of ``soak.proxies.base.ProcessRole``."""


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How a worker of the proxy ended, by the proxy's own log."""

    words: str
    """``exited on signal 11 (core dumped)``."""
    crashed: bool | None
    """True for an end that nothing explains but a defect, False for one in order, None for one that somebody may have made."""


@dataclass(frozen=True, slots=True)
class Vital:
    """One look at the processes of a subject (``proxy``, ``b1``, ``daemon``, ``worker``); sums over its processes."""

    at_s: float
    subject: str
    rss_bytes: int
    cpu_s: float
    """CPU seconds used by the processes that exist now (cumulative; falls when a process ends)."""
    fds: int
    processes: int
    old_processes: int = 0
    """Workers of an earlier generation that still live."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    members: Sequence[Member] = ()
    """Each process, where roles are told and starts are known. For the watch over workers; not stored."""


@dataclass(frozen=True, slots=True)
class OriginTotals:
    """What the origins have counted themselves so far."""

    at_s: float
    counts: Mapping[str, Mapping[str, int]]
    """By origin, then by dotted counter: ``requests``, ``duplicates``, ``cache.etag.full``, ..."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, for the record: ``name`` is dotted (``origin.died``), ``data`` is JSON."""

    at_s: float
    wall_s: float
    name: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CertificateRecord:
    """One certificate of the run: when it was installed. First and last sight come from the sightings."""

    serial: str
    installed_s: float
    fingerprint: str
    fault_id: int | None = None


@dataclass(frozen=True, slots=True)
class Unwell:
    """A stretch in which soak itself was unwell, so the proxy cannot be judged by it. Seconds since run start."""

    from_s: float
    to_s: float
    reason: str
