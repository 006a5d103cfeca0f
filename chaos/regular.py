"""Reads a file of a run whole, and refuses what is no regular file: a pipe in the place of one would be waited for for ever."""

from __future__ import annotations

import errno
import stat
from pathlib import Path


def read_regular(path: Path) -> bytes:
    """Return what stands in it. Raises ``OSError``, also for what is there and is no regular file."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.read_bytes()
