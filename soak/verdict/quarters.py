"""Latency early against late: the first and the last quarter of a run, by class, without the seconds that are set apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from soak.measure.histogram import Histogram
from soak.store import StoreReader
from soak.store.schema import ROLLUP_S

_LEAST_QUARTER_S = 10


@dataclass(frozen=True, slots=True)
class Quarters:
    """Latency by class."""

    first: Mapping[str, Histogram]
    last: Mapping[str, Histogram]

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
    return Quarters(
        _read(reader, _without(0, first_end, apart)),
        _read(reader, _without(last_start, int(elapsed_s), apart)),
    )


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
