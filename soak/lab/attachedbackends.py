"""Backends that somebody else runs, as faults see them: taken away and brought back, each proven by identity before it is touched.

Satisfies ``chaos.target.Backends``, for a live run and for a healer alike. They are soak's own origins, so one counts as running when
it answers by its name at its address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from chaos.target import BackendState, BackendStatus, Identity, IdentityChangedError, TargetError
from soak.clock import NS, Clock
from soak.lab.attached import Seen, Thing
from soak.lab.attachedtls import OriginTls, tls_missing
from soak.lab.backends import answers
from soak.proxies.base import BackendAddress

_POLL_S = 0.05


class AttachedBackends:
    """Things by name, with the address of each."""

    def __init__(
        self,
        things: Mapping[str, Thing],
        addresses: Sequence[BackendAddress],
        clock: Clock,
        *,
        start_timeout_s: float,
        tls: OriginTls | None = None,
    ) -> None:
        """``tls`` is the certificate that those with a ``tls_port`` must show to count as back; None: that is not asked."""
        self._things = things
        self._addresses = {address.name: address for address in addresses}
        self._clock = clock
        self._start_timeout_s = start_timeout_s
        self._tls = tls
        self._locks = {name: asyncio.Lock() for name in self._addresses}

    def backend_names(self) -> Sequence[str]:
        """Return the names, in order."""
        return tuple(self._addresses)

    async def backend_status(self, name: str) -> BackendStatus:
        """Look at it, then ask it who it is. One that runs and does not answer as itself counts as hung."""
        thing, address = self._named(name)
        seen = await thing.look()
        if seen.state is BackendState.STOPPED:
            if await answers(address):
                raise TargetError(
                    f"{name} does not run, but something answers by its name on {address.host}:{address.port}; "
                    "is its pid_file, or its label, that of another one?"
                )
            return BackendStatus(name, BackendState.STOPPED, {})
        running = seen.state is BackendState.RUNNING and await answers(address)
        return BackendStatus(name, BackendState.RUNNING if running else BackendState.HUNG, seen.identity)

    async def backend_stop(self, name: str, identity: Identity, *, force: bool) -> None:
        """End it: SIGTERM, or SIGKILL when ``force``; returns once it is gone."""
        thing, _ = self._named(name)
        async with self._locks[name]:
            await thing.end(identity, force=force)

    async def backend_start(self, name: str) -> Identity:
        """Start it where it was; returns once it answers. One that runs is success as it is, whoever started it."""
        thing, address = self._named(name)
        async with self._locks[name]:
            if (await thing.look()).state is BackendState.STOPPED:
                await thing.begin()
            return (await self._until_answering(thing, address)).identity

    async def backend_pause(self, name: str, identity: Identity) -> None:
        """Suspend it."""
        thing, _ = self._named(name)
        async with self._locks[name]:
            await thing.suspend(identity)

    async def backend_resume(self, name: str, identity: Identity) -> None:
        """Let it go on. When another one runs in its place, nothing is suspended any more, and nothing is touched."""
        thing, _ = self._named(name)
        async with self._locks[name]:
            try:
                await thing.resume(identity)
            except IdentityChangedError:
                if (await thing.look()).state is not BackendState.RUNNING:
                    raise

    def _named(self, name: str) -> tuple[Thing, BackendAddress]:
        if name not in self._addresses:
            raise TargetError(f"there is no backend {name!r}; there are {', '.join(self._addresses)}")
        return self._things[name], self._addresses[name]

    async def _until_answering(self, thing: Thing, address: BackendAddress) -> Seen:
        deadline = self._clock.monotonic_ns() + int(self._start_timeout_s * NS)
        why = "it does not run"
        with suppress(TimeoutError):
            async with asyncio.timeout(self._start_timeout_s):
                while self._clock.monotonic_ns() < deadline:
                    seen = await thing.look()
                    missing = await self._missing(seen, address)
                    if missing is None:
                        return seen
                    why = missing
                    await self._clock.sleep(_POLL_S)
        raise TargetError(
            f"{thing.name} is not back at {address.host}:{address.port} within {self._start_timeout_s:g} s: {why}"
        )

    async def _missing(self, seen: Seen, address: BackendAddress) -> str | None:
        """Return why one is not back yet; None when it is."""
        if seen.state is BackendState.STOPPED:
            return "it does not run"
        if seen.state is not BackendState.RUNNING or not await answers(address):
            return f"it is {seen.state} and does not answer"
        return None if self._tls is None else await tls_missing(address, self._tls)
