"""What this process may use of the machine. Asked once at start, by whoever opens many connections."""

from __future__ import annotations

import resource
from collections.abc import Iterable

from soak.load.traffic import ClassSpec

_OTHER_FILES = 200
"""Open files that are no connections of requests: pipes, logs, idle connections."""


def raise_open_file_limit() -> int:
    """Raise the soft limit of open files to the hard limit; returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def most_in_flight(classes: Iterable[ClassSpec], response_timeout_s: float, open_files: int) -> int:
    """Return how many requests may be in flight: rate x the time that one may take, within the open files.

    An answer that is long by design is in flight until its last byte.
    """
    wanted = sum(
        c.rate * (response_timeout_s + (c.body_timeout_s or 0.0 if c.streaming else 0.0)) for c in classes
    )
    return max(1, min(round(wanted), open_files - _OTHER_FILES))
