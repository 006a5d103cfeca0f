"""Take one backend off the network: it runs, and neither it nor the proxy is told.

Nothing is refused and nothing is closed: packets just go nowhere. Connections that the proxy holds look well until they are used,
and new ones time out, so only its own timeouts and health checks can tell; afterwards both ends find halves of connections.
"""

from __future__ import annotations

from dataclasses import replace

from chaos.fault import FaultContext, Finding
from chaos.faults._backend import BackendFault
from chaos.model import Undo
from chaos.target import BackendState, Partitions, TargetError


class BackendPartition(BackendFault):
    """Off every network, and on them again with the same addresses."""

    name = "backend-partition"
    summary = (
        "Takes one backend off the network while it runs, and puts it back at its old address at the revert."
    )
    needs = frozenset({"backend_partition"})
    gone = BackendState.HUNG

    async def prepare(self, ctx: FaultContext, target: str) -> Undo:
        """Remember its networks and addresses, too."""
        undo = await super().prepare(ctx, target)
        networks = dict(await _lab(ctx).backend_networks(target))
        if not networks:
            raise TargetError(
                f"backend {target} is on no network; only a backend that is can be taken off it"
            )
        return replace(undo, state={**undo.state, "networks": networks})

    async def inject(self, ctx: FaultContext, undo: Undo) -> None:
        """Take exactly the process that was prepared off its networks."""
        await _lab(ctx).backend_disconnect(undo.target, undo.identity)

    async def verify_active(self, ctx: FaultContext, undo: Undo) -> Finding:
        """Verify that it is on no network, runs and does not answer, and that its answers ceased in traffic."""
        finding = await super().verify_active(ctx, undo)
        if finding.ok and (networks := await _lab(ctx).backend_networks(undo.target)):
            reason = f"backend {undo.target} is on {', '.join(networks)}: somebody else put it back"
            return Finding.inconclusive(reason, networks=dict(networks))
        return finding

    async def revert(self, ctx: FaultContext, undo: Undo) -> None:
        """Put it back, then start it if it died meanwhile."""
        await _lab(ctx).backend_reconnect(undo.target, undo.identity, undo.state["networks"])
        if (await ctx.target.backend_status(undo.target)).state is BackendState.STOPPED:
            await ctx.target.backend_start(undo.target)

    async def verify_clean(self, ctx: FaultContext, undo: Undo) -> Finding:
        """Verify that it is on its old networks at its old addresses, and that traffic reaches it again."""
        networks, before = dict(await _lab(ctx).backend_networks(undo.target)), undo.state["networks"]
        if networks != before:
            reason = (
                f"backend {undo.target} is on {networks or 'no network'} after the revert, not on {before}"
            )
            return Finding.dirty(reason, networks=networks, before=before)
        return await super().verify_clean(ctx, undo)


def _lab(ctx: FaultContext) -> Partitions:
    if not isinstance(ctx.target, Partitions):
        raise TargetError(
            "this lab cannot take a backend off the network: its backends are processes of one host"
        )
    return ctx.target


FAULT = BackendPartition()
