"""Histograms over spans: ten seconds (service, lag, handshake) and ten minutes (and latency), in memory while a span is open.

The open ten-second fold is written with every batch, so a killed run loses no more than the batch that was never
committed. A ten-minute roll-up is a cache: written once, when its span is over (or at the end), merged into when a
report comes late. A span without one is read from the fine rows.
"""

from __future__ import annotations

import sqlite3

from soak.measure.histogram import DenseHistogram, Histogram
from soak.measure.window import Window
from soak.store.schema import FOLD_S, ROLLUP_S

_GRACE_S = 30
"""A report may be this late before its span counts as over."""

Key = tuple[int, int]


class Rolling:
    """Open spans by (start second, class id)."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._folds: dict[Key, list[Histogram]] = {}
        self._dirty: set[Key] = set()
        self._spans: dict[Key, list[Histogram]] = {}
        newest = db.execute("SELECT max(second) FROM windows").fetchone()[0]
        self._from = 0 if newest is None else newest // ROLLUP_S * ROLLUP_S + ROLLUP_S
        """Spans before this were begun by an earlier writer: never rolled up here, for parts would be missing."""

    def add(self, traffic: int, w: Window) -> None:
        """Count one window of the class with this id."""
        second = w.second
        folded = (w.service, w.lag, w.handshake)
        fold = (second // FOLD_S * FOLD_S, traffic)
        if fold not in self._folds:
            stored = self._stored("SELECT service, lag, handshake FROM folds", fold)
            self._folds[fold] = stored or [DenseHistogram() for _ in folded]
        self._dirty.add(fold)
        for into, one in zip(self._folds[fold], folded, strict=True):
            into.merge(one)
        span = (second // ROLLUP_S * ROLLUP_S, traffic)
        if span not in self._spans:
            stored = self._stored("SELECT latency, service, lag, handshake FROM rollups", span)
            if stored is None and span[0] < self._from:
                return
            self._spans[span] = stored or [DenseHistogram() for _ in (w.latency, *folded)]
        for into, one in zip(self._spans[span], (w.latency, *folded), strict=True):
            into.merge(one)

    def write(self, newest: int) -> None:
        """Write the folds that changed and the spans that are over at second ``newest``; forget old ones."""
        for key in self._dirty:
            self._db.execute(
                "INSERT OR REPLACE INTO folds VALUES(?,?,?,?,?)", (*key, *_blobs(self._folds[key]))
            )
        self._dirty.clear()
        for key in [k for k in self._folds if k[0] + FOLD_S + _GRACE_S <= newest]:
            del self._folds[key]
        for key in [k for k in self._spans if k[0] + ROLLUP_S + _GRACE_S <= newest]:
            self._write_span(key)

    def finish(self) -> None:
        """Write every open span."""
        for key in list(self._spans):
            self._write_span(key)

    def _write_span(self, key: Key) -> None:
        blobs = _blobs(self._spans.pop(key))
        self._db.execute("INSERT OR REPLACE INTO rollups VALUES(?,?,?,?,?,?)", (*key, *blobs))

    def _stored(self, select: str, key: Key) -> list[Histogram] | None:
        row = self._db.execute(f"{select} WHERE start=? AND traffic=?", key).fetchone()
        return (
            None
            if row is None
            else [DenseHistogram() if b is None else DenseHistogram.from_blob(b) for b in row]
        )


def _blobs(histograms: list[Histogram]) -> list[bytes | None]:
    """Return the columns of a row; the last, the handshakes, is NULL when there were none."""
    *all_others, handshake = histograms
    return [*(h.to_blob() for h in all_others), handshake.to_blob() if handshake.count else None]
