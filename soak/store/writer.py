"""The one writer of a store: a queue, a thread, a transaction about once a second.

Callers (the daemon's event loop) never wait for the disk: a record goes onto a bounded queue under a lock that is held
for microseconds. When the queue is full, the *new* record is turned away and counted (``lost``, and table ``counters``
as ``lost_<kind>``): the identities of the report then show the hole. Few and precious records (faults, scopes, run
data, certificates, unwell stretches) are always taken.

The first write error is final: it is kept in ``failure``, passed to ``on_failure`` (on the writer's thread) and raised
by ``flush`` and ``close``; every record after it counts as lost.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from typing import Any, Self

from chaos.model import FaultRecord
from soak.errors import StoreError
from soak.measure.window import WorkerReport
from soak.model import CertificateRecord, Event, Scope, Sighting, Unwell, Vital
from soak.store import schema
from soak.store.apply import Applier, Caps, Lost, Meta

_PRECIOUS = (FaultRecord, Scope, Meta, CertificateRecord, Unwell)
_NS = 1_000_000_000


class StoreWriter:
    """Creates or continues a store and writes to it from a thread of its own.

    Raises ``StoreError`` when the file cannot be created, is not a store, or is of a newer version. All ``add_`` methods may be
    called from any thread and return at once. ``commit_every_s`` is the pace of transactions, ``max_queue`` the
    number of records that may wait.
    """

    def __init__(
        self,
        path: Path,
        *,
        on_failure: Callable[[StoreError], None] | None = None,
        commit_every_s: float = 1.0,
        max_queue: int = 10_000,
        caps: Caps | None = None,
    ) -> None:
        self.path = path
        self.failure: StoreError | None = None
        self.lost = 0
        """Records that were turned away: the queue was full, or the store had failed."""
        self._on_failure = on_failure
        self._commit_every_s = commit_every_s
        self._max_queue = max_queue
        self._lost_by_kind: dict[str, int] = {}
        self._items: list[object] = []
        self._wake = threading.Condition()
        self._asked = self._done = 0
        self._closing = False
        self._db = _open(path)
        try:
            self._applier = Applier(self._db, caps or Caps())
        except sqlite3.Error as e:
            self._db.close()
            raise StoreError(f"{path} cannot be continued: {e}") from e
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def add_report(self, report: WorkerReport) -> None:
        """Keep all that a worker says about one second, but its notes: those are the daemon's to make events of."""
        self._put(report)

    def add_scope(self, scope: Scope) -> None:
        """Keep a scope; add it before the reports that use it."""
        self._put(scope)

    def add_event(self, event: Event) -> None:
        """Keep an event."""
        self._put(event)

    def put_fault(self, fault: FaultRecord) -> None:
        """Keep a fault instance, replacing what was known of it."""
        self._put(fault)

    def add_vital(self, vital: Vital) -> None:
        """Keep one look at the processes of a subject."""
        self._put(vital)

    def add_certificate(self, certificate: CertificateRecord) -> None:
        """Keep a certificate, by serial."""
        self._put(certificate)

    def add_unwell(self, unwell: Unwell) -> None:
        """Keep a stretch in which soak itself was unwell."""
        self._put(unwell)

    def add_sighting(self, sighting: Sighting) -> None:
        """Merge a sighting into what is known of its value: earliest first, latest last, counts added."""
        self._put(sighting)

    def set_meta(self, key: str, value: Any) -> None:
        """Keep a JSON value about the run under a name, replacing an earlier one."""
        self._put(Meta(key, value))

    def flush(self, timeout_s: float = 30.0) -> None:
        """Wait until everything added so far is committed. Blocks: call it from a thread, not from an event loop.

        Raises ``StoreError`` when the store has failed or does not get done in time.
        """
        with self._wake:
            self._asked += 1
            ticket = self._asked
            self._wake.notify_all()
            done = self._wake.wait_for(
                lambda: self._done >= ticket or self.failure is not None or not self._thread.is_alive(),
                timeout_s,
            )
        if self.failure is not None:
            raise self.failure
        if not done:
            raise StoreError(f"{self.path} was not written within {timeout_s:g} s; is the disk stuck?")

    def close(self, timeout_s: float = 60.0) -> None:
        """Write what is queued, end the thread and close the file. Idempotent. Raises like ``flush``."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise StoreError(f"{self.path} was not closed within {timeout_s:g} s; is the disk stuck?")
        if self.failure is not None:
            raise self.failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _put(self, item: object) -> None:
        with self._wake:
            full = len(self._items) >= self._max_queue and not isinstance(item, _PRECIOUS)
            if full or self._closing or self.failure is not None:
                self.lost += 1
                kind = type(item).__name__.lower()
                self._lost_by_kind[kind] = self._lost_by_kind.get(kind, 0) + 1
            else:
                self._items.append(item)

    def _run(self) -> None:
        try:
            while self._step():
                pass
            self._commit(self._applier.finish)
            self._make_one_file()
        except Exception as e:  # noqa: BLE001 - whatever ends the writer is a failure of the store, told and kept
            self._fail(e)
        finally:
            self._db.close()
            with self._wake:
                self._items.clear()
                self._wake.notify_all()

    def _make_one_file(self) -> None:
        """Fold the log into the file and leave WAL mode, so that a finished store can be read from anywhere.

        A reader that is looking right now keeps it as it is, which is as readable where one may write beside it.
        """
        self._db.execute("PRAGMA busy_timeout = 0")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with contextlib.suppress(sqlite3.OperationalError):
            self._db.execute("PRAGMA journal_mode = DELETE")

    def _step(self) -> bool:
        """Wait for the next tick, write one batch; return whether to go on."""
        deadline = monotonic_ns() + int(self._commit_every_s * _NS)
        with self._wake:
            while not self._closing and self._asked == self._done:
                left_s = (deadline - monotonic_ns()) / _NS
                if left_s <= 0:
                    break
                self._wake.wait(left_s)
            items, self._items = self._items, []
            ticket, closing = self._asked, self._closing
            if self._lost_by_kind:
                items.append(Lost(self._lost_by_kind))
                self._lost_by_kind = {}
        if items:
            self._commit(lambda: self._applier.apply(items))
        with self._wake:
            self._done = ticket
            self._wake.notify_all()
        return not closing

    def _commit(self, work: Callable[[], None]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            work()
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _fail(self, e: Exception) -> None:
        failure = StoreError(
            f"{self.path} cannot be written any more: {e}; make room there, or take another --dir, and start again"
        )
        failure.__cause__ = e
        with self._wake:
            self.failure = failure
            self.lost += len(self._items)
            self._wake.notify_all()
        if self._on_failure is not None:
            self._on_failure(failure)


def _open(path: Path) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
    except sqlite3.Error as e:
        raise StoreError(f"{path} cannot be created: {e}; is the directory there and writable?") from e
    try:
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            schema.check(db, path)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA journal_size_limit = 16777216")
        db.execute(
            "PRAGMA cache_size = -256"
        )  # KiB; rows are only appended, and the default of 2 MiB fills for half an hour
        schema.create(db)
    except sqlite3.Error as e:
        db.close()
        raise StoreError(f"{path} cannot be used as a store: {e}") from e
    except StoreError:
        db.close()
        raise
    return db
