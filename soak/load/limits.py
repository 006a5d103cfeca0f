"""What this process may use of the machine. Called once at start, by whoever opens many connections."""

from __future__ import annotations

import resource


def raise_open_file_limit() -> int:
    """Raise the soft limit of open files to the hard limit; returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
