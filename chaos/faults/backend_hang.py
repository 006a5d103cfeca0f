"""Suspend one backend: its port accepts connections (the kernel does), but no answer ever comes.

The hardest loss for a proxy: nothing is refused, so only its own timeouts can tell, and answers that are already in
the socket buffers may still arrive for a moment.
"""

from __future__ import annotations

from chaos.fault import FaultContext
from chaos.faults._backend import BackendFault
from chaos.model import Undo
from chaos.target import BackendState, IdentityChangedError


class BackendHang(BackendFault):
    """SIGSTOP, and SIGCONT at the revert."""

    name = "backend-hang"
    summary = "Suspends one backend with SIGSTOP, so that it accepts but never answers, and resumes it at the revert."
    needs = frozenset({"backend_pause"})
    gone = BackendState.HUNG

    async def inject(self, ctx: FaultContext, undo: Undo) -> None:
        """Suspend exactly the process that was prepared."""
        await ctx.target.backend_pause(undo.target, undo.identity)

    async def revert(self, ctx: FaultContext, undo: Undo) -> None:
        """Resume it. A backend that died while it hung is started; a stranger that hangs is not touched."""
        status = await ctx.target.backend_status(undo.target)
        if status.state is BackendState.STOPPED:
            await ctx.target.backend_start(undo.target)
        elif status.state is BackendState.HUNG:
            if dict(status.identity) != dict(undo.identity):
                raise IdentityChangedError(
                    f"backend {undo.target} hangs, but it is {dict(status.identity)}, not {dict(undo.identity)}"
                )
            await ctx.target.backend_resume(undo.target, undo.identity)


FAULT = BackendHang()
