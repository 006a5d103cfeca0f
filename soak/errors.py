"""Errors that a person reads: one sentence each, with the value and the fix. The command line prints them and exits.

Third-party exceptions are mapped to these once, at the edge, with ``raise ... from``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_PASS = 0
EXIT_FAIL = 1
EXIT_USAGE = 2
EXIT_INVALID = 3
EXIT_DIRTY = 4


class SoakError(Exception):
    """Base of all errors that are the user's to fix; printed without a traceback, exit code 2."""

    exit_code = EXIT_USAGE


class PlanError(SoakError):
    """The plan, or a flag that overrides it, is not valid."""


class LabError(SoakError):
    """The system under test did not come up or cannot do what the plan needs. Carries its own words."""


class RunStateError(SoakError):
    """No such run, no live run, or the run is already held by another daemon."""


class StoreError(SoakError):
    """The run's store cannot be opened, read or written."""


class ControlError(SoakError):
    """The daemon refused or could not be reached through its socket."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest known word, or the list of all when none is close.

    >>> nearest("backend-dwon", ["backend-down", "reload"])
    "; did you mean 'backend-down'?"
    """
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(names)}"
