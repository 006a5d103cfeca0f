"""The store of a run: one SQLite file (WAL), written by one thread, read by anybody while it grows and after it ended.

``StoreWriter`` takes records and never blocks its caller; ``StoreReader`` streams them back in constant memory. Owns
the file format; judges nothing.
"""

from soak.store.reader import StoreReader
from soak.store.records import EvidenceRow, FailureRow, SlotTotals, StoredWindow, WorkerSecond
from soak.store.writer import StoreWriter

__all__ = [
    "EvidenceRow",
    "FailureRow",
    "SlotTotals",
    "StoreReader",
    "StoreWriter",
    "StoredWindow",
    "WorkerSecond",
]
