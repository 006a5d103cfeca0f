"""Names of the files of a run, in one place. A run is one directory; everything about it lives there.

Owns the layout only. Finding and listing runs is ``soak.runs``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from soak.errors import RunStateError


def soak_home() -> Path:
    """Return where runs live: ``$SOAK_HOME``, else ``soak`` under the XDG state directory.

    Raises ``RunStateError`` when it leads nowhere (``~`` of a user that does not exist, a relative one in a directory that is gone), and
    when it is not text on one line.
    """
    if home := os.environ.get("SOAK_HOME"):
        return _absolute(home, "SOAK_HOME")
    state = os.environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):  # the XDG specification: a path that is not absolute is invalid, ignore it
        state = "~/.local/state"
    return _absolute(state, "the home of the runs") / "soak"


def unusable_name(text: str) -> str:
    """Return why no file of a run may have this in its path, "" when it may: stores, JSON and configurations hold it as text."""
    if any("\ud800" <= c <= "\udfff" for c in text):  # how Python shows bytes that are not UTF-8
        return "it is not UTF-8"
    return "it holds a control character" if any(c < " " or c == "\x7f" for c in text) else ""


def _absolute(text: str, what: str) -> Path:
    if why := unusable_name(text):
        raise RunStateError(f"{what} is {text!r}: {why}; set SOAK_HOME to a path without")
    try:
        return Path(text).expanduser().absolute()
    except (OSError, RuntimeError) as error:  # no working directory; pathlib found no home
        missing = error.strerror if isinstance(error, OSError) else "no such user, or one without a home"
        raise RunStateError(f"{what} is {text!r}: {missing}; set SOAK_HOME to an absolute path") from error


@dataclass(frozen=True, slots=True)
class RunDir:
    """Paths of one run."""

    path: Path

    @property
    def id(self) -> str:
        """The run's id: its directory's name."""
        return self.path.name

    @property
    def db(self) -> Path:
        """SQLite store."""
        return self.path / "run.db"

    @property
    def journal(self) -> Path:
        """Write-ahead journal of faults."""
        return self.path / "journal.jsonl"

    @property
    def log(self) -> Path:
        """Structured log, JSON lines."""
        return self.path / "soak.log"

    @property
    def plan(self) -> Path:
        """The plan as run, YAML."""
        return self.path / "plan.yaml"

    @property
    def lock(self) -> Path:
        """Held (flock) by the live daemon; holds its pid and start time as JSON."""
        return self.path / "daemon.lock"

    @property
    def socket(self) -> Path:
        """Control socket (0600)."""
        return self.path / "control.sock"

    @property
    def lab(self) -> Path:
        """Working directory of the lab's processes: rendered configs, pids, logs."""
        return self.path / "lab"

    @property
    def lab_state(self) -> Path:
        """What heal needs to know of the lab: processes with pid, start time and session."""
        return self.lab / "lab.json"

    @property
    def certs(self) -> Path:
        """Certificates (0700; keys 0600)."""
        return self.path / "certs"

    @property
    def live(self) -> Path:
        """Addresses of the live run for other tools: pid, http port, proxy port, t0 (JSON)."""
        return self.path / "live.json"

    @property
    def worker_log(self) -> Path:
        """What load workers wrote to stderr."""
        return self.path / "worker.log"

    @property
    def guardian_log(self) -> Path:
        """What the guardian did."""
        return self.path / "guardian.log"
