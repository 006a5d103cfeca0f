"""Tables of the store, their version, and how a file proves to be one of ours."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from soak.errors import StoreError

APPLICATION_ID = 0x534F414B
"""``SOAK`` in ASCII, in the header of the file."""
VERSION = 2
"""2 added the times of handshakes. An older store is read as one without them, and brought up to date when it is written to."""
FOLD_S = 10
"""Service, lag and handshake histograms are kept per class and this many seconds."""
ROLLUP_S = 600
"""Spans for which finished histograms are kept too, so that a day is read in a second."""

TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE counters(name TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE classes(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE scopes(id INTEGER PRIMARY KEY, phase TEXT NOT NULL, faults TEXT NOT NULL, start_s REAL NOT NULL);
-- outcomes: JSON of the failures alone, NULL when there are none; latency: Histogram.to_blob
CREATE TABLE windows(
  second INTEGER NOT NULL, traffic INTEGER NOT NULL, scope INTEGER NOT NULL,
  scheduled INTEGER NOT NULL, sent INTEGER NOT NULL, dropped INTEGER NOT NULL, missed INTEGER NOT NULL,
  carried INTEGER NOT NULL, ok INTEGER NOT NULL, failed INTEGER NOT NULL, outcomes TEXT,
  stale_non_idempotent INTEGER NOT NULL, received INTEGER NOT NULL, last_failure_due_s REAL, latency BLOB NOT NULL,
  PRIMARY KEY(second, traffic, scope)) WITHOUT ROWID;
-- handshake: NULL when no connection came up
CREATE TABLE folds(start INTEGER NOT NULL, traffic INTEGER NOT NULL, service BLOB NOT NULL, lag BLOB NOT NULL,
  handshake BLOB, PRIMARY KEY(start, traffic)) WITHOUT ROWID;
-- a cache of whole spans, written once they are over; where there is none, the fine rows are read
CREATE TABLE rollups(start INTEGER NOT NULL, traffic INTEGER NOT NULL,
  latency BLOB NOT NULL, service BLOB NOT NULL, lag BLOB NOT NULL, handshake BLOB,
  PRIMARY KEY(start, traffic)) WITHOUT ROWID;
-- all classes and workers of one second, for recovery
CREATE TABLE seconds(second INTEGER PRIMARY KEY, sent INTEGER NOT NULL, failed INTEGER NOT NULL,
  done INTEGER NOT NULL, p99_ns INTEGER NOT NULL, last_failure_due_s REAL, in_flight INTEGER NOT NULL);
-- in_flight: JSON, class id -> requests in flight at the end of the second
CREATE TABLE worker_seconds(
  second INTEGER NOT NULL, worker INTEGER NOT NULL, cpu_s REAL NOT NULL, rss_bytes INTEGER NOT NULL,
  fds INTEGER NOT NULL, loop_gap_s REAL NOT NULL, lag_p50_s REAL NOT NULL, lag_p99_s REAL NOT NULL,
  lag_p999_s REAL NOT NULL, lag_max_s REAL NOT NULL, opened INTEGER NOT NULL, closed_by_peer INTEGER NOT NULL,
  closed_by_us INTEGER NOT NULL, tls_full INTEGER NOT NULL, tls_resumed INTEGER NOT NULL, reused INTEGER NOT NULL,
  open INTEGER NOT NULL, idle INTEGER NOT NULL, in_flight TEXT NOT NULL, final INTEGER NOT NULL,
  PRIMARY KEY(second, worker)) WITHOUT ROWID;
CREATE TABLE evidence(
  id INTEGER PRIMARY KEY, worker INTEGER NOT NULL, request TEXT NOT NULL, traffic TEXT NOT NULL,
  scope INTEGER NOT NULL, outcome TEXT NOT NULL, due_s REAL NOT NULL, sent_s REAL NOT NULL, first_byte_s REAL,
  done_s REAL NOT NULL, connection INTEGER NOT NULL, connection_age_s REAL, reused INTEGER NOT NULL,
  idempotent INTEGER NOT NULL, status INTEGER, origin TEXT NOT NULL, generation TEXT NOT NULL,
  serial TEXT NOT NULL, error TEXT NOT NULL);
CREATE INDEX evidence_scope ON evidence(scope);
CREATE TABLE faults(
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, target TEXT NOT NULL, source TEXT NOT NULL, planned_s REAL NOT NULL,
  injected_s REAL, active_s REAL, reverted_s REAL, recovered_s REAL, recovery_s REAL, outcome TEXT,
  reason TEXT NOT NULL, evidence TEXT NOT NULL);
CREATE TABLE events(id INTEGER PRIMARY KEY, at_s REAL NOT NULL, wall_s REAL NOT NULL, name TEXT NOT NULL, data TEXT NOT NULL);
CREATE TABLE vitals(
  id INTEGER PRIMARY KEY, at_s REAL NOT NULL, subject TEXT NOT NULL, rss_bytes INTEGER NOT NULL, cpu_s REAL NOT NULL,
  fds INTEGER NOT NULL, processes INTEGER NOT NULL, old_processes INTEGER NOT NULL, detail TEXT NOT NULL);
CREATE TABLE certificates(serial TEXT PRIMARY KEY, installed_s REAL NOT NULL, fingerprint TEXT NOT NULL, fault_id INTEGER)
  WITHOUT ROWID;
CREATE TABLE unwell(id INTEGER PRIMARY KEY, from_s REAL NOT NULL, to_s REAL NOT NULL, reason TEXT NOT NULL);
CREATE TABLE sightings(
  kind TEXT NOT NULL, value TEXT NOT NULL, via TEXT NOT NULL, first_s REAL NOT NULL, last_s REAL NOT NULL,
  count INTEGER NOT NULL, PRIMARY KEY(kind, value, via)) WITHOUT ROWID;
"""


def check(db: sqlite3.Connection, path: Path) -> int:
    """Return the version of a store. Raises ``StoreError`` for a file that is none, or that a newer soak wrote."""
    try:
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.DatabaseError as e:
        raise StoreError(f"{path} cannot be read as a store of soak: {e}") from e
    if application != APPLICATION_ID:
        raise StoreError(f"{path} is not a store of soak (another program wrote it, or the run never began)")
    if version > VERSION:
        raise StoreError(
            f"{path} has store version {version}; this soak reads up to {VERSION}: use the newer soak"
        )
    return int(version)


def create(db: sqlite3.Connection) -> None:
    """Create the tables in an empty file, or bring an older store up to date."""
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        if db.execute("PRAGMA user_version").fetchone()[0] == 1:
            db.executescript(
                "BEGIN; ALTER TABLE folds ADD COLUMN handshake BLOB; ALTER TABLE rollups ADD COLUMN handshake BLOB;"
                f" PRAGMA user_version = {VERSION}; COMMIT;"
            )
        return
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.executescript("BEGIN;" + TABLES + "COMMIT;")
