"""Histograms of a run and of parts of it: from roll-ups and from fine rows, equal to the merge of all windows."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from soak.measure.histogram import Histogram
from soak.store import StoreReader, StoreWriter
from soak.store.schema import ROLLUP_S
from soak.store.spans import gaps
from tests.soak.synthetic import report, window


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


def hist(*ms: float) -> Histogram:
    h = Histogram()
    for one in ms:
        h.add(int(one * 1e6))
    return h


def test_whole_run_equals_the_merge_of_all_windows(path):
    """Rolled-up spans, open spans and late reports: nothing is lost or counted twice."""
    expected = Histogram()
    with StoreWriter(path) as w:
        for s in [*range(0, 3 * ROLLUP_S, 7), 3, ROLLUP_S + 5]:
            h = hist(1 + s % 50)
            expected.merge(h)
            w.add_report(report(s, window(s, latency=h, service=h, lag=h, handshake=h)))
            if s % 70 == 0:
                w.flush()
        w.flush()
        with StoreReader(path) as r:
            assert all(expected.counts == h.counts for h in r.histograms()["get"])
    with StoreReader(path) as r:
        assert all(expected.counts == h.counts for h in r.histograms()["get"])
        assert all(expected.sum_ns == h.sum_ns for h in r.histograms()["get"])


def test_a_range_is_exact_at_its_ends(path):
    """A range that begins and ends inside spans counts exactly its seconds."""
    with StoreWriter(path) as w:
        for s in range(0, 4 * ROLLUP_S, 5):
            w.add_report(report(s, window(s, latency=hist(1.0))))
        w.flush()
    with StoreReader(path) as r:
        for a, b in ((0, 5), (3, 4 * ROLLUP_S), (ROLLUP_S - 5, 3 * ROLLUP_S + 1), (0, ROLLUP_S), (7, 8)):
            assert len([s for s in range(0, 4 * ROLLUP_S, 5) if a <= s < b]) == r.latencies(a, b)["get"].count


def test_a_writer_that_continues_a_store_leaves_no_half_span(path):
    """A span begun by one writer and ended by another is still read in full."""
    for part in (range(20), range(20, ROLLUP_S + 100, 10)):
        with StoreWriter(path) as w:
            for s in part:
                w.add_report(report(s, window(s, latency=hist(1.0), lag=hist(1.0))))
    with StoreReader(path) as r:
        latency, _, lag, _ = r.histograms()["get"]
        assert 20 + len(range(20, ROLLUP_S + 100, 10)) == latency.count == lag.count


def test_handshakes_that_never_were_take_no_room(path):
    """NULL in the file, an empty histogram when read."""
    with StoreWriter(path) as w:
        w.add_report(report(0, window(0, handshake=hist())))
    with StoreReader(path) as r:
        assert 0 == r.histograms()["get"][3].count
    db = sqlite3.connect(path)
    assert [(None, None)] == db.execute("SELECT f.handshake, r.handshake FROM folds f, rollups r").fetchall()
    db.close()


def test_a_store_of_before_handshakes_is_read_and_continued(path):
    """Version 1: read as one without them; a writer brings it up to date and loses nothing."""
    with StoreWriter(path) as w:
        w.add_report(report(0, window(0)))
    db = sqlite3.connect(path)
    for table in ("folds", "rollups"):
        db.execute(f"ALTER TABLE {table} DROP COLUMN handshake")
    db.execute("PRAGMA user_version = 1")
    db.commit()
    db.close()
    with StoreReader(path) as r:
        assert [100, 100, 100, 0] == [h.count for h in r.histograms()["get"]]
    with StoreWriter(path) as w:
        w.add_report(report(1, window(1, handshake=hist(1.0, 2.0))))
    with StoreReader(path) as r:
        assert [200, 200, 200, 2] == [h.count for h in r.histograms()["get"]]


@pytest.mark.parametrize(
    ("from_s", "to_s", "rolled", "expected"),
    [
        (0, 5, set(), [(0, 5)]),
        (0, 30, {10}, [(0, 10), (20, 30)]),
        (0, 40, {10, 20}, [(0, 10), (30, 40)]),
        (10, 30, {10, 20}, []),
        (7, 23, {10}, [(7, 10), (20, 23)]),
    ],
)
def test_gaps_are_what_no_span_covers(from_s, to_s, rolled, expected):
    """Joined where they touch, empty where all is covered."""
    assert expected == list(gaps(from_s, to_s, rolled, 10))
