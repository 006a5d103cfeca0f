"""Turns records into rows, one transaction at a time. Owned by the writer's thread; knows nothing of threads.

Windows of several workers for the same second, class and scope merge into one row exactly, also when one of them comes
late. Everything that could grow without end (evidence, events, sighted values) has a cap, and what a cap turned away
is counted in the table ``counters``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from chaos.model import FaultRecord
from soak.measure.facts import blamed
from soak.measure.histogram import Histogram
from soak.measure.window import Window, WorkerReport
from soak.model import CertificateRecord, Event, FailedRequest, Outcome, Scope, Sighting, Unwell, Vital
from soak.store.rolling import Rolling

_ERROR_CHARS = 500


def to_json(value: object) -> str:
    """Return compact JSON; what JSON does not know (paths, enums in odd places) is spelled out as text."""
    return json.dumps(value, separators=(",", ":"), default=str)


@dataclass(frozen=True, slots=True)
class Meta:
    """A named JSON value about the run."""

    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class Lost:
    """How many records the full queue turned away since the last batch, by kind."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Caps:
    """Upper bounds of what a run may keep."""

    evidence: int = 20_000
    evidence_per_scope: int = 500
    """So that one storm does not use up the evidence of every later fault."""
    evidence_in_any_case: int = 10
    """Of each scope, whatever others have used up: after a day of storms the last fault still has something to show."""
    events: int = 200_000
    events_per_name: int = 20_000
    """So that what comes every second (``probe.failed``, ``soak.unwell``) does not crowd out what comes once."""
    sighted_values: int = 20_000


class _Row:
    """One row of ``windows`` while it is being merged."""

    __slots__ = ("carried", "last_due_s", "latency", "outcomes", "received", "slots", "stale")

    def __init__(self) -> None:
        self.slots = [0, 0, 0, 0]
        self.carried = self.stale = self.received = 0
        self.outcomes: dict[str, int] = {}
        self.last_due_s: float | None = None
        self.latency = Histogram()

    def add(self, w: Window) -> None:
        for i, n in enumerate((w.scheduled, w.sent, w.dropped, w.missed)):
            self.slots[i] += n
        self.carried += w.carried
        self.stale += w.stale_non_idempotent
        self.received += w.bytes_received
        for o, n in w.outcomes.items():
            if n:
                self.outcomes[o] = self.outcomes.get(o, 0) + n
        self._due(w.last_failure_due_s)
        self.latency.merge(w.latency)

    def add_stored(self, row: tuple[Any, ...]) -> None:
        scheduled, sent, dropped, missed, carried, ok, outcomes, stale, received, last_due_s, latency = row
        for i, n in enumerate((scheduled, sent, dropped, missed)):
            self.slots[i] += n
        self.carried += carried
        self.stale += stale
        self.received += received
        for o, n in {"ok": ok, **json.loads(outcomes or "{}")}.items():
            self.outcomes[o] = self.outcomes.get(o, 0) + n
        self._due(last_due_s)
        self.latency.merge(Histogram.from_blob(latency))

    def _due(self, at_s: float | None) -> None:
        if at_s is not None:
            self.last_due_s = at_s if self.last_due_s is None else max(self.last_due_s, at_s)

    def values(self) -> tuple[Any, ...]:
        failures = {str(o): n for o, n in self.outcomes.items() if o != Outcome.OK and n}
        return (
            *self.slots,
            self.carried,
            self.outcomes.get(Outcome.OK, 0),
            sum(failures.values()),
            to_json(failures) if failures else None,
            self.stale,
            self.received,
            self.last_due_s,
            self.latency.to_blob(),
        )


class Applier:
    """Applies batches of records to an open store."""

    def __init__(self, db: sqlite3.Connection, caps: Caps) -> None:
        self._db = db
        self._caps = caps
        self._classes: dict[str, int] = dict(db.execute("SELECT name, id FROM classes"))
        self._evidence = dict(db.execute("SELECT scope, count(*) FROM evidence GROUP BY scope"))
        self._evidence_rows = sum(self._evidence.values())
        self._events: dict[str, int] = dict(db.execute("SELECT name, count(*) FROM events GROUP BY name"))
        self._event_rows = sum(self._events.values())
        self._sighted = {tuple(r) for r in db.execute("SELECT kind, value, via FROM sightings")}
        self._streaming: set[int] = set()
        """Classes whose windows said so: left out of a second's p99 and in flight, as ``soak.measure.facts`` does."""
        self._rolling = Rolling(db)
        self._counts: dict[str, int] = {}
        self._by_type: dict[type, Callable[[Any], None]] = {
            Scope: self._scope,
            Event: self._event,
            FaultRecord: self._fault,
            Vital: self._vital,
            CertificateRecord: self._certificate,
            Unwell: self._unwell,
            Sighting: self._sighting,
            Meta: self._meta,
            Lost: self._lost,
        }

    def apply(self, items: Iterable[object]) -> None:
        """Write a batch inside the caller's transaction."""
        reports: list[WorkerReport] = []
        for item in items:
            if isinstance(item, WorkerReport):
                reports.append(item)
            else:
                self._by_type[type(item)](item)
        if reports:
            self._reports(reports)
        for name, n in self._counts.items():
            self._db.execute(
                "INSERT INTO counters VALUES(?,?) ON CONFLICT(name) DO UPDATE SET n = n + excluded.n",
                (name, n),
            )
        self._counts.clear()

    def finish(self) -> None:
        """Write what is still open in memory (the last roll-up span); call once, in a last transaction."""
        self._rolling.finish()

    def _count(self, name: str, n: int = 1) -> None:
        if n:
            self._counts[name] = self._counts.get(name, 0) + n

    def _class(self, name: str) -> int:
        if name not in self._classes:
            self._classes[name] = len(self._classes) + 1
            self._db.execute("INSERT INTO classes VALUES(?,?)", (self._classes[name], name))
        return self._classes[name]

    # -- reports ---------------------------------------------------------------------------------------------------

    def _reports(self, reports: Iterable[WorkerReport]) -> None:
        rows: dict[tuple[int, int, int], _Row] = {}
        touched: set[int] = set()
        for report in reports:
            touched.add(report.second)
            flights: dict[int, int] = {}
            for w in report.windows:
                traffic = self._class(w.traffic)
                rows.setdefault((w.second, traffic, w.scope), _Row()).add(w)
                self._rolling.add(traffic, w)
                flights[traffic] = w.in_flight
                if w.streaming:
                    self._streaming.add(traffic)
                touched.add(w.second)
            self._worker_second(report, flights)
            for s in report.sightings:
                self._sighting(s)
            for e in report.evidence:
                self._failed_request(report.worker, e)
            self._count("evidence_dropped", report.evidence_dropped)
        for key, row in rows.items():
            self._write_window(key, row)
        for second in touched:
            self._summarise(second)
        self._rolling.write(max(touched))

    def _write_window(self, key: tuple[int, int, int], row: _Row) -> None:
        stored = self._db.execute(
            "SELECT scheduled, sent, dropped, missed, carried, ok, outcomes, stale_non_idempotent, received,"
            " last_failure_due_s, latency FROM windows WHERE second=? AND traffic=? AND scope=?",
            key,
        ).fetchone()
        if stored is not None:
            row.add_stored(stored)
        self._db.execute(
            "INSERT OR REPLACE INTO windows VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", (*key, *row.values())
        )

    def _worker_second(self, r: WorkerReport, flights: Mapping[int, int]) -> None:
        s, c = r.stats, r.connections
        self._db.execute(
            "INSERT INTO worker_seconds VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
            " ON CONFLICT(second, worker) DO UPDATE SET cpu_s=excluded.cpu_s, rss_bytes=excluded.rss_bytes,"
            " fds=excluded.fds, loop_gap_s=max(loop_gap_s, excluded.loop_gap_s),"
            " lag_p50_s=max(lag_p50_s, excluded.lag_p50_s), lag_p99_s=max(lag_p99_s, excluded.lag_p99_s),"
            " lag_p999_s=max(lag_p999_s, excluded.lag_p999_s), lag_max_s=max(lag_max_s, excluded.lag_max_s),"
            " opened=opened+excluded.opened, closed_by_peer=closed_by_peer+excluded.closed_by_peer,"
            " closed_by_us=closed_by_us+excluded.closed_by_us, tls_full=tls_full+excluded.tls_full,"
            " tls_resumed=tls_resumed+excluded.tls_resumed, reused=reused+excluded.reused, open=excluded.open,"
            " idle=excluded.idle, in_flight=json_patch(in_flight, excluded.in_flight),"
            " final=max(final, excluded.final)",
            (
                *(r.second, r.worker, s.cpu_s, s.rss_bytes, s.fds, s.loop_gap_s),
                *(s.lag_p50_s, s.lag_p99_s, s.lag_p999_s, s.lag_max_s),
                *(c.opened, c.closed_by_peer, c.closed_by_us, c.tls_full, c.tls_resumed, c.reused),
                *(r.open_connections, r.idle_connections, to_json(flights), int(r.final)),
            ),
        )

    def _summarise(self, second: int) -> None:
        latency = Histogram()
        sent = done = failed = 0
        last: float | None = None
        for traffic, n, ok, bad, outcomes, due_s, blob in self._db.execute(
            "SELECT traffic, sent, ok, failed, outcomes, last_failure_due_s, latency FROM windows WHERE second=?",
            (second,),
        ):
            sent += n
            done += ok + bad
            failed += blamed({Outcome(k): v for k, v in json.loads(outcomes).items()}) if outcomes else 0
            if traffic not in self._streaming:
                latency.merge(Histogram.from_blob(blob))
            if due_s is not None:
                last = due_s if last is None else max(last, due_s)
        flights = self._db.execute(
            "SELECT in_flight FROM worker_seconds WHERE second=?", (second,)
        ).fetchall()
        in_flight = sum(
            n
            for (text,) in flights
            for traffic, n in json.loads(text).items()
            if int(traffic) not in self._streaming
        )
        self._db.execute(
            "INSERT OR REPLACE INTO seconds VALUES(?,?,?,?,?,?,?)",
            (second, sent, failed, done, latency.quantile_ns(0.99), last, in_flight),
        )

    def _failed_request(self, worker: int, e: FailedRequest) -> None:
        in_scope = self._evidence.get(e.scope, 0)
        used_up = self._evidence_rows >= self._caps.evidence and in_scope >= self._caps.evidence_in_any_case
        if used_up or in_scope >= self._caps.evidence_per_scope:
            self._count("evidence_dropped")
            return
        self._evidence_rows += 1
        self._evidence[e.scope] = in_scope + 1
        self._db.execute(
            "INSERT INTO evidence VALUES(NULL,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                *(
                    worker,
                    e.id,
                    e.traffic,
                    e.scope,
                    str(e.outcome),
                    e.due_s,
                    e.sent_s,
                    e.first_byte_s,
                    e.done_s,
                ),
                *(e.connection, e.connection_age_s, int(e.reused), int(e.idempotent), e.status),
                *(e.origin, e.generation, e.serial, e.error[:_ERROR_CHARS]),
            ),
        )

    # -- single records --------------------------------------------------------------------------------------------

    def _scope(self, s: Scope) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO scopes VALUES(?,?,?,?)",
            (s.id, str(s.phase), to_json(s.faults), s.start_s),
        )

    def _event(self, e: Event) -> None:
        of_name = self._events.get(e.name, 0)
        if self._event_rows >= self._caps.events or of_name >= self._caps.events_per_name:
            self._count("events_dropped")
            return
        self._event_rows += 1
        self._events[e.name] = of_name + 1
        self._db.execute(
            "INSERT INTO events VALUES(NULL,?,?,?,?)", (e.at_s, e.wall_s, e.name, to_json(dict(e.data)))
        )

    def _fault(self, f: FaultRecord) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO faults VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                *(f.id, f.kind, f.target, str(f.source), f.planned_s, f.injected_s, f.active_s, f.reverted_s),
                *(f.recovered_s, f.recovery_s, None if f.outcome is None else str(f.outcome), f.reason),
                to_json(dict(f.evidence)),
            ),
        )

    def _vital(self, v: Vital) -> None:
        self._db.execute(
            "INSERT INTO vitals VALUES(NULL,?,?,?,?,?,?,?,?)",
            (
                *(v.at_s, v.subject, v.rss_bytes, v.cpu_s, v.fds, v.processes, v.old_processes),
                to_json(dict(v.detail)),
            ),
        )

    def _certificate(self, c: CertificateRecord) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO certificates VALUES(?,?,?,?)",
            (c.serial, c.installed_s, c.fingerprint, c.fault_id),
        )

    def _unwell(self, u: Unwell) -> None:
        self._db.execute("INSERT INTO unwell VALUES(NULL,?,?,?)", (u.from_s, u.to_s, u.reason))

    def _sighting(self, s: Sighting) -> None:
        key = (str(s.kind), s.value, str(s.via))
        if key not in self._sighted:
            if len(self._sighted) >= self._caps.sighted_values:
                self._count("sightings_dropped", s.count)
                return
            self._sighted.add(key)
        self._db.execute(
            "INSERT INTO sightings VALUES(?,?,?,?,?,?) ON CONFLICT(kind, value, via) DO UPDATE SET"
            " first_s=min(first_s, excluded.first_s), last_s=max(last_s, excluded.last_s), count=count+excluded.count",
            (*key, s.first_s, s.last_s, s.count),
        )

    def _meta(self, m: Meta) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES(?,?)", (m.key, to_json(m.value)))

    def _lost(self, lost: Lost) -> None:
        for kind, n in lost.counts.items():
            self._count(f"lost_{kind}", n)
