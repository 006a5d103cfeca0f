"""Reload the proxy's configuration. It counts as done when traffic shows the new generation, whatever the proxy says."""

from __future__ import annotations

from chaos.fault import FaultContext, Finding
from chaos.faults._proxy import ProxyTransition
from chaos.model import Evidence, Undo


class Reload(ProxyTransition):
    """The same configuration under a new generation."""

    name = "reload"
    summary = "Reloads the proxy with a new config generation, which must show in traffic."
    needs = frozenset({"reload"})

    async def apply(self, ctx: FaultContext, undo: Undo) -> Evidence:
        """Render, validate, put in place, reload."""
        return await ctx.target.apply_generation(undo.state["next_generation"])

    async def verify_effect(self, ctx: FaultContext, undo: Undo, applied: Evidence) -> Finding:
        """Wait for the first answer that carries the new generation."""
        del applied
        generation: int = undo.state["next_generation"]
        seen_s = await ctx.observer.generation_seen(generation, ctx.effect_timeout_s)
        if seen_s is None:
            reason = (
                f"generation {generation} was never seen in traffic within {ctx.effect_timeout_s:g} s: "
                "the reload took no effect"
            )
            return Finding.failed(reason, generation=generation)
        return Finding.verified(seen_s, generation=generation, old_generation=undo.state["generation"])


FAULT = Reload()
