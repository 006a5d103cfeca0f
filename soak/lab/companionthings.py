"""Companions that are known by their identity alone, as the proxy that they stand beside: containers, or processes of somebody else.

Nobody tells when one ends: it is looked at before it matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from chaos.target import Identity
from soak.lab.attached import Thing
from soak.lab.checking import Checked
from soak.lab.companions import Companions, part_of
from soak.lab.identified import Identified
from soak.lab.process import tail


class CompanionThing(Identified):
    """One companion."""

    def __init__(self, thing: Thing, identity: Identity, log: Path) -> None:
        super().__init__(thing, identity)
        self.thing = thing
        self._log = log
        self._how = "still running"

    async def settled(self) -> None:
        """Look, and learn how it ended."""
        if not await self.look():
            self._how = await self._how_ended()

    def words(self) -> str:
        """Say how it ended and what it said last."""
        said = tail(self._log)
        return f"{self._how}; it said:\n{said}" if said else f"{self._how}; it said nothing"

    async def _how_ended(self) -> str:
        return "it ended or was started anew"


class CompanionThings(Companions[CompanionThing]):
    """The companions of a proxy that is known by its identity."""

    async def look(self) -> None:
        """Look at each."""
        for one in self.members():
            await one.settled()

    async def check(self, name: str, command: Sequence[str], *, timeout_s: float) -> Checked:
        """Run a command where this companion runs."""
        for one in self.members():
            if one.thing.name == part_of(name):
                return await one.thing.run(command, timeout_s=timeout_s)
        return await self._check_apart(name, command, timeout_s)

    async def _check_apart(self, name: str, command: Sequence[str], timeout_s: float) -> Checked:
        """Run a command where the companion would run, before there is one."""
        del command, timeout_s
        return Checked(None, f"{name} does not run yet")
