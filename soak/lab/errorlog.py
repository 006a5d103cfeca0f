"""What a proxy's error log said since a moment: reads on from a mark, survives truncation, keeps the file bounded."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_READ_BYTES = 256 * 1024
_TRIM_ABOVE_BYTES = 8 * 1024 * 1024
_KEPT_BYTES = 512 * 1024


class ErrorLog:
    """One append-only text file that somebody else writes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> int:
        """Return the present end, to read on from."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def since(self, mark: int) -> str:
        """Return what was written since the mark, at most the last 256 KiB; all of it when the file was cut meanwhile."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                begin = mark if mark <= size else 0
                file.seek(max(begin, size - _READ_BYTES))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def trim(self, above_bytes: int = _TRIM_ABOVE_BYTES) -> int:
        """Cut the file to nothing when it has grown past a limit; its end is kept beside it. Returns the bytes cut.

        The writer appends (O_APPEND), so it goes on at the new end. A line written during the cut may be lost.
        """
        size = self.mark()
        if size <= above_bytes:
            return 0
        with suppress(OSError):  # a full disk is the reason to cut, not one to keep everything
            self._keep_end(size)
        try:
            os.truncate(self.path, 0)
        except OSError:  # it was taken away meanwhile
            return 0
        return size

    def _keep_end(self, size: int) -> None:
        with self.path.open("rb") as file:
            file.seek(max(0, size - _KEPT_BYTES))
            end = file.read(_KEPT_BYTES)
        self.path.with_name(self.path.name + ".1").write_bytes(end)
