"""Reads a store: of a running, a finished or a killed run. Read-only, streaming, judges nothing.

A killed run leaves its write-ahead log behind; SQLite replays it when it may write beside the file. Where it may not
(the directory is read-only) the reader falls back knowingly, and ``fallback`` says how: without a log the file is opened as
immutable, with one it is copied, log and all, to a temporary directory first, because opening it as immutable would drop
the last seconds in silence.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

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
from soak.store.records import EvidenceRow, FailureRow, SlotTotals, StoredWindow, WorkerSecond

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
        self.fallback = ""
        """How the file was opened when the plain way was not possible; else empty."""
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        if not path.is_file():
            raise StoreError(f"{path} does not exist; is this the directory of a run?")
        self._db = self._open()
        try:
            version = schema.check(self._db, path)
        except StoreError:
            self.close()
            raise
        self._handshake = "handshake" if version >= 2 else "NULL"

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._db.close()
        if self._copy is not None:
            self._copy.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

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
            " FROM windows GROUP BY second, traffic"
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
        return {name: hists[0] for name, hists in self._histograms(from_s, to_s, with_folds=False).items()}

    def histograms(self) -> dict[str, tuple[Histogram, Histogram, Histogram, Histogram]]:
        """Return latency, service time, lag and time of handshakes by class over the whole run."""
        found = self._histograms(0, _END, with_folds=True)
        return {name: (a, b, c, d) for name, (a, b, c, d) in found.items()}

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

    def _histograms(self, from_s: int, to_s: int, *, with_folds: bool) -> dict[str, list[Histogram]]:
        span = schema.ROLLUP_S
        lo, hi = -(-from_s // span) * span, to_s // span * span
        names = dict(self._db.execute("SELECT id, name FROM classes"))
        out = {name: [Histogram() for _ in range(4)] for name in names.values()}
        rolled: set[int] = set()
        for start, traffic, *blobs in self._db.execute(
            f"SELECT start, traffic, latency, service, lag, {self._handshake} FROM rollups"  # noqa: S608 -- one of two constants
            " WHERE start >= ? AND start < ?",
            (lo, hi),
        ):
            rolled.add(start)
            _merge(out[names[traffic]], blobs if with_folds else blobs[:1])
        for first, end in _gaps(from_s, min(to_s, (self.last_second() or 0) + 1), rolled, span):
            for traffic, blob in self._db.execute(
                "SELECT traffic, latency FROM windows WHERE second >= ? AND second < ?", (first, end)
            ):
                out[names[traffic]][0].merge(Histogram.from_blob(blob))
            if with_folds:
                self._merge_folds(out, names, first, end)
        return out

    def _merge_folds(
        self, out: dict[str, list[Histogram]], names: dict[int, str], first: int, end: int
    ) -> None:
        for traffic, *blobs in self._db.execute(
            f"SELECT traffic, service, lag, {self._handshake} FROM folds"  # noqa: S608 -- one of two constants
            " WHERE start >= ? AND start < ?",
            (first, end),
        ):
            _merge(out[names[traffic]][1:], blobs)

    def _open(self) -> sqlite3.Connection:
        plain = f"file:{quote(str(self.path.absolute()))}?mode=ro"
        try:
            return _try(plain)
        except sqlite3.OperationalError as e:
            why = e
        except sqlite3.DatabaseError as e:
            raise StoreError(f"{self.path} cannot be read as a store of soak: {e}") from e
        wal = self.path.with_name(self.path.name + "-wal")
        try:
            if wal.exists() and wal.stat().st_size:
                self._copy = tempfile.TemporaryDirectory(prefix="soak-read-")
                copy = Path(self._copy.name) / self.path.name
                shutil.copyfile(self.path, copy)
                shutil.copyfile(wal, copy.with_name(wal.name))
                db = _try(f"file:{quote(str(copy))}?mode=ro")
                self.fallback = (
                    f"read from a copy with its write-ahead log, for the directory is not writable ({why})"
                )
            else:
                db = _try(f"{plain}&immutable=1")
                self.fallback = f"read as an immutable file, for the directory is not writable ({why})"
        except (sqlite3.Error, OSError) as e:
            raise StoreError(f"{self.path} cannot be read: {why}; nor as a copy: {e}") from e
        return db


def _merge(into: Sequence[Histogram], blobs: Sequence[bytes | None]) -> None:
    """Add stored histograms to as many of these, in order; NULL is an empty one."""
    for histogram, blob in zip(into, blobs, strict=False):
        if blob is not None:
            histogram.merge(Histogram.from_blob(blob))


def _try(uri: str) -> sqlite3.Connection:
    """Open and touch: SQLite looks at the file only on the first read."""
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10.0)
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        db.close()
        raise
    return db


def _gaps(from_s: int, to_s: int, rolled: set[int], span: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range of seconds that no rolled-up span covers, joined where they touch."""
    start = from_s
    for covered in sorted(rolled):
        if start < covered:
            yield start, covered
        start = covered + span
    if start < to_s:
        yield start, to_s
