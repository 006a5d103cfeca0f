"""What the transitions of the proxy have in common: a new config generation, and the way back to the last good one."""

from __future__ import annotations

from chaos.fault import FaultContext, TargetKind
from chaos.model import Evidence, FaultShape, Undo

POLL_S = 0.1
"""How often traffic is looked at while waiting for a generation to be seen again."""


class ProxyTransition:
    """A change of the proxy that carries a new config generation."""

    shape = FaultShape.TRANSITION
    target_kind = TargetKind.PROXY
    default_hold_s = 0.0
    takes_backend_away = False

    def resources(self, target: str) -> frozenset[str]:
        """Lock the proxy."""
        del target
        return frozenset({"proxy"})

    async def prepare(self, ctx: FaultContext, target: str) -> Undo:
        """Remember the process and its generation, and choose the next one."""
        state = {"generation": ctx.target.generation(), "next_generation": ctx.next_generation()}
        return Undo(target, identity=dict(await ctx.target.proxy_identity()), state=state)

    async def restore(self, ctx: FaultContext, undo: Undo) -> Evidence:
        """Put the last good configuration and certificate back.

        A proxy that ignores reloads ignores this one too; when traffic shows that it still serves the generation of
        before, then it is as it was, whatever it says.
        """
        word = await ctx.target.restore_proxy()
        if word.ok or ctx.blind:
            return word
        old: int = undo.state["generation"]
        if (seen_s := await still_serves(ctx, old, ctx.clock.now())) is None:
            return word
        return Evidence(ok=True, detail={"word": word.reason, "generation": old, "seen_s": seen_s})


async def still_serves(ctx: FaultContext, generation: int, after_s: float) -> float | None:
    """Wait until traffic shows this generation after ``after_s``; returns the instant, None if it does not in time."""
    end_s = ctx.clock.now() + ctx.effect_timeout_s
    while True:
        seen_s = ctx.observer.last_seen("generation", str(generation))
        if seen_s is not None and seen_s > after_s:
            return seen_s
        if ctx.clock.now() >= end_s:
            return None
        await ctx.clock.sleep(POLL_S)
