"""What the origins of a lab know together: counters that outlive a restart, and which ids were delivered already.

One memory-mapped file. An origin is killed and started again in the middle of a run, and a request that is not
idempotent may be delivered twice to two different origins; neither may be lost from the count. Each origin writes its own
row of counters, and any origin marks ids; nobody waits for anybody.

Layout: ``ROWS`` rows of 32 counters of 8 bytes, then ``BUCKETS`` buckets of four tags of 8 bytes (2 MiB in all).
"""

from __future__ import annotations

import mmap
import os
from hashlib import blake2b
from pathlib import Path
from typing import Any

ROWS = 64
"""Most origins of one lab."""
BUCKETS = 2**16
_WAYS = 4
_COLUMNS = 32
_WORD = 8
_TABLE = ROWS * _COLUMNS
_SIZE = (_TABLE + BUCKETS * _WAYS) * _WORD

CACHE_KINDS = ("plain", "etag", "vary", "no-store")
"""Kinds of cacheable resources, by what the request asked for; the last that applies names it."""
NAMES = (
    "requests",
    "non_idempotent",
    "duplicates",
    "drips",
    "websockets",
    "messages",
    *(f"cache_{kind}_{how}" for kind in CACHE_KINDS for how in ("full", "not_modified")),
)
"""The counters of a row, in order."""
REQUESTS, NON_IDEMPOTENT, DUPLICATES, DRIPS, WEBSOCKETS, MESSAGES, CACHE = range(7)
"""Columns; from CACHE on, two for each kind: full answers, then 304s."""


class Shared:
    """One origin's view of the file (or of memory of its own, for an origin without a lab)."""

    def __init__(self, words: memoryview, row: int) -> None:
        self._words = words
        self._row = row
        self.counters = words[row * _COLUMNS : row * _COLUMNS + len(NAMES)]
        """This origin's counters, by column; only it writes them."""

    @classmethod
    def alone(cls) -> Shared:
        """Return one in memory, for an origin without a lab."""
        return cls(memoryview(mmap.mmap(-1, _SIZE)).cast("Q"), 0)

    @classmethod
    def open(cls, path: Path, row: int) -> Shared:
        """Map the file that ``create`` made. Raises ``OSError``, and ``ValueError`` for another file or row."""
        if not 0 <= row < ROWS:
            raise ValueError(f"row {row} of {path} does not exist; there are {ROWS}")
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_size != _SIZE:
                raise ValueError(f"{path} is not a table of origins: it must have {_SIZE} bytes")
            return cls(memoryview(mmap.mmap(fd, _SIZE)).cast("Q"), row)
        finally:
            os.close(fd)

    def delivered_before(self, request_id: bytes) -> bool:
        """Mark an id as delivered and return whether it was already.

        The table keeps the last four ids of a bucket, so at 100 ids a second one is known for minutes: after 60,000
        younger ids about 2 % are forgotten, after 6,000 fewer than 1 in 100,000. Two different ids are taken for the same
        only when 64 bits of their hashes agree.
        """
        tag = int.from_bytes(blake2b(request_id, digest_size=_WORD).digest(), "little") or 1
        at = _TABLE + (tag % BUCKETS) * _WAYS
        bucket = self._words[at : at + _WAYS]
        if tag in bucket:
            return True
        bucket[1:] = bucket[:-1]
        bucket[0] = tag
        return False


def create(path: Path) -> None:
    """Make the file, all zero. Raises ``OSError``."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, _SIZE)
    finally:
        os.close(fd)


def stats_of(counters: memoryview) -> dict[str, Any]:
    """Return a row of counters as JSON; the cache's by kind: ``{"cache": {"etag": {"full": 3, "not_modified": 9}}}``."""
    values = dict(zip(NAMES, counters, strict=True))
    cache = {
        kind: {how: values.pop(f"cache_{kind}_{how}") for how in ("full", "not_modified")}
        for kind in CACHE_KINDS
    }
    return {**values, "cache": cache}
