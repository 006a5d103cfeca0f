"""Offer the proxy a configuration that it must refuse: the old one keeps serving, and a good one is still accepted.

After one bad configuration some proxies ignore good ones too (haproxy#3229), and some go on with half of the bad one.
"""

from __future__ import annotations

from chaos.fault import FaultContext, Finding
from chaos.faults._proxy import ProxyTransition, still_serves
from chaos.model import Evidence, Undo

SETTLE_S = 1.0
"""Answers of this long after the refusal count: earlier ones may come from a worker that is about to go."""


class ReloadBad(ProxyTransition):
    """A broken configuration, then a good one."""

    name = "reload-bad"
    summary = "Offers a broken configuration that must be refused while the old one serves; then a good one must work."
    needs = frozenset({"reload", "marker"})

    async def apply(self, ctx: FaultContext, undo: Undo) -> Evidence:
        """Offer the broken configuration; ``ok`` when it was refused."""
        del undo
        refused = await ctx.target.apply_broken_config()
        if refused.ok:
            return refused
        reason = "the proxy accepted a broken configuration" + (
            f": {refused.reason}" if refused.reason else ""
        )
        return Evidence(ok=False, detail=refused.detail, reason=reason)

    async def verify_effect(self, ctx: FaultContext, undo: Undo, applied: Evidence) -> Finding:
        """See the old generation go on, then a good one be accepted and seen."""
        old, good = undo.state["generation"], undo.state["next_generation"]
        seen: dict[str, object] = {"refused": dict(applied.detail), "old_generation": old, "generation": good}
        within = f"within {ctx.effect_timeout_s:g} s"
        old_s = await still_serves(ctx, old, ctx.clock.now() + SETTLE_S)
        if old_s is None:
            reason = f"generation {old} was not seen {within} after a broken configuration: the old one stopped serving"
            return Finding.failed(reason, **seen)
        seen["old_still_serving_s"] = old_s
        accepted = await ctx.target.apply_generation(good)
        seen["good_accepted"] = accepted.ok
        if not accepted.ok:
            reason = f"after a broken configuration the good generation {good} was refused: {accepted.reason}"
            return Finding.failed(reason, **seen)
        good_s = await ctx.observer.generation_seen(good, ctx.effect_timeout_s)
        if good_s is None:
            reason = (
                f"after a broken configuration the good generation {good} was never seen in traffic {within}"
            )
            return Finding.failed(reason, **seen)
        return Finding.verified(good_s, **seen, good_seen_s=good_s)


FAULT = ReloadBad()
