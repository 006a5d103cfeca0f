"""What is known by its identity alone: a container, or a process of somebody else. No child of ours, so nobody tells when it ends.

It is asked for a reload only while it is the same one as before: what was started anew in its place is another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import Signals

from chaos.target import BackendState, Identity, IdentityChangedError
from soak.clock import Clock
from soak.lab.attached import Thing
from soak.lab.errorlog import ErrorLog
from soak.lab.reloading import CALL_TIMEOUT_S, Said, ask
from soak.lab.topology import LOOPBACK
from soak.proxies.base import ProxyAdapter, ReloadContext, ReloadKind

_MAIN_PID = 1
"""Who is told in a container."""


class Identified:
    """A running thing behind an identity, as far as reloads are concerned."""

    def __init__(self, thing: Thing, identity: Identity) -> None:
        self._thing = thing
        self.identity = identity
        self.alive = True
        """Whether it was still the same at the last look."""

    async def look(self) -> bool:
        """Look whether it still is the same one."""
        seen = await self._thing.look()
        self.alive = seen.state is not BackendState.STOPPED and dict(seen.identity) == dict(self.identity)
        return self.alive

    async def run(self, command: Sequence[str]) -> tuple[int | None, str]:
        """Run a command where it runs; returns its status, None when it could not be run, and what it said."""
        done = await self._thing.run(command, timeout_s=CALL_TIMEOUT_S)
        return done.code, done.words

    async def signal(self, number: Signals) -> None:
        """Send a signal to its main process. Raises ``IdentityChangedError`` when it is gone or another one."""
        try:
            await self._thing.signal(self.identity, number)
        except IdentityChangedError:
            self.alive = False
            raise


async def ask_for_reload(
    adapter: ProxyAdapter,
    running: Identified,
    log: ErrorLog,
    clock: Clock,
    *,
    directory: Path,
    ports: Mapping[str, int],
    host: str = LOOPBACK,
    inside: Path | None = None,
    kind: ReloadKind | None = None,
) -> Said:
    """Ask the proxy for a reload the way its adapter knows; one that is not the same any more is not asked."""
    if not await running.look():
        return Said("gone")
    pid = int(running.identity.get("pid", _MAIN_PID))
    run = running.run if "container" in running.identity else None
    context = ReloadContext(directory, pid, ports, CALL_TIMEOUT_S, kind, run, host, inside)
    try:
        return await ask(adapter, running, log, clock, context)
    finally:
        await running.look()
