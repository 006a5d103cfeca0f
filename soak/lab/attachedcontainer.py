"""A proxy or a backend that somebody else runs as a container, found by its labels.

``soak.run=NAME`` says to which run's subjects it belongs, ``soak.role=proxy|backend`` what it is, ``soak.name=b1`` which backend.
A container that was made anew under the same labels is another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import Signals

from chaos.target import BackendState, Identity, TargetError
from soak.lab.attached import Role, Seen, changed
from soak.lab.checking import Checked
from soak.lab.containers import Container
from soak.lab.containervitals import look_at_container
from soak.lab.engine import Engine
from soak.lab.enginewords import ContainerGoneError, EngineError, for_faults
from soak.lab.inside import shim
from soak.model import Vital
from soak.proxies.base import ProxyAdapter

RUN_LABEL = "soak.run"
ROLE_LABEL = "soak.role"
NAME_LABEL = "soak.name"
_GRACE_S = 5


def labels_of(run: str, role: Role, name: str) -> Mapping[str, str]:
    """Return the labels that tell one container from all others."""
    found = {RUN_LABEL: run, ROLE_LABEL: role.value}
    return found if role is Role.PROXY else found | {NAME_LABEL: name}


class AttachedContainer:
    """One container. ``known`` is who it was when it was last seen."""

    def __init__(
        self, name: str, labels: Mapping[str, str], engine: Engine, *, known: Identity | None = None
    ) -> None:
        self.name = name
        self._labels = labels
        self.engine = engine
        self._known: Identity = {} if known is None else known

    async def look(self) -> Seen:
        """Look at the container that is known, else at the one that carries the labels. Raises ``TargetError`` when several do."""
        with for_faults():
            found = await self._find()
        if found is None or not found.alive:
            return Seen(BackendState.STOPPED, {})
        self._known = found.identity
        return Seen(BackendState.HUNG if found.state == "paused" else BackendState.RUNNING, found.identity)

    async def begin(self) -> None:
        """Start the container that is known; one that was removed is not made anew."""
        container = str(self._known.get("container", ""))
        with for_faults():
            try:
                await self.engine.start(container)
            except ContainerGoneError as error:
                raise TargetError(
                    f"the container of {self.name} was removed, and soak never makes one; "
                    f"make it again (docker compose up -d {self.name})"
                ) from error

    async def end(self, identity: Identity, *, force: bool) -> None:
        """Stop it, or kill it when ``force``; a paused one is unpaused first, for it could not end."""
        with for_faults():
            found = await self._proven(identity)
            if found.state == "paused":
                await self.engine.unpause(found.id)
            if force:
                await self.engine.kill(found.id)
            await self.engine.stop(found.id, grace_s=_GRACE_S)  # returns once it is gone

    async def suspend(self, identity: Identity) -> None:
        """Pause it."""
        with for_faults():
            await self.engine.pause((await self._proven(identity)).id)

    async def resume(self, identity: Identity) -> None:
        """Unpause it."""
        with for_faults():
            await self.engine.unpause((await self._proven(identity)).id)

    async def signal(self, identity: Identity, number: Signals) -> None:
        """Send a signal to its main process."""
        with for_faults():
            await self.engine.kill((await self._proven(identity)).id, number.name)

    async def run(self, command: Sequence[str], *, timeout_s: float) -> Checked:
        """Run a command in the container."""
        try:
            done = await self.engine.exec(str(self._known["container"]), command, timeout_s=timeout_s)
        except (EngineError, KeyError) as error:
            return Checked(None, str(error))
        return Checked(done.code, done.output.strip())

    async def vital(self, at_s: float, adapter: ProxyAdapter | None) -> Vital:
        """Read what the kernel counts for it, and its processes."""
        return await look_at_container(
            self.engine, str(self._known.get("container", "")), self.name, at_s, adapter
        )

    async def container(self) -> str:
        """Return the id of the present container, running or not. Raises ``TargetError`` when there is none."""
        with for_faults():
            found = await self._find()
        if found is None:
            raise TargetError(f"there is no container of {self.name} any more; somebody removed it")
        return found.id

    def stand_in(self, path: Path, program: str) -> Path:
        """Write an executable that runs a program of this container, and return it."""
        return shim(path, engine=self.engine.host, container=str(self._known["container"]), program=program)

    async def _find(self) -> Container | None:
        if container := self._known.get("container"):
            try:
                return await self.engine.inspect(str(container))
            except ContainerGoneError:
                pass
        found = await self.engine.list(self._labels)
        if len(found) > 1:
            shown = " ".join(f"{key}={value}" for key, value in self._labels.items())
            names = ", ".join(one.name for one in found)
            raise EngineError(
                f"{len(found)} containers carry the labels {shown} of {self.name}: {names}; leave one"
            )
        return await self.engine.inspect(found[0].id) if found else None

    async def _proven(self, identity: Identity) -> Container:
        """Return the container when it is the one that was prepared. Raises ``IdentityChangedError``."""
        try:
            found = await self.engine.inspect(str(identity.get("container", "")))
        except ContainerGoneError as error:
            raise changed(self.name, identity, {}) from error
        if found.identity != dict(identity):
            raise changed(self.name, identity, found.identity)
        return found
