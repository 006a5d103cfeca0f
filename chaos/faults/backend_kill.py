"""Kill one backend without notice, as the out-of-memory killer or a power cut does."""

from __future__ import annotations

from chaos.fault import FaultContext
from chaos.faults._backend import BackendFault
from chaos.model import Undo
from chaos.target import BackendState


class BackendKill(BackendFault):
    """SIGKILL: requests in flight are cut, nothing is drained."""

    name = "backend-kill"
    summary = (
        "Kills one backend with SIGKILL, in the middle of its requests, and starts it again at the revert."
    )
    needs = frozenset({"backend_stop"})
    gone = BackendState.STOPPED

    async def inject(self, ctx: FaultContext, undo: Undo) -> None:
        """Kill exactly the process that was prepared."""
        await ctx.target.backend_stop(undo.target, undo.identity, force=True)

    async def revert(self, ctx: FaultContext, undo: Undo) -> None:
        """Start it on its old address."""
        await ctx.target.backend_start(undo.target)


FAULT = BackendKill()
