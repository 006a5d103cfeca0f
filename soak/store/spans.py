"""Histograms over any stretch of a run: from roll-ups where a whole span has one, from the fine rows everywhere else.

So a day is read in a second and the ends of a stretch are exact all the same. Reads only; ``soak.store.rolling`` writes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from soak.measure.histogram import Histogram
from soak.store.schema import ROLLUP_S

LATENCY, SERVICE, LAG, HANDSHAKE = range(4)
"""Where each histogram of a class stands in a list of them."""
_KINDS = 4
_TIMES_OF_HANDSHAKES = 2
"""The first version of a store that keeps them."""

Histograms = dict[str, list[Histogram]]
"""By class, in the order above."""


class Spans:
    """The histograms of one open store of this version."""

    def __init__(self, db: sqlite3.Connection, version: int) -> None:
        self._db = db
        self._handshake = "handshake" if version >= _TIMES_OF_HANDSHAKES else "NULL"

    def over(self, from_s: int, to_s: int, *, latency_only: bool = False) -> Histograms:
        """Return all histograms of each class over a range of seconds; all but latency are exact to ten seconds."""
        lo, hi = -(-from_s // ROLLUP_S) * ROLLUP_S, to_s // ROLLUP_S * ROLLUP_S
        names: dict[int, str] = dict(self._db.execute("SELECT id, name FROM classes"))
        out = {name: [Histogram() for _ in range(_KINDS)] for name in names.values()}
        rolled: set[int] = set()
        for start, traffic, *blobs in self._db.execute(
            f"SELECT start, traffic, latency, service, lag, {self._handshake} FROM rollups"  # noqa: S608 -- one of two constants
            " WHERE start >= ? AND start < ?",
            (lo, hi),
        ):
            rolled.add(start)
            _merge(out[names[traffic]], blobs[:1] if latency_only else blobs)
        for first, end in gaps(from_s, min(to_s, self._end_s()), rolled, ROLLUP_S):
            for traffic, blob in self._db.execute(
                "SELECT traffic, latency FROM windows WHERE second >= ? AND second < ?", (first, end)
            ):
                out[names[traffic]][LATENCY].merge(Histogram.from_blob(blob))
            if not latency_only:
                self._merge_folds(out, names, first, end)
        return out

    def _end_s(self) -> int:
        newest = self._db.execute("SELECT max(second) FROM windows").fetchone()[0]
        return 1 if newest is None else int(newest) + 1

    def _merge_folds(self, out: Histograms, names: dict[int, str], first: int, end: int) -> None:
        for traffic, *blobs in self._db.execute(
            f"SELECT traffic, service, lag, {self._handshake} FROM folds"  # noqa: S608 -- one of two constants
            " WHERE start >= ? AND start < ?",
            (first, end),
        ):
            _merge(out[names[traffic]][SERVICE:], blobs)


def _merge(into: Sequence[Histogram], blobs: Sequence[bytes | None]) -> None:
    """Add stored histograms to as many of these, in order; NULL is an empty one."""
    for histogram, blob in zip(into, blobs, strict=False):
        if blob is not None:
            histogram.merge(Histogram.from_blob(blob))


def gaps(from_s: int, to_s: int, rolled: set[int], span: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range of seconds that no rolled-up span covers, joined where they touch."""
    start = from_s
    for covered in sorted(rolled):
        if start < covered:
            yield start, covered
        start = covered + span
    if start < to_s:
        yield start, to_s
