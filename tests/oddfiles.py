"""What may lie in the place of a file of a run: a pipe that nobody writes to, a directory, a device."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

ODD: Mapping[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "directory": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/null"),
}


def make_odd(path: Path, kind: str) -> None:
    """Put it there, in the place of what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    ODD[kind](path)
