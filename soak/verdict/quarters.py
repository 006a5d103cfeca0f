"""Latency early against late: the first and the last quarter of a run, by class, without the seconds that are set apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from soak.measure.histogram import Histogram
from soak.store import StoreReader
from soak.store.schema import ROLLUP_S

_LEAST_QUARTER_S = 10
_SLOWER = 1.1
_BAD = 3.0
_SIGMAS = 4.0


@dataclass(frozen=True, slots=True)
class Quarters:
    """Latency by class."""

    first: Mapping[str, Histogram]
    last: Mapping[str, Histogram]
    first_p99s: Sequence[float] = ()
    """p99 of each second, in seconds."""
    last_p99s: Sequence[float] = ()

    def slower(self) -> bool:
        """Whether it is not for a few bad seconds alone that the last quarter is slower: most are, or far more are bad.

        On a host that has other things to do, one second of a hundred is bad now and then, and p99 is decided by whether
        that is a little more or a little less than one.
        """
        if not self.first_p99s or not self.last_p99s:
            return True
        usual = statistics.median(self.first_p99s)
        if statistics.median(self.last_p99s) > _SLOWER * usual:
            return True
        few, many = (sum(p > _BAD * usual for p in p99s) for p99s in (self.first_p99s, self.last_p99s))
        return many >= 2 * few and many - few > _SIGMAS * math.sqrt(many + few)

    def whole(self) -> tuple[Histogram, Histogram]:
        """Return both with all classes together."""
        return _merged(self.first.values()), _merged(self.last.values())

    def classes(self) -> Iterator[tuple[str, Histogram, Histogram]]:
        """Yield the classes that have requests in both."""
        for name, first in self.first.items():
            last = self.last.get(name)
            if last is not None and first.count and last.count:
                yield name, first, last


def quarters_of(
    reader: StoreReader, elapsed_s: float, apart: Sequence[tuple[int, int]] = ()
) -> Quarters | None:
    """Read both; None when the run was too short. ``apart`` are half-open ranges of seconds, in order, to leave out."""
    quarter = int(elapsed_s // 4)
    if quarter < _LEAST_QUARTER_S:
        return None
    first_end, last_start = quarter, int(elapsed_s) - quarter
    if quarter >= 2 * ROLLUP_S:  # whole spans are read from their roll-ups
        first_end, last_start = first_end // ROLLUP_S * ROLLUP_S, -(-last_start // ROLLUP_S) * ROLLUP_S
    first = list(_without(0, first_end, apart))
    last = list(_without(last_start, int(elapsed_s), apart))
    return Quarters(_read(reader, first), _read(reader, last), _p99s(reader, first), _p99s(reader, last))


def _p99s(reader: StoreReader, ranges: Iterable[tuple[int, int]]) -> list[float]:
    return [f.p99_s for a, b in ranges for f in reader.seconds(a, b) if f.done]


def _without(start: int, end: int, apart: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for a, b in apart:
        if b > start and a < end:
            if a > start:
                yield start, a
            start = b
    if start < end:
        yield start, end


def _read(reader: StoreReader, ranges: Iterable[tuple[int, int]]) -> dict[str, Histogram]:
    out: dict[str, Histogram] = {}
    for from_s, to_s in ranges:
        for name, h in reader.latencies(from_s, to_s).items():
            out.setdefault(name, Histogram()).merge(h)
    return out


def _merged(histograms: Iterable[Histogram]) -> Histogram:
    out = Histogram()
    for h in histograms:
        out.merge(h)
    return out
