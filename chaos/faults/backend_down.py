"""Stop one backend in the regular way, as a deployment or a drained host does."""

from __future__ import annotations

from chaos.fault import FaultContext
from chaos.faults._backend import BackendFault
from chaos.model import Undo
from chaos.target import BackendState


class BackendDown(BackendFault):
    """SIGTERM; the port is closed until the revert starts the backend again."""

    name = "backend-down"
    summary = "Stops one backend with SIGTERM and starts it again at the revert."
    needs = frozenset({"backend_stop"})
    gone = BackendState.STOPPED

    async def inject(self, ctx: FaultContext, undo: Undo) -> None:
        """End exactly the process that was prepared."""
        await ctx.target.backend_stop(undo.target, undo.identity, force=False)

    async def revert(self, ctx: FaultContext, undo: Undo) -> None:
        """Start it on its old address."""
        await ctx.target.backend_start(undo.target)


FAULT = BackendDown()
