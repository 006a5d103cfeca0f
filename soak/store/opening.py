"""Opens the file of a store for reading, also where nothing may be written beside it.

A killed run leaves its write-ahead log behind; SQLite replays it when it may write beside the file. Where it may not
(the directory is read-only) this falls back knowingly, and ``fallback`` says how: without a log the file is opened as
immutable, with one it is copied, log and all, to a temporary directory first, because opening it as immutable would drop
the last seconds in silence.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from soak.errors import StoreError

_BESIDE = ("-wal", "-shm", "-journal")
"""What SQLite opens beside a file, and would wait for if it were a pipe."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An open file, and what goes when it is closed."""

    db: sqlite3.Connection
    fallback: str = ""
    """How the file was opened when the plain way was not possible; else empty."""
    copy: tempfile.TemporaryDirectory[str] | None = None

    def close(self) -> None:
        """Close the file, and remove its copy. Idempotent."""
        self.db.close()
        if self.copy is not None:
            self.copy.cleanup()


def open_to_read(path: Path) -> Opened:
    """Open a store read-only. Raises ``StoreError`` when there is no such file, or when it cannot be read."""
    if not path.exists():
        raise StoreError(f"{path} does not exist; is this the directory of a run?")
    for part in (path, *(path.with_name(path.name + beside) for beside in _BESIDE)):
        if part.exists() and not part.is_file():
            raise StoreError(f"{path} cannot be read as a store of soak: {part.name} is not a regular file")
    plain = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro"
    try:
        return Opened(_connect(plain))
    except sqlite3.OperationalError as error:
        why = error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path} cannot be read as a store of soak: {error}") from error
    log = path.with_name(f"{path.name}-wal")
    try:
        if log.exists() and log.stat().st_size:
            return _open_copy(path, log, why)
        return Opened(
            _connect(f"{plain}&immutable=1"),
            f"read as an immutable file, for the directory is not writable ({why})",
        )
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{path} cannot be read: {why}; nor as a copy: {error}") from error


def _open_copy(path: Path, log: Path, why: sqlite3.Error) -> Opened:
    directory = tempfile.TemporaryDirectory(prefix="soak-read-")
    try:
        copy = Path(directory.name) / path.name
        shutil.copyfile(path, copy)
        shutil.copyfile(log, copy.with_name(log.name))
        db = _connect(f"file:{quote(str(copy))}?mode=ro")
    except BaseException:
        directory.cleanup()
        raise
    told = f"read from a copy with its write-ahead log, for the directory is not writable ({why})"
    return Opened(db, told, directory)


def _connect(uri: str) -> sqlite3.Connection:
    """Open and touch: SQLite looks at the file only on the first read."""
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10.0)
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        db.close()
        raise
    return db
