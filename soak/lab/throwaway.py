"""A lab without a run: a directory of its own that goes when the lab goes, whoever ends it.

``soak lab`` brings one up for people. When its process is killed, the guardian opens the directory with
``soak.lab.open_throwaway``, ends what is left and removes it. A marker in the directory says that it may be removed:
nothing else ever is.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from chaos.model import Evidence
from chaos.target import Target
from soak.errors import LabError
from soak.lab.sweep import release
from soak.rundir import RunDir

_MARKER = "throwaway"


def create_throwaway(home: Path) -> RunDir:
    """Make a directory (0700) under ``home``, or where temporary files go when that cannot be written.

    Raises ``LabError`` when neither can.
    """
    path = ""
    with suppress(OSError):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = tempfile.mkdtemp(prefix="lab-", dir=home)
    try:
        run = RunDir(Path(path or tempfile.mkdtemp(prefix="soak-lab-")).absolute())
        run.lab.mkdir()
        (run.path / _MARKER).touch()
    except OSError as error:
        raise LabError(f"neither {home} nor the temporary directory can be written: {error}") from error
    return run


def remove_throwaway(run: RunDir) -> None:
    """Remove the directory, unless it is not marked as one to throw away. Idempotent."""
    if (run.path / _MARKER).is_file():
        shutil.rmtree(run.path, ignore_errors=True)


class ThrowawayHealable:
    """A throwaway lab whose process is dead: healing it is ending its processes and removing its directory."""

    disposable = True

    def __init__(self, run: RunDir) -> None:
        self._run = run

    async def release(self) -> Evidence:
        """End every process of the lab, by identity; then remove the directory."""
        evidence = await release(self._run)
        if evidence.ok:
            await asyncio.to_thread(remove_throwaway, self._run)
        return evidence

    def target(self) -> Target | None:
        """Return None: there is nothing to play undos against."""
        return None
