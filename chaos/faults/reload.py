"""Reload the proxy's configuration. It counts as done when traffic shows the new generation, whatever the proxy says.

Some proxies know two kinds: ``full`` replaces listeners or processes, ``routing`` only what requests meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from chaos.fault import FaultContext, Finding
from chaos.faults._proxy import ProxyTransition
from chaos.model import Evidence, Undo

KINDS = ("full", "routing")
"""What a reload may replace, as ``chaos.target.Target.supports`` spells it after ``reload:``."""


class Reload(ProxyTransition):
    """The same configuration under a new generation."""

    name = "reload"
    summary = "Reloads the proxy with a new config generation, which must show in traffic."
    needs = frozenset({"reload", "marker"})
    params: Mapping[str, str] = {
        "kind": "full (listeners or processes are replaced) or routing (only what requests meet); default: the proxy's usual one"
    }

    def wrong_params(self, params: Mapping[str, Any], supports: Callable[[str], bool]) -> str:
        """Refuse a kind of reload that nobody or this proxy does not know."""
        kind = params.get("kind", "")
        known = [name for name in KINDS if supports(f"reload:{name}")]
        if not kind or kind in known:
            return ""
        return f"reload knows no kind {kind!r} with this proxy; it knows {', '.join(known) or 'none'}"

    async def prepare(self, ctx: FaultContext, target: str) -> Undo:
        """Remember the kind, too."""
        undo = await super().prepare(ctx, target)
        kind = ctx.params.get("kind", "")
        return replace(undo, state={**undo.state, "kind": kind}) if kind else undo

    async def apply(self, ctx: FaultContext, undo: Undo) -> Evidence:
        """Render, validate, put in place, reload."""
        return await ctx.target.apply_generation(
            undo.state["next_generation"], kind=undo.state.get("kind", "")
        )

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
