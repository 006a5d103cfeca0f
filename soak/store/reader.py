"""Reads a store: of a running, a finished or a killed run. Read-only, streaming, judges nothing.

How the file is opened where nothing may be written beside it is ``soak.store.opening``; histograms are ``soak.store.spans``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from chaos.model import FaultOutcome, FaultRecord, Source
from soak.errors import StoreError
from soak.measure.facts import SecondFacts
from soak.measure.histogram import Histogram
from soak.model import (
    CertificateRecord,
    ConnectionStats,
    Event,
    FailedRequest,
    Outcome,
    Phase,
    Scope,
    Sighting,
    SightKind,
    SightVia,
    Unwell,
    Vital,
)
from soak.store import schema
from soak.store.opening import open_to_read
from soak.store.records import EvidenceRow, FailureRow, SlotTotals, StoredWindow, WorkerSecond
from soak.store.spans import LATENCY, Spans

_END = 2**62
_EVIDENCE = (
    "SELECT id, worker, request, traffic, scope, outcome, due_s, sent_s, first_byte_s, done_s, connection,"
    " connection_age_s, reused, idempotent, status, origin, generation, serial, error FROM evidence"
    " WHERE (?1 IS NULL OR id = ?1) AND (?2 IS NULL OR scope IN (SELECT value FROM json_each(?2)))"
    " ORDER BY due_s, id LIMIT ?3"
)


class StoreReader:
    """Read-only sight of a store. To be used by one thread at a time; may be handed from one to another.

    Raises ``StoreError`` when there is no such file, when it is not a store, or when a newer soak wrote it. ``to_s`` is
    exclusive everywhere; seconds count from run start.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_to_read(path)
        self._db = self._file.db
        try:
            self._spans = Spans(self._db, schema.check(self._db, path))
        except BaseException:
            self.close()
            raise

    @property
    def fallback(self) -> str:
        """How the file was opened when the plain way was not possible; else empty."""
        return self._file.fallback

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Close the file. Raises ``StoreError`` for damage that showed only while it was read."""
        self.close()
        if isinstance(error, sqlite3.Error | json.JSONDecodeError):
            raise StoreError(
                f"{self.path} is damaged: {error}; what can be saved of it, 'sqlite3 {self.path.name} .recover' shows"
            ) from error

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Hold one state of a growing store over several reads, so that their sums agree."""
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("ROLLBACK")

    # -- the run ---------------------------------------------------------------------------------------------------

    def meta(self, key: str, default: Any = None) -> Any:
        """Return a JSON value about the run."""
        row = self._db.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()
        return default if row is None else json.loads(row[0])

    def counters(self) -> dict[str, int]:
        """Return what was turned away: ``evidence_dropped``, ``events_dropped``, ``lost_workerreport``, ..."""
        return dict(self._db.execute("SELECT name, n FROM counters"))

    def last_second(self) -> int | None:
        """Return the newest second with traffic; None when there was none."""
        value = self._db.execute("SELECT max(second) FROM windows").fetchone()[0]
        return None if value is None else int(value)

    def classes(self) -> list[str]:
        """Return the names of the traffic classes seen, in order of appearance."""
        return [name for (name,) in self._db.execute("SELECT name FROM classes ORDER BY id")]

    def scopes(self) -> Iterator[Scope]:
        """Yield the scopes in order."""
        for i, phase, faults, start_s in self._db.execute(
            "SELECT id, phase, faults, start_s FROM scopes ORDER BY id"
        ):
            yield Scope(i, Phase(phase), tuple(json.loads(faults)), start_s)

    def faults(self) -> Iterator[FaultRecord]:
        """Yield the fault instances by id."""
        for row in self._db.execute(
            "SELECT id, kind, target, source, planned_s, injected_s, active_s, reverted_s, recovered_s, recovery_s,"
            " outcome, reason, evidence FROM faults ORDER BY id"
        ):
            i, kind, target, source, planned, injected, active, reverted, recovered, recovery, *rest = row
            outcome, reason, evidence = rest
            yield FaultRecord(
                *(i, kind, target, Source(source), planned, injected, active, reverted, recovered, recovery),
                outcome=None if outcome is None else FaultOutcome(outcome),
                reason=reason,
                evidence=json.loads(evidence),
            )

    def events(self, name: str | None = None) -> Iterator[Event]:
        """Yield the events in order, or those with a name."""
        for at_s, wall_s, what, data in self._db.execute(
            "SELECT at_s, wall_s, name, data FROM events WHERE ?1 IS NULL OR name = ?1 ORDER BY id", (name,)
        ):
            yield Event(at_s, wall_s, what, json.loads(data))

    def size_bytes(self) -> int:
        """Return the size of the store on disk, with its write-ahead log."""
        files = (self.path, self.path.with_name(f"{self.path.name}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def vitals(self, subject: str | None = None) -> Iterator[Vital]:
        """Yield the looks at all subjects, or at one, in order."""
        for at_s, who, rss, cpu_s, fds, processes, old, detail in self._db.execute(
            "SELECT at_s, subject, rss_bytes, cpu_s, fds, processes, old_processes, detail FROM vitals"
            " WHERE ?1 IS NULL OR subject = ?1 ORDER BY id",
            (subject,),
        ):
            yield Vital(at_s, who, rss, cpu_s, fds, processes, old, json.loads(detail))

    def sightings(self, kind: SightKind | None = None) -> Iterator[Sighting]:
        """Yield what was seen, by first sight."""
        for what, value, via, first_s, last_s, count in self._db.execute(
            "SELECT kind, value, via, first_s, last_s, count FROM sightings"
            " WHERE ?1 IS NULL OR kind = ?1 ORDER BY first_s, value",
            (None if kind is None else str(kind),),
        ):
            yield Sighting(SightKind(what), value, SightVia(via), first_s, last_s, count)

    def certificates(self) -> Iterator[CertificateRecord]:
        """Yield the certificates by the time they were installed."""
        for row in self._db.execute(
            "SELECT serial, installed_s, fingerprint, fault_id FROM certificates ORDER BY installed_s, serial"
        ):
            yield CertificateRecord(*row)

    def unwell(self) -> Iterator[Unwell]:
        """Yield the stretches in which soak was unwell, in order."""
        for row in self._db.execute("SELECT from_s, to_s, reason FROM unwell ORDER BY from_s"):
            yield Unwell(*row)

    # -- traffic ---------------------------------------------------------------------------------------------------

    def windows(self, from_s: int = 0, to_s: int = _END) -> Iterator[StoredWindow]:
        """Yield the rows of a range of seconds, by second, class and scope."""
        for second, name, scope, scheduled, sent, dropped, missed, carried, ok, *rest in self._db.execute(
            "SELECT second, c.name, scope, scheduled, sent, dropped, missed, carried, ok, outcomes, stale_non_idempotent,"
            " received, last_failure_due_s, latency FROM windows JOIN classes c ON c.id = traffic"
            " WHERE second >= ? AND second < ? ORDER BY second, traffic, scope",
            (from_s, to_s),
        ):
            text, *tail = rest
            outcomes = {Outcome.OK: ok} if ok else {}
            outcomes.update({Outcome(k): n for k, n in json.loads(text or "{}").items()})
            yield StoredWindow(
                second, name, scope, scheduled, sent, dropped, missed, carried, outcomes, *tail
            )

    def totals(self, from_s: int = 0, to_s: int = _END) -> list[SlotTotals]:
        """Return sums by class and scope over a range of seconds."""
        names = dict(self._db.execute("SELECT id, name FROM classes"))
        return [
            SlotTotals(names[traffic], *rest)
            for traffic, *rest in self._db.execute(
                "SELECT traffic, scope, sum(scheduled), sum(sent), sum(dropped), sum(missed), sum(carried), sum(ok),"
                " sum(failed), sum(stale_non_idempotent), sum(received) FROM windows"
                " WHERE second >= ? AND second < ? GROUP BY traffic, scope ORDER BY scope, traffic",
                (from_s, to_s),
            )
        ]

    def failures(self) -> Iterator[FailureRow]:
        """Yield the rows that hold failures, by second."""
        names = dict(self._db.execute("SELECT id, name FROM classes"))
        for second, traffic, scope, text in self._db.execute(
            "SELECT second, traffic, scope, outcomes FROM windows WHERE failed > 0 ORDER BY second, traffic, scope"
        ):
            yield FailureRow(
                second, names[traffic], scope, {Outcome(k): n for k, n in json.loads(text).items()}
            )

    def seconds(self, from_s: int = 0, to_s: int = _END) -> Iterator[SecondFacts]:
        """Yield each second with traffic, all classes together; ``steady`` from the scopes, ``unwell`` left False."""
        steady = {s.id for s in self.scopes() if s.phase is Phase.STEADY}
        scopes: dict[int, bool] = {}
        for second, scope in self._db.execute(
            "SELECT DISTINCT second, scope FROM windows WHERE second >= ? AND second < ?", (from_s, to_s)
        ):
            if scope not in steady:
                scopes[second] = False
        for second, sent, done, failed, p99_ns, due_s, in_flight in self._db.execute(
            "SELECT second, sent, done, failed, p99_ns, last_failure_due_s, in_flight FROM seconds"
            " WHERE second >= ? AND second < ? ORDER BY second",
            (from_s, to_s),
        ):
            calm = scopes.get(second, True)
            yield SecondFacts(second, sent, done, failed, p99_ns / 1e9, due_s, in_flight, steady=calm)

    def class_seconds(self) -> Iterator[tuple[int, str, int, int, int, int, int]]:
        """Yield (second, class, scheduled, sent, dropped, missed, done), all scopes together, by second."""
        names = dict(self._db.execute("SELECT id, name FROM classes"))
        for second, traffic, *sums in self._db.execute(
            "SELECT second, traffic, sum(scheduled), sum(sent), sum(dropped), sum(missed), sum(ok + failed)"
            " FROM windows GROUP BY second, traffic ORDER BY second, traffic"
        ):
            yield (second, names[traffic], *sums)

    def worker_seconds(self, from_s: int = 0, to_s: int = _END) -> Iterator[WorkerSecond]:
        """Yield what each worker said about itself, by second and worker."""
        names = {str(i): name for i, name in self._db.execute("SELECT id, name FROM classes")}
        for (
            at,
            who,
            cpu_s,
            rss,
            fds,
            gap_s,
            p50_s,
            p99_s,
            p999_s,
            max_s,
            n,
            idle,
            flights,
        ) in self._db.execute(
            "SELECT second, worker, cpu_s, rss_bytes, fds, loop_gap_s, lag_p50_s, lag_p99_s, lag_p999_s, lag_max_s, open,"
            " idle, in_flight FROM worker_seconds WHERE second >= ? AND second < ? ORDER BY second, worker",
            (from_s, to_s),
        ):
            flying = {names[k]: f for k, f in json.loads(flights).items()}
            yield WorkerSecond(
                *(at, who, cpu_s, rss, fds, gap_s, p50_s, p99_s, p999_s, max_s, n, idle), in_flight=flying
            )

    def connections(self) -> ConnectionStats:
        """Return the sums over the run."""
        row = self._db.execute(
            "SELECT sum(opened), sum(closed_by_peer), sum(closed_by_us), sum(tls_full), sum(tls_resumed), sum(reused)"
            " FROM worker_seconds"
        ).fetchone()
        return ConnectionStats(*(n or 0 for n in row))

    def latencies(self, from_s: int = 0, to_s: int = _END) -> dict[str, Histogram]:
        """Return latency from due by class over a range of seconds, exact at its ends."""
        found = self._spans.over(from_s, to_s, latency_only=True)
        return {name: histograms[LATENCY] for name, histograms in found.items()}

    def histograms(self) -> dict[str, tuple[Histogram, Histogram, Histogram, Histogram]]:
        """Return latency, service time, lag and time of handshakes by class over the whole run."""
        return {name: (a, b, c, d) for name, (a, b, c, d) in self._spans.over(0, _END).items()}

    def evidence(
        self, *, fault: int | None = None, row: int | None = None, limit: int = 1000
    ) -> Iterator[EvidenceRow]:
        """Yield failed requests, oldest first: all, those of one fault (through its scopes), or one row."""
        scopes = None if fault is None else [s.id for s in self.scopes() if fault in s.faults]
        yield from self._evidence(row, scopes, limit)

    def evidence_in(self, phase: Phase, limit: int = 1000) -> Iterator[EvidenceRow]:
        """Yield the failed requests of one phase, oldest first."""
        yield from self._evidence(None, [s.id for s in self.scopes() if s.phase is phase], limit)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _evidence(self, row: int | None, scopes: Sequence[int] | None, limit: int) -> Iterator[EvidenceRow]:
        wanted = None if scopes is None else json.dumps(scopes)
        for i, worker, *v in self._db.execute(_EVIDENCE, (row, wanted, limit)):
            (
                request,
                traffic,
                scope,
                outcome,
                due,
                sent,
                first,
                done,
                connection,
                age,
                reused,
                idempotent,
                *rest,
            ) = v
            yield EvidenceRow(
                i,
                worker,
                FailedRequest(
                    *(request, traffic, scope, Outcome(outcome), due, sent, first, done, connection, age),
                    *(bool(reused), bool(idempotent), *rest),
                ),
            )
