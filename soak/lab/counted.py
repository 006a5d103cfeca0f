"""What origins that somebody else runs have counted since a run began: their shared table, minus what stood there before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos.target import TargetError
from soak.errors import LabError
from soak.lab.shared import Shared, stats_of


class Counted:
    """A reader of the table. The origins' rows are in the order of their names."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        """Open it and note what it says now. Raises ``LabError`` when that is no table."""
        try:
            self._rows = {name: Shared.open(path, row).counters for row, name in enumerate(names)}
        except (OSError, ValueError) as error:
            raise LabError(
                f"the origins' shared file {path} cannot be used: {error}; 'soak render' makes it, "
                "each origin gets --shared FILE --row I (0, 1, ...), and lab.attach.shared names it"
            ) from error
        self.start()

    def start(self) -> None:
        """Count from now on."""
        self._before = {name: stats_of(row) for name, row in self._rows.items()}

    def since_start(self, name: str) -> Mapping[str, Any]:
        """Return what this origin counted since. Raises ``TargetError`` for an unknown name."""
        if name not in self._rows:
            raise TargetError(f"there is no backend {name!r}; there are {', '.join(self._rows)}")
        return _minus(stats_of(self._rows[name]), self._before[name])


def _minus(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _minus(value, before[key]) if isinstance(value, Mapping) else value - before[key]
        for key, value in now.items()
    }
