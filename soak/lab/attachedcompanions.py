"""Companions of a proxy that somebody else runs: found beside it, told of what changes, and told again when its own files are back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.target import BackendState, Identity
from soak.clock import Clock
from soak.errors import LabError
from soak.lab.attached import Thing
from soak.lab.attachedfiles import first_model
from soak.lab.checking import Checked
from soak.lab.companions import SAY_TIMEOUT_S, companions_of, part_of
from soak.lab.companionthings import CompanionThing, CompanionThings
from soak.lab.errorlog import ErrorLog
from soak.lab.identified import Identified
from soak.lab.reloading import Said, by_signal
from soak.plan import Plan
from soak.proxies.catalog import adapter_of
from soak.proxies.companion import Companion, companion_output_of


class AttachedCompanions(CompanionThings):
    """The companions of an attached proxy: none is ever started or ended."""

    def __init__(
        self, directory: Path, clock: Clock, things: Mapping[str, Thing], *, host: str, start_timeout_s: float
    ) -> None:
        """``things`` are those of the plan, by the name of the part."""
        super().__init__(directory, clock, host=host, start_timeout_s=start_timeout_s)
        self._things = things

    async def _check_apart(self, name: str, command: Sequence[str], timeout_s: float) -> Checked:
        return await self._thing(name).run(command, timeout_s=timeout_s)

    async def _launch(self, wanted: Companion, log: Path) -> CompanionThing:
        thing = self._thing(wanted.name)
        seen = await thing.look()
        if seen.state is not BackendState.RUNNING:
            raise LabError(f"{wanted.name} is {seen.state}; start it, for soak never does")
        return CompanionThing(thing, seen.identity, log)

    def _thing(self, name: str) -> Thing:
        if part_of(name) not in self._things:
            raise LabError(
                f"the proxy is not whole without {name}; say where it runs in lab.attach.proxy.companions"
            )
        return self._things[part_of(name)]


@dataclass(frozen=True, slots=True)
class Beside:
    """A companion as a run found it."""

    wanted: Companion
    thing: Thing
    identity: Identity
    log: Path

    async def tell(self, clock: Clock) -> Said:
        """Have it read its files, if it still is the one that was found."""
        running = Identified(self.thing, self.identity)
        if not await running.look():
            return Said("gone")
        return await by_signal(self.wanted, running, ErrorLog(self.log), clock, SAY_TIMEOUT_S)


def beside_of(plan: Plan, things: Mapping[str, Thing], known: Mapping[str, Identity]) -> tuple[Beside, ...]:
    """Return the companions that a run found, for whoever gives the proxy its own files back."""
    where = plan.lab.attach
    if where is None or not things:
        return ()
    # Only its words and its signal count here, and those depend on no binary.
    wanted = companions_of(adapter_of(plan.proxy), Path(plan.proxy.kind), first_model(plan, where))
    directory = Path(where.proxy.directory)
    return tuple(
        Beside(one, things[part], known.get(part, {}), companion_output_of(directory, one.name))
        for one in wanted
        if (part := part_of(one.name)) in things
    )
