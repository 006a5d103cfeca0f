"""A log-linear histogram of durations: mergeable, sparse, at most 1 % wide.

Durations are integer nanoseconds. They are stored in units of 64 ns; up to 128 units (8 us) buckets are one unit
wide, above that 128 buckets span each power of two, so a bucket is at most 1/128 = 0.78 % wide. There is no upper
end: a bucket index is a plain integer, and the exact maximum is kept beside the counts.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Mapping
from itertools import compress

UNIT_SHIFT = 6
_SUB = 128
_SUB_BITS = 8


def bucket_of(ns: int) -> int:
    """Return the bucket index of a duration in nanoseconds; negative durations count as 0."""
    u = ns >> UNIT_SHIFT
    if u < _SUB:
        return max(u, 0)
    s = u.bit_length() - _SUB_BITS
    return (s << 7) + (u >> s)


def bucket_low_ns(index: int) -> int:
    """Return the smallest duration that falls into a bucket, in nanoseconds."""
    if index < 2 * _SUB:
        return index << UNIT_SHIFT
    s = (index >> 7) - 1
    return (index - (s << 7)) << (s + UNIT_SHIFT)


def bucket_mid_ns(index: int) -> int:
    """Return the middle of a bucket in nanoseconds: what quantiles report."""
    return (bucket_low_ns(index) + bucket_low_ns(index + 1)) // 2


_CELLS = bucket_of(200 * 1_000_000_000) + 1
"""Up to 200 s, past the longest timeouts of connect, handshake and first byte together."""


class Histogram:
    """Counts by bucket, with total count, sum and exact maximum. Merging two loses nothing."""

    __slots__ = ("count", "counts", "max_ns", "sum_ns")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.count = 0
        self.sum_ns = 0
        self.max_ns = 0

    def add(self, ns: int, n: int = 1) -> None:
        """Count a duration ``n`` times."""
        ns = max(ns, 0)
        i = bucket_of(ns)
        self.counts[i] = self.counts.get(i, 0) + n
        self.count += n
        self.sum_ns += ns * n
        self.max_ns = max(self.max_ns, ns)

    def merge(self, other: Histogram) -> None:
        """Add another histogram's counts to this one."""
        counts = self.counts
        for i, n in other.counts.items():
            counts[i] = counts.get(i, 0) + n
        self.count += other.count
        self.sum_ns += other.sum_ns
        self.max_ns = max(self.max_ns, other.max_ns)

    def quantile_ns(self, q: float) -> int:
        """Return the duration below which a share ``q`` of all samples lies, in nanoseconds; 0 when empty.

        ``q`` = 1 gives the exact maximum. The answer is never more than 1 % off nor above the maximum.
        """
        if self.count == 0:
            return 0
        if q >= 1.0:
            return self.max_ns
        rank = q * self.count
        counts = self.counts
        seen = 0
        for i in sorted(counts):
            seen += counts[i]
            if seen >= rank:
                return min(bucket_mid_ns(i), self.max_ns)
        return self.max_ns

    def count_at_most(self, ns: int) -> int:
        """Return how many samples are at most ``ns`` (whole buckets whose lower end is not above it)."""
        return sum(n for i, n in self.counts.items() if bucket_low_ns(i) <= ns)

    def to_wire(self) -> list[object]:
        """Return a compact JSON value: ``[sum_ns, max_ns, [index, count, index, count, ...]]``."""
        flat: list[int] = []
        for i, n in self.counts.items():
            flat.append(i)
            flat.append(n)
        return [self.sum_ns, self.max_ns, flat]

    @classmethod
    def from_wire(cls, wire: object) -> Histogram:
        """Read what ``to_wire`` wrote."""
        assert isinstance(wire, list)
        sum_ns, max_ns, flat = wire
        return cls.of(dict(zip(flat[::2], flat[1::2], strict=True)), sum_ns, max_ns)

    @classmethod
    def of(cls, counts: Mapping[int, int], sum_ns: int, max_ns: int) -> Histogram:
        """Build one from counts by bucket."""
        self = cls()
        self.counts = dict(counts)
        self.count = sum(self.counts.values())
        self.sum_ns = sum_ns
        self.max_ns = max_ns
        return self

    def to_blob(self) -> bytes:
        """Return a compact form for the store: varints of index steps and counts, deflated when that is shorter."""
        out = bytearray()
        _put_varint(out, self.sum_ns)
        _put_varint(out, self.max_ns)
        last = 0
        counts = self.counts
        for i in sorted(counts):
            _put_varint(out, i - last)
            _put_varint(out, counts[i])
            last = i
        packed = zlib.compress(bytes(out), 6)
        return b"z" + packed if len(packed) < len(out) else b"r" + bytes(out)

    @classmethod
    def from_blob(cls, blob: bytes) -> Histogram:
        """Read what ``to_blob`` wrote."""
        raw = zlib.decompress(blob[1:]) if blob[:1] == b"z" else blob[1:]
        values = list(_varints(raw))
        counts: dict[int, int] = {}
        index = 0
        for step, n in zip(values[2::2], values[3::2], strict=True):
            index += step
            counts[index] = n
        return cls.of(counts, values[0], values[1])


class DenseHistogram(Histogram):
    """The same, in a fixed table: for totals that live as long as a run, whose memory is then all there from the start.

    A sparse one would grow for hours, by some 100 bytes for each bucket that is met for the first time.
    """

    __slots__ = ("_cells",)

    def __init__(self) -> None:
        self._cells = array("Q", bytes(8 * _CELLS))
        super().__init__()

    @property
    def counts(self) -> dict[int, int]:
        """Counts by bucket, those that are not zero: a copy."""
        cells = self._cells
        return {i: cells[i] for i in compress(range(len(cells)), cells)}

    @counts.setter
    def counts(self, counts: Mapping[int, int]) -> None:
        self._cells = array("Q", bytes(8 * _CELLS))
        self._put(counts.items())

    def add(self, ns: int, n: int = 1) -> None:
        """Count a duration ``n`` times."""
        ns = max(ns, 0)
        self._put([(bucket_of(ns), n)])
        self.count += n
        self.sum_ns += ns * n
        self.max_ns = max(self.max_ns, ns)

    def merge(self, other: Histogram) -> None:
        """Add another histogram's counts to this one."""
        self._put(other.counts.items())
        self.count += other.count
        self.sum_ns += other.sum_ns
        self.max_ns = max(self.max_ns, other.max_ns)

    def _put(self, counts: Iterable[tuple[int, int]]) -> None:
        cells = self._cells
        for i, n in counts:
            if i >= len(cells):  # longer than any timeout: possible, and rare
                cells.extend([0] * (i + 1 - len(cells)))
            cells[i] += n


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _varints(raw: bytes) -> Iterable[int]:
    value = shift = 0
    for byte in raw:
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        else:
            yield value
            value = shift = 0
