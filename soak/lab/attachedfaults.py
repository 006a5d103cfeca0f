"""What only containers can show, done to containers of somebody else: off the network, and held back; and the way back.

For a live attach lab and for a healer alike. A thing that is a process is refused with a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chaos.target import Identity, IdentityChangedError, TargetError
from soak.lab import containerfaults
from soak.lab.attached import Thing
from soak.lab.attachedcontainer import AttachedContainer
from soak.lab.attachments import Attachments


class AttachedFaults:
    """Satisfies ``chaos.target.Partitions`` and ``chaos.target.Throttles`` for what is attached."""

    @property
    def _attached(self) -> Attachments:
        raise NotImplementedError

    async def backend_networks(self, name: str) -> Mapping[str, Any]:
        """Return which networks a backend is on, with its fixed address in each."""
        thing = self._backend(name)
        return await containerfaults.networks_of(thing.engine, name, await thing.container())

    async def backend_disconnect(self, name: str, identity: Identity) -> None:
        """Take a backend off every network."""
        await containerfaults.disconnect(self._backend(name).engine, name, identity)

    async def backend_reconnect(self, name: str, identity: Identity, networks: Mapping[str, Any]) -> None:
        """Put it back at its old addresses, restarted or not; a container that was made anew is another one."""
        thing = self._backend(name)
        await containerfaults.reconnect(thing.engine, await self._same(thing, identity), networks)

    async def proxy_limits(self) -> Mapping[str, Any]:
        """Return what the proxy may use, and for the way back what its companions may."""
        thing = self._proxy_container()
        limits = await containerfaults.limits_of(thing.engine, await thing.container())
        beside = {}
        for name, one in self._companions().items():
            container = await one.container()
            beside[name] = {"container": container, **await containerfaults.limits_of(one.engine, container)}
        return {**limits, "companions": beside} if beside else limits

    async def proxy_tighten(self, identity: Identity, *, cpus: float, memory_bytes: int) -> None:
        """Let the proxy and its companions use less."""
        engine = self._proxy_container().engine
        await containerfaults.tighten(engine, "the proxy", identity, cpus, memory_bytes)
        for name, one in self._companions().items():
            now = (await one.look()).identity
            await containerfaults.tighten(one.engine, name, now, cpus, memory_bytes)

    async def proxy_loosen(self, identity: Identity, limits: Mapping[str, Any]) -> None:
        """Give them back exactly what they had."""
        thing = self._proxy_container()
        beside = self._companions()
        await containerfaults.loosen(thing.engine, await self._same(thing, identity), limits)
        for name, before in limits.get("companions", {}).items():
            await containerfaults.loosen(beside[name].engine, await self._same(beside[name], before), before)

    async def proxy_held_back_s(self) -> float | None:
        """Return how long threads were held back by a limit of CPU, added up since the start of each container."""
        things = (self._proxy_container(), *self._companions().values())
        held = [await containerfaults.held_back_s(one.engine, await one.container()) for one in things]
        seen = [seconds for seconds in held if seconds is not None]
        return sum(seen) if len(seen) == len(held) else None

    def _backend(self, name: str) -> AttachedContainer:
        if name not in self._attached.backends:
            raise TargetError(f"there is no backend {name!r}; there are {', '.join(self._attached.backends)}")
        return _container(self._attached.backends[name], "taken off the network")

    def _proxy_container(self) -> AttachedContainer:
        return _container(self._attached.proxy, "held back")

    def _companions(self) -> Mapping[str, AttachedContainer]:
        """Return those that are containers: a process beside a container cannot be held back."""
        things = self._attached.companions.items()
        return {name: one for name, one in things if isinstance(one, AttachedContainer)}

    @staticmethod
    async def _same(thing: AttachedContainer, identity: Identity) -> str:
        container = await thing.container()
        if container != identity["container"]:
            raise IdentityChangedError(
                f"{thing.name} is the container {container[:12]} now, not {str(identity['container'])[:12]}; it was not touched"
            )
        return container


def _container(thing: Thing, what: str) -> AttachedContainer:
    if not isinstance(thing, AttachedContainer):
        raise TargetError(f"{thing.name} is a process of this host, and only a container can be {what}")
    return thing
