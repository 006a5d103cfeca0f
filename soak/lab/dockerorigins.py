"""The origins of a docker lab: containers of soak's own image with fixed addresses, taken away and brought back.

Satisfies ``chaos.target.Backends`` and ``chaos.target.Partitions``. One that somebody removed is made anew, at its old address, when it
is to be started: the lab is soak's own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from certs.install import install_pair
from chaos.target import Identity, TargetError
from soak.clock import Clock
from soak.errors import LabError
from soak.lab.attached import Role
from soak.lab.attachedbackends import AttachedBackends
from soak.lab.attachedcontainer import AttachedContainer
from soak.lab.containerfaults import disconnect, networks_of, reconnect
from soak.lab.containers import ContainerSpec
from soak.lab.dockerstate import labels_of, name_of
from soak.lab.engine import Engine
from soak.lab.enginewords import ContainerGoneError, for_faults
from soak.lab.shared import Shared, create, stats_of
from soak.proxies.base import BackendAddress
from soak.rundir import RunDir

SHARE = "/run/soak"
"""Where an origin's container sees the directory that all of them share."""
_SHARED = "origins.shared"
_CERTIFICATE, _KEY = "origin.pem", "origin.key"


class OwnContainer(AttachedContainer):
    """A container of the lab's own: made from its description, and made anew when somebody has removed it."""

    def __init__(self, part: str, spec: ContainerSpec, engine: Engine) -> None:
        super().__init__(part, spec.labels, engine)
        self.spec = spec
        self._door = engine

    @property
    def made_id(self) -> str:
        """Id of the container that was made. Raises ``TargetError`` before it is made."""
        if "container" not in self._known:
            raise TargetError(f"{self.name} has no container yet")
        return str(self._known["container"])

    async def make(self) -> Identity:
        """Make and start it, and return who it is. Raises ``EngineError``."""
        made = await self._door.create(self.spec)
        self._known = {"container": made}
        await self._door.start(made)
        self._known = (await self._door.inspect(made)).identity
        return self._known

    async def begin(self) -> None:
        """Start it, and make it first if somebody removed it."""
        with for_faults():
            try:
                await self._door.start(self.made_id)
            except ContainerGoneError:
                await self.make()


def user() -> str:
    """Return whom containers run as: this very user, so that both can read and write what they share."""
    return f"{os.geteuid()}:{os.getegid()}"


def origin_spec(
    run: RunDir, image: str, network: str, address: BackendAddress, row: int, *, directory: Path
) -> ContainerSpec:
    """Describe one origin's container."""
    argv = ["python3", "-P", "-m", "soak.lab.origin", "--stay", "--name", address.name]
    argv += ["--host", "0.0.0.0", "--port", str(address.port)]  # noqa: S104 - a network of its own
    argv += ["--shared", f"{SHARE}/{_SHARED}", "--row", str(row)]
    if address.tls_port:
        argv += ["--tls-port", str(address.tls_port)]
        argv += ["--certificate", f"{SHARE}/{_CERTIFICATE}", "--key", f"{SHARE}/{_KEY}"]
    return ContainerSpec(
        name=name_of(run, address.name),
        image=image,
        argv=argv,
        labels=labels_of(run, Role.BACKEND, address.name),
        network=network,
        address=address.host,
        binds={directory: SHARE},
        directory="/",
        user=user(),
    )


class DockerOrigins(AttachedBackends):
    """Origins as containers of one network."""

    def __init__(
        self,
        engine: Engine,
        containers: Mapping[str, OwnContainer],
        addresses: Sequence[BackendAddress],
        clock: Clock,
        *,
        directory: Path,
        start_timeout_s: float,
    ) -> None:
        super().__init__(containers, addresses, clock, start_timeout_s=start_timeout_s)
        self._engine = engine
        self._containers = containers
        self._directory = directory
        self._counted: dict[str, memoryview] = {}
        self.away: set[str] = set()
        """Origins that a fault has ended: their end is no news."""

    async def start_all(self) -> None:
        """Make and start every origin, at the same time; returns once all answer. Raises ``LabError`` with the words of the first that does not."""
        await asyncio.to_thread(self._share)
        outcomes = await asyncio.gather(*map(self._bring_up, self._containers), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def backend_stop(self, name: str, identity: Identity, *, force: bool) -> None:
        """End it: SIGTERM, or SIGKILL when ``force``; returns once it is gone."""
        self.away.add(name)
        try:
            await super().backend_stop(name, identity, force=force)
        except TargetError:
            self.away.discard(name)
            raise

    async def backend_start(self, name: str) -> Identity:
        """Start it at its old address; returns once it answers."""
        identity = await super().backend_start(name)
        self.away.discard(name)
        return identity

    async def backend_networks(self, name: str) -> Mapping[str, Any]:
        """Return which networks it is on."""
        return await networks_of(self._engine, name, self._container(name))

    async def backend_disconnect(self, name: str, identity: Identity) -> None:
        """Take it off them."""
        await disconnect(self._engine, name, identity)

    async def backend_reconnect(self, name: str, identity: Identity, networks: Mapping[str, Any]) -> None:
        """Put it back on them. One that was removed meanwhile is made anew there by ``backend_start``."""
        del identity
        try:
            await reconnect(self._engine, self._container(name), networks)
        except TargetError as error:
            if not isinstance(error.__cause__, ContainerGoneError):
                raise

    def stats(self, name: str) -> Mapping[str, Any]:
        """Return what it counted since the lab started, restarts included. Raises ``TargetError``."""
        if name not in self._counted:
            raise TargetError(f"there is no backend {name!r}; there are {', '.join(self._counted)}")
        return stats_of(self._counted[name])

    def containers(self) -> Mapping[str, str]:
        """Return the id of each origin's container, by name."""
        return {name: one.made_id for name, one in self._containers.items()}

    def certify(self, chain_pem: bytes, key_pem: bytes) -> None:
        """Give the origins a certificate of their own, which no rotation touches."""
        install_pair(
            chain_pem, key_pem, certificate=self._directory / _CERTIFICATE, key=self._directory / _KEY
        )

    def _container(self, name: str) -> str:
        if name not in self._containers:
            raise TargetError(f"there is no backend {name!r}; there are {', '.join(self._containers)}")
        return self._containers[name].made_id

    def _share(self) -> None:
        path = self._directory / _SHARED
        try:
            create(path)
            for row, name in enumerate(self._containers):
                self._counted[name] = Shared.open(path, row).counters
        except (OSError, ValueError) as error:
            raise LabError(f"the origins cannot share {path}: {error}") from error

    async def _bring_up(self, name: str) -> None:
        one = self._containers[name]
        await one.make()
        try:
            await self.backend_start(name)  # it runs: this waits until it answers
        except TargetError as error:
            said = await self._engine.logs(one.made_id)
            raise LabError(
                f"the origin {name} did not come up: {error}; it said: {said or 'nothing'}"
            ) from error
