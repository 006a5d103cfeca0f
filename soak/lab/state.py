"""``lab.json``: what a stranger process must know to end a lab whose daemon is dead.

Written whole and atomically before and after every spawn. A missing or torn file is no error: then the processes prove
themselves in other ways (``soak.lab.sweep``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from certs.install import write_atomically
from chaos.regular import read_regular
from chaos.target import Identity
from soak.rundir import RunDir


def boot_id() -> str:
    """Return the kernel's id of this boot: start times of another boot prove nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def marker_of(run: RunDir) -> Path:
    """Return the empty file that the proxy gets as its standard input.

    A proxy that titles its processes overwrites its environment (nginx), so the run's mark there is lost; an open
    descriptor is inherited by every worker and cannot be lost that way.
    """
    return run.lab / "proxy.stdin"


def output_of(run: RunDir) -> Path:
    """Return the file that the proxy gets as its output. A shell's background job loses its input, but not this."""
    return run.lab / "proxy.out"


@dataclass(slots=True)
class ProcessEntry:
    """One process of the lab as recorded. ``identity`` is empty between the intent to spawn and the spawn."""

    argv: Sequence[str]
    identity: Identity = field(default_factory=dict)
    executables: Sequence[str] = ()
    """What the processes of this entry were seen to run (behind wrappers and launchers)."""


class LabState:
    """The record of the lab's processes, by name; every change is on disk before it is relied upon."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self.processes: dict[str, ProcessEntry] = {}

    def intend(self, name: str, argv: Sequence[str]) -> None:
        """Record that this process is about to be started."""
        self.processes[name] = ProcessEntry(tuple(argv))
        self._write()

    def started(self, name: str, identity: Identity, executables: Sequence[str] = ()) -> None:
        """Record who it became."""
        entry = self.processes[name]
        entry.identity = dict(identity)
        entry.executables = tuple(executables)
        self._write()

    def _write(self) -> None:
        value = {
            "schema": 1,
            "kind": "local",
            "run": self._run.id,
            "boot_id": boot_id(),
            "processes": [
                {
                    "name": name,
                    "pid": entry.identity.get("pid"),
                    "started": entry.identity.get("started"),
                    "session": entry.identity.get("pid"),
                    "argv": list(entry.argv),
                    "executables": list(entry.executables),
                }
                for name, entry in self.processes.items()
            ],
        }
        write_atomically(self._run.lab_state, json.dumps(value, indent=1).encode(), mode=0o644)


@dataclass(frozen=True, slots=True)
class RecordedLab:
    """What was read back. Empty when the file is missing, torn, or of another boot."""

    identities: Mapping[str, Identity] = field(default_factory=dict)
    executables: frozenset[str] = frozenset()


def read_state(run: RunDir) -> RecordedLab:
    """Read ``lab.json`` as far as it can be trusted; never raises for its content."""
    try:
        value: Any = json.loads(read_regular(run.lab_state))
        entries = value["processes"] if value["boot_id"] == boot_id() else []
        identities = {
            str(e["name"]): {"pid": int(e["pid"]), "started": float(e["started"])}
            for e in entries
            if e["pid"] is not None
        }
        executables = frozenset(str(x) for e in entries if e["name"] == "proxy" for x in e["executables"])
    except (OSError, ValueError, KeyError, TypeError):
        return RecordedLab()
    return RecordedLab(identities, executables)
