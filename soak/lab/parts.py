"""Halves of a target that hand everything on: a lab is made of a proxy and of backends, and those do what faults ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from chaos.model import Evidence
from chaos.target import Backends, BackendStatus, Identity, Proxy
from soak.model import WorkerEnd


class CertifiedProxy(Proxy, Protocol):
    """A proxy that knows which certificate it was given."""

    def serial(self) -> str:
        """Return its serial."""
        ...

    async def worker_ends(self) -> Mapping[int, WorkerEnd]:
        """Return how workers ended lately, by pid, as far as its log says."""
        ...


class HasBackends(ABC):
    """Satisfies ``chaos.target.Backends`` by the part that holds the backends."""

    @abstractmethod
    def _backend_part(self) -> Backends:
        """Return that part. May raise ``LabError`` before the lab is started."""

    def backend_names(self) -> Sequence[str]:
        """Return the names, in order."""
        return self._backend_part().backend_names()

    async def backend_status(self, name: str) -> BackendStatus:
        """Look at one backend now."""
        return await self._backend_part().backend_status(name)

    async def backend_stop(self, name: str, identity: Identity, *, force: bool) -> None:
        """End a backend."""
        await self._backend_part().backend_stop(name, identity, force=force)

    async def backend_start(self, name: str) -> Identity:
        """Start a stopped backend at its old address."""
        return await self._backend_part().backend_start(name)

    async def backend_pause(self, name: str, identity: Identity) -> None:
        """Suspend a backend."""
        await self._backend_part().backend_pause(name, identity)

    async def backend_resume(self, name: str, identity: Identity) -> None:
        """Resume a suspended backend."""
        await self._backend_part().backend_resume(name, identity)


class HasProxy(ABC):
    """Satisfies ``chaos.target.Proxy`` by the part that holds the proxy."""

    @abstractmethod
    def _proxy_part(self) -> CertifiedProxy:
        """Return that part. May raise ``LabError`` before the lab is started."""

    async def proxy_identity(self) -> Identity:
        """Return the identity of the proxy's main process or container."""
        return await self._proxy_part().proxy_identity()

    def generation(self) -> int:
        """Return the config generation that was last asked for and accepted."""
        return self._proxy_part().generation()

    def serial(self) -> str:
        """Return the serial of the certificate that is installed."""
        return self._proxy_part().serial()

    async def apply_generation(self, generation: int, *, kind: str = "") -> Evidence:
        """Render, validate, install, reload."""
        return await self._proxy_part().apply_generation(generation, kind=kind)

    async def apply_broken_config(self) -> Evidence:
        """Have a broken configuration refused."""
        return await self._proxy_part().apply_broken_config()

    async def install_certificate(self, generation: int) -> Mapping[str, Any]:
        """Issue and install a new certificate, reload."""
        return await self._proxy_part().install_certificate(generation)

    async def restore_proxy(self) -> Evidence:
        """Go back to what was last seen to work."""
        return await self._proxy_part().restore_proxy()

    async def worker_ends(self) -> Mapping[int, WorkerEnd]:
        """Return how workers of the proxy ended lately, by pid, as far as its log says."""
        return await self._proxy_part().worker_ends()
