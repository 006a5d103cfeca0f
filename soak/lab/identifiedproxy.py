"""A proxy behind a thing that a lab made or found, with its companions. No child of ours, so nobody tells when it ends."""

from __future__ import annotations

from pathlib import Path

from chaos.target import BackendState, TargetError
from soak.lab.attached import Thing
from soak.lab.companionthings import CompanionThings
from soak.lab.configured import ConfiguredProxy, ProxySetup
from soak.lab.identified import Identified, ask_for_reload
from soak.lab.reloading import Said
from soak.proxies.base import ReloadKind


class IdentifiedProxy(ConfiguredProxy):
    """The proxy. A subclass says what stands beside it, and how its directory is called inside."""

    def __init__(self, setup: ProxySetup, thing: Thing, companions: CompanionThings) -> None:
        super().__init__(setup)
        self._thing = thing
        self._beside = companions
        self._identified: Identified | None = None
        self._inside: Path | None = None
        """The directory of the proxy as the proxy sees it; None: by the same path."""

    async def _identify(self) -> BackendState:
        """Take for the proxy whatever the thing is now; returns how that is."""
        seen = await self._thing.look()
        self._identified = Identified(self._thing, seen.identity)
        return seen.state

    def _running(self) -> Identified:
        if self._identified is None:
            raise TargetError("the proxy is not there yet")
        return self._identified

    async def _reload(self, kind: ReloadKind | None = None) -> Said:
        """Ask for a reload, first the companions whose files have changed."""
        await self._beside.look()
        return await self._beside.reload(lambda: self._ask(kind), everyone=kind is ReloadKind.FULL)

    async def _ask(self, kind: ReloadKind | None) -> Said:
        return await ask_for_reload(
            self._adapter,
            self._running(),
            self.log,
            self._clock,
            directory=self._directory,
            ports=self._topology.ports,
            host=self._topology.proxy.host,
            inside=self._inside,
            kind=kind,
        )

    async def _take_back(self) -> None:
        await super()._take_back()
        await self._beside.refresh()

    async def _has_ended(self) -> bool:
        await self._beside.look()
        return not await self._running().look() or bool(self._beside.ended())
