"""``lab.json`` of an attach lab: what a stranger process must know to give back what a dead daemon had borrowed.

Written before the first change: the plan, and who everything was. Without it nothing was changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from certs.install import write_atomically
from chaos.regular import read_regular
from chaos.target import Identity
from soak.errors import RunStateError
from soak.lab.originals import Originals
from soak.plan import Plan
from soak.rundir import RunDir

KIND = "attach"


@dataclass(frozen=True, slots=True)
class Borrowed:
    """What was attached to."""

    plan: Plan
    known: Mapping[str, Identity]
    """Who the proxy and the backends were, by name."""


def originals_of(run: RunDir) -> Originals:
    """Return the originals that this run keeps."""
    return Originals(run.lab / "originals")


def write_borrowed(run: RunDir, borrowed: Borrowed) -> None:
    """Write it down; it is on disk on return. Raises ``OSError``."""
    value = {
        "schema": 1,
        "kind": KIND,
        "run": run.id,
        "plan": borrowed.plan.model_dump(mode="json", by_alias=True),
        "known": {name: dict(identity) for name, identity in borrowed.known.items()},
    }
    write_atomically(run.lab_state, json.dumps(value, indent=1).encode(), mode=0o600)


def read_borrowed(run: RunDir) -> Borrowed | None:
    """Read it back; None when this run attached to nothing.

    Raises ``OSError`` for a file that cannot be read, and ``RunStateError`` for one that cannot be understood.
    """
    try:
        value: Any = json.loads(read_regular(run.lab_state))
    except (FileNotFoundError, ValueError):  # a torn file of a local lab: it is swept, not read
        return None
    if not isinstance(value, dict) or value.get("kind") != KIND:
        return None
    try:
        return Borrowed(Plan.model_validate(value["plan"]), value["known"])
    except (KeyError, ValueError) as error:
        raise RunStateError(
            f"{run.lab_state} is damaged, so nobody knows what the run was attached to"
        ) from error


def still_borrowed(run: RunDir) -> list[str]:
    """Return in words what of somebody else's a dead run has not given back."""
    return ["the proxy's own files to be put back"] if originals_of(run).kept else []
