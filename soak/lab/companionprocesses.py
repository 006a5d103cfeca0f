"""Companions of a proxy that is a process: processes beside it, recorded before they are relied upon and marked with the run.

When one dies unasked, that is ``proxy.died`` with its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from soak.clock import Clock
from soak.lab.companions import Companions, part_of
from soak.lab.process import Child, start_child
from soak.lab.state import LabState, marker_of
from soak.proxies.companion import Companion
from soak.rundir import RunDir


class CompanionProcesses(Companions[Child]):
    """Companions as children of ours."""

    def __init__(
        self,
        run: RunDir,
        state: LabState,
        clock: Clock,
        *,
        host: str,
        on_event: Callable[[str, Mapping[str, Any]], None],
        start_timeout_s: float,
    ) -> None:
        super().__init__(run.lab / "proxy", clock, host=host, start_timeout_s=start_timeout_s)
        self._run = run
        self._state = state
        self._on_event = on_event

    async def _launch(self, wanted: Companion, log: Path) -> Child:
        name, argv = part_of(wanted.name), list(wanted.command)
        self._state.intend(name, argv)
        with marker_of(self._run).open("rb") as marker:
            child = await start_child(
                name,
                argv,
                directory=self._run.lab,
                run_id=self._run.id,
                log=log,
                stdin=marker,
                stdout=None,
                on_end=self._on_end,
            )
        child.expected_to_end = True  # its death before it is ready is an error of ``start``, and no event
        self._state.started(name, child.identity)
        return child

    def _ready(self, member: Child) -> None:
        member.expected_to_end = False

    def _on_end(self, child: Child) -> None:
        if child.expected_to_end:
            return
        self._on_event("proxy.died", {**child.end(), "words": child.words()})
