"""Reaches a Unix socket whose path is longer than ``sun_path`` holds (107 bytes and a NUL, unix(7)).

The directory is opened and the socket is named through it: ``/proc/self/fd/N/control.sock`` is always short, names the
very directory that was opened (no rename or symlink can slip in between), and leaves nothing to clean up. Both bind and
connect follow it. It is used for every path, long or short, so that there is one way and not two.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from soak.errors import ControlError

MAX_SOCKET_PATH = 107
"""Bytes of a Unix socket path, without the closing NUL."""


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a path of at most 107 bytes that reaches ``path`` while the context lasts, for bind, connect and chmod.

    Once bound or connected the socket no longer needs it. ``getsockname`` and ``getpeername`` show the short path, so
    unlink ``path`` itself afterwards, never those. Raises ``ControlError`` when the directory cannot be opened or when
    the file's own name is too long.
    """
    try:
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ControlError(f"cannot open the directory of the socket {path}: {error.strerror}") from error
    try:
        short = f"/proc/self/fd/{directory}/{path.name}"
        if len(os.fsencode(short)) > MAX_SOCKET_PATH:
            raise ControlError(
                f"the socket name {path.name!r} is too long: a Unix socket path has {MAX_SOCKET_PATH} bytes"
            )
        yield short
    finally:
        os.close(directory)
