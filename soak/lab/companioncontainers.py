"""Companions of a proxy that is a container: containers beside it, in its network, so that they reach each other on loopback.

They see the directory of the proxy where the proxy sees it, may use as much as it may, and go with it: they carry the labels of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from soak.clock import Clock
from soak.errors import LabError
from soak.lab.attached import Role
from soak.lab.checking import Checked
from soak.lab.companions import part_of
from soak.lab.companionthings import CompanionThing, CompanionThings
from soak.lab.containers import ContainerSpec
from soak.lab.dockerorigins import OwnContainer
from soak.lab.dockerstate import labels_of, name_of
from soak.lab.engine import Engine
from soak.lab.enginewords import EngineError
from soak.proxies.companion import Companion
from soak.rundir import RunDir


class CompanionContainer(CompanionThing):
    """One companion in a container that the lab made."""

    def __init__(self, own: OwnContainer, identity: Mapping[str, object], log: Path) -> None:
        super().__init__(own, identity, log)
        self.container = own.made_id
        self._engine = own.engine

    async def _how_ended(self) -> str:
        try:
            return (await self._engine.inspect(self.container)).how_ended
        except EngineError as error:
            return str(error)


class CompanionContainers(CompanionThings):
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
        super().__init__(run.lab / "proxy", clock, host=host, start_timeout_s=start_timeout_s)
        self._run = run
        self._engine = engine
        self._images = images
        self._proxy = proxy
        self._beside = ""

    def beside(self, container: str) -> None:
        """Say which container the proxy runs in, before any companion is started."""
        self._beside = container

    def containers(self) -> Mapping[str, str]:
        """Return the id of each one's container, by what it is called among the parts of the lab."""
        return {one.thing.name: str(one.identity["container"]) for one in self.members()}

    async def _check_apart(self, name: str, command: Sequence[str], timeout_s: float) -> Checked:
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
        return CompanionContainer(own, identity, log)

    def _spec(self, name: str, command: Sequence[str]) -> ContainerSpec:
        if name not in self._images:
            raise LabError(
                f"soak knows no image of {name}, without which this proxy is not whole; run it in the local lab"
            )
        return replace(
            self._proxy,
            name=name_of(self._run, part_of(name)),
            image=self._images[name],
            argv=command,
            labels=labels_of(self._run, Role.COMPANION, name),
            network=None,
            address=None,
            ports={},
            reads=(),
            joins=self._beside,
        )
