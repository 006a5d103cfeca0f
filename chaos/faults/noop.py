"""Touch nothing. The template for a new fault: copy this file, rename, fill in.

The five methods are called in this order: prepare, inject, verify_active, (hold), revert, verify_clean. Keep no state
in the object: what ``revert`` needs goes into the ``Undo``, which is on disk before ``inject`` is called, so that
another process can undo the fault when this one is killed.
"""

from __future__ import annotations

from chaos.fault import FaultContext, Finding, TargetKind
from chaos.model import FaultShape, Undo


class Noop:
    """Hold for a while without touching anything; shows what the machinery itself costs."""

    name = "noop"  # what users type
    summary = "Touches nothing: shows that the machinery itself disturbs no request."
    shape = FaultShape.FAULT
    needs = frozenset[str]()  # e.g. frozenset({"backend_stop"}); what the lab lacks is said before hour zero
    target_kind = TargetKind.NONE  # BACKEND: the arbiter chooses b1, b2, ... in turn
    default_hold_s = 5.0
    takes_backend_away = False  # True: at least one other healthy backend must remain

    def resources(self, target: str) -> frozenset[str]:
        """Lock nothing (a backend fault locks ``backend:b1``, a proxy fault ``proxy``)."""
        del target
        return frozenset()

    async def prepare(self, ctx: FaultContext, target: str) -> Undo:
        """Read, never write: the identity of the thing and what it was like."""
        return Undo(target, identity=await ctx.target.proxy_identity())

    async def inject(self, ctx: FaultContext, undo: Undo) -> None:
        """Do it through ``ctx.target``, passing ``undo.identity`` so that no stranger is hit."""

    async def verify_active(self, ctx: FaultContext, undo: Undo) -> Finding:
        """Show the effect by independent sight (``ctx.observer``); a return code is no evidence."""
        return await self._untouched(ctx, undo)

    async def revert(self, ctx: FaultContext, undo: Undo) -> None:
        """Undo it; may be called twice, by another process, and when ``inject`` never ran."""

    async def verify_clean(self, ctx: FaultContext, undo: Undo) -> Finding:
        """Show that the target is as it was: ``Finding.dirty`` stops all chaos."""
        return await self._untouched(ctx, undo)

    async def _untouched(self, ctx: FaultContext, undo: Undo) -> Finding:
        now = dict(await ctx.target.proxy_identity())
        if now != undo.identity:
            return Finding.inconclusive(
                "the proxy is another process than before: something else touched it", now=now
            )
        return Finding.verified(ctx.clock.now(), proxy=now)


FAULT = Noop()  # the catalog looks for this name
