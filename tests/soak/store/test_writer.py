"""The writer never blocks its caller, counts what it turns away, and tells the first error."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from soak.errors import StoreError
from soak.model import Event, Phase, Scope
from soak.store import StoreReader, StoreWriter
from tests.soak.synthetic import report, window


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


def test_a_full_queue_turns_new_records_away_and_counts_them(path):
    """The caller is never blocked; precious records are always taken, and the loss is in the store."""
    w = StoreWriter(path, max_queue=3, commit_every_s=3600)
    with w._wake:  # the writer cannot take the queue meanwhile
        for s in range(5):
            w._put(report(s, window(s)))
        w.set_meta("ended", {"at_s": 5})
    assert 2 == w.lost
    w.close()
    with StoreReader(path) as r:
        assert [0, 1, 2] == [x.second for x in r.windows()]
        assert {"lost_workerreport": 2} == r.counters()
        assert {"at_s": 5} == r.meta("ended")


def test_commits_by_itself_within_its_pace(path):
    """Nobody needs to flush."""
    seen = threading.Event()
    with StoreWriter(path, commit_every_s=0.01) as w:
        w.set_meta("a", 1)
        for _ in range(500):
            with StoreReader(path) as r:
                if r.meta("a") == 1:
                    seen.set()
                    break
            seen.wait(0.01)
        assert seen.is_set()


def test_a_write_error_is_kept_told_and_raised(path):
    """A disk that is full (here: a page limit) ends in ``failure`` and ``on_failure``, never in silence."""
    told: list[StoreError] = []
    w = StoreWriter(path, on_failure=told.append)
    w.add_scope(Scope(0, Phase.STEADY))
    w.flush()
    w._db.execute("PRAGMA max_page_count = 1")
    w.set_meta("big", "x" * 5_000_000)
    with pytest.raises(StoreError, match="any more: database or disk is full; make room there"):
        w.flush()
    assert told == [w.failure]
    assert isinstance(told[0].__cause__, sqlite3.Error)
    w.add_event(Event(0, 0, "late"))
    assert 1 == w.lost
    with pytest.raises(StoreError, match="any more"):
        w.close()


def test_a_record_that_is_no_record_is_a_failure_too(path):
    """Whatever ends the thread is told."""
    w = StoreWriter(path)
    w._put(object())
    with pytest.raises(StoreError, match="any more"):
        w.close()


def test_close_is_idempotent_and_later_records_count_as_lost(path):
    """After close nothing is taken."""
    w = StoreWriter(path)
    w.close()
    w.close()
    w.set_meta("a", 1)
    assert 1 == w.lost


def test_refuses_a_directory_that_is_not_there(tmp_path):
    """One sentence, with the path."""
    with pytest.raises(StoreError, match=r"nowhere/run\.db cannot be created"):
        StoreWriter(tmp_path / "nowhere" / "run.db")


def test_refuses_a_foreign_and_a_broken_file(path):
    """A writer never adds tables to somebody else's database."""
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t(x)")
    db.close()
    with pytest.raises(StoreError, match="not a store of soak"):
        StoreWriter(path)
    path.write_bytes(b"not a database, but long enough to be read as one" * 100)
    with pytest.raises(StoreError, match="cannot be used as a store"):
        StoreWriter(path)
