"""Companions of a proxy that is a container: containers beside it, in its network, so that they reach each other on loopback.

They see the directory of the proxy where the proxy sees it, may use as much as it may, and go with it: they carry the labels of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from chaos.target import Identity
from soak.clock import Clock
from soak.errors import LabError
from soak.lab.checking import Checked
from soak.lab.companions import Companions, part_of
from soak.lab.containers import ContainerSpec
from soak.lab.dockerorigins import OwnContainer
from soak.lab.dockerstate import labels_of, name_of
from soak.lab.engine import Engine
from soak.lab.enginewords import EngineError
from soak.lab.identified import Identified
from soak.lab.process import tail
from soak.proxies.companion import Companion
from soak.rundir import RunDir

_ROLE = "companion"


class CompanionContainer(Identified):
    """One companion."""

    def __init__(self, own: OwnContainer, identity: Identity, engine: Engine, log: Path) -> None:
        super().__init__(own, identity)
        self.own = own
        self._engine = engine
        self._log = log
        self._how = "still running"

    async def settled(self) -> None:
        """Look, and learn how it ended."""
        if await self.look():
            return
        try:
            self._how = (await self._engine.inspect(self.own.made_id)).how_ended
        except EngineError as error:
            self._how = str(error)

    def words(self) -> str:
        """Say how it ended and what it said last."""
        said = tail(self._log)
        return f"{self._how}; it said:\n{said}" if said else f"{self._how}; it said nothing"


class CompanionContainers(Companions[CompanionContainer]):
    """The companions of a proxy's container."""

    def __init__(
        self,
        run: RunDir,
        clock: Clock,
        engine: Engine,
        *,
        images: Mapping[str, str],
        proxy: ContainerSpec,
        host: str,
        start_timeout_s: float,
    ) -> None:
        """``images`` are those of the companions, by name; ``proxy`` describes the container beside which they run."""
        super().__init__(run, clock, host=host, start_timeout_s=start_timeout_s)
        self._engine = engine
        self._images = images
        self._proxy = proxy
        self._beside = ""

    def beside(self, container: str) -> None:
        """Say which container the proxy runs in, before any companion is started."""
        self._beside = container

    async def look(self) -> None:
        """Look at each: nobody tells when one ends."""
        for one in self.members():
            await one.settled()

    def containers(self) -> Mapping[str, str]:
        """Return the id of each one's container, by what it is called among the parts of the lab."""
        return {one.own.name: one.own.made_id for one in self.members()}

    async def check(self, name: str, command: Sequence[str], *, timeout_s: float) -> Checked:
        """Run a command where this companion runs, or in a container of its image before there is one."""
        for one in self.members():
            if one.own.name == part_of(name):
                return await one.own.run(command, timeout_s=timeout_s)
        spec = self._spec(name, command)
        try:
            done = await self._engine.run(
                replace(spec, name=f"{spec.name}-check", joins=""), timeout_s=timeout_s
            )
        except EngineError as error:
            return Checked(None, str(error))
        return Checked(done.code, done.output)

    async def _launch(self, wanted: Companion, log: Path) -> CompanionContainer:
        own = OwnContainer(part_of(wanted.name), self._spec(wanted.name, wanted.command), self._engine)
        identity = await own.make()
        self._engine.follow(own.made_id, log)
        return CompanionContainer(own, identity, self._engine, log)

    def _spec(self, name: str, command: Sequence[str]) -> ContainerSpec:
        if name not in self._images:
            raise LabError(
                f"soak knows no image of {name}, without which this proxy is not whole; run it in the local lab"
            )
        part = part_of(name)
        return replace(
            self._proxy,
            name=name_of(self._run, part),
            image=self._images[name],
            argv=command,
            labels=labels_of(self._run, _ROLE, name),
            network=None,
            address=None,
            ports={},
            reads=(),
            joins=self._beside,
        )
