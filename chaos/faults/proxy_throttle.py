"""Hold the proxy back: less CPU, and less memory if asked for, as on a host where others take it.

It goes on serving, only later. What it does with the queue that builds up (timeouts, shed connections, health checks that fail
because the proxy itself is slow) is what this shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from chaos.fault import FaultContext, Finding, TargetKind
from chaos.model import FaultShape, Undo
from chaos.target import TargetError, Throttles

DEFAULT_CPUS = 0.25
MIN_CPUS = 0.01
"""Less than that the kernel does not take."""
MIN_MEMORY = 8 * 1024 * 1024
POLL_S = 0.1
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmg])(?:i?b)?|b)?", re.IGNORECASE)
_UNIT = {"k": 1024, "m": 1024**2, "g": 1024**3}


class ProxyThrottle:
    """A quota of CPU, and a limit of memory if asked for; at the revert exactly those of before."""

    name = "proxy-throttle"
    summary = f"Lets the proxy use less CPU ({DEFAULT_CPUS:g} of one) and, if asked for, less memory; then as much as before."
    shape = FaultShape.FAULT
    needs = frozenset({"proxy_throttle"})
    target_kind = TargetKind.PROXY
    default_hold_s = 30.0
    takes_backend_away = False
    params: Mapping[str, str] = {
        "cpus": f"CPUs that it may use meanwhile; default: {DEFAULT_CPUS:g}",
        "memory": "memory that it may use meanwhile (128MiB); default: as before",
    }

    def resources(self, target: str) -> frozenset[str]:
        """Lock the proxy."""
        del target
        return frozenset({"proxy"})

    def wrong_params(self, params: Mapping[str, Any], supports: Callable[[str], bool]) -> str:
        """Refuse what is no number of CPUs or no amount of memory."""
        del supports
        try:
            cpus_of(params)
            memory_of(params)
        except ValueError as error:
            return str(error)
        return ""

    async def prepare(self, ctx: FaultContext, target: str) -> Undo:
        """Remember what it may use, exactly, and what it shall. Refuses what would be no less."""
        before = dict(await _lab(ctx).proxy_limits())
        cpus, memory = cpus_of(ctx.params), memory_of(ctx.params)
        if 0 < before["cpus"] <= cpus:
            raise TargetError(
                f"the proxy may use {before['cpus']:g} CPUs and {cpus:g} is no less; give a smaller param 'cpus'"
            )
        if memory and 0 < before["memory_bytes"] <= memory:
            raise TargetError(
                f"the proxy may use {before['memory_bytes']} bytes of memory and {memory} is no less; give a smaller 'memory'"
            )
        held_s = await _lab(ctx).proxy_held_back_s()
        state = {"before": before, "cpus": cpus, "memory_bytes": memory, "held_back_s": held_s}
        return Undo(target, identity=dict(await ctx.target.proxy_identity()), state=state)

    async def inject(self, ctx: FaultContext, undo: Undo) -> None:
        """Hold back exactly the process that was prepared."""
        state = undo.state
        await _lab(ctx).proxy_tighten(undo.identity, cpus=state["cpus"], memory_bytes=state["memory_bytes"])

    async def verify_active(self, ctx: FaultContext, undo: Undo) -> Finding:
        """Verify that the limits are in force, and that the kernel has held the proxy back since."""
        since_s, end_s = ctx.clock.now(), ctx.clock.now() + ctx.effect_timeout_s
        now = dict(await _lab(ctx).proxy_limits())
        if not _is_tight(now, undo):
            return Finding.inconclusive(
                "the proxy's limits were not changed, or somebody else put them back", limits=now
            )
        while True:
            held_s = await _lab(ctx).proxy_held_back_s()
            if held_s is None or undo.state["held_back_s"] is None:
                return Finding.verified(since_s, limits=now, held_back="cannot be seen from here")
            if held_s > undo.state["held_back_s"]:
                return Finding.verified(since_s, limits=now, held_back_s=held_s - undo.state["held_back_s"])
            if ctx.clock.now() >= end_s:
                reason = (
                    f"the proxy needs less than {undo.state['cpus']:g} CPUs: it was never held back within "
                    f"{ctx.effect_timeout_s:g} s; give a smaller param 'cpus'"
                )
                return Finding.inconclusive(reason, limits=now)
            await ctx.clock.sleep(POLL_S)

    async def revert(self, ctx: FaultContext, undo: Undo) -> None:
        """Give it back exactly what it had."""
        await _lab(ctx).proxy_loosen(undo.identity, undo.state["before"])

    async def verify_clean(self, ctx: FaultContext, undo: Undo) -> Finding:
        """Verify that its limits are those of before."""
        now, before = dict(await _lab(ctx).proxy_limits()), undo.state["before"]
        if now != before:
            return Finding.dirty(
                f"the proxy's limits are {now} after the revert, not {before}", limits=now, before=before
            )
        return Finding.verified(ctx.clock.now(), limits=now, held_back_s=await _lab(ctx).proxy_held_back_s())


def cpus_of(params: Mapping[str, Any]) -> float:
    """Return the CPUs that the params ask for. Raises ``ValueError`` with the value and the rule."""
    given = params.get("cpus", DEFAULT_CPUS)
    try:
        cpus = float(given)
    except (TypeError, ValueError):
        cpus = 0.0
    if isinstance(given, bool) or not MIN_CPUS <= cpus <= 1024:
        raise ValueError(
            f"proxy-throttle: cpus {given!r} is no number of CPUs from {MIN_CPUS:g} on; write it like 0.25"
        )
    return cpus


def memory_of(params: Mapping[str, Any]) -> int:
    """Return the bytes that the params ask for, 0: as before. Raises ``ValueError`` with the value and the rule."""
    given = params.get("memory", 0)
    if given == 0 and not isinstance(given, bool):
        return 0
    found = _SIZE.fullmatch(str(given).strip())
    size = int(float(found[1]) * _UNIT.get((found[2] or "").lower(), 1)) if found else 0
    if size < MIN_MEMORY:
        raise ValueError(f"proxy-throttle: memory {given!r} is no size of 8MiB or more; write it like 128MiB")
    return size


def _is_tight(now: Mapping[str, Any], undo: Undo) -> bool:
    cpus, memory = undo.state["cpus"], undo.state["memory_bytes"]
    return abs(now["cpus"] - cpus) < 0.001 and (not memory or now["memory_bytes"] == memory)


def _lab(ctx: FaultContext) -> Throttles:
    if not isinstance(ctx.target, Throttles):
        raise TargetError(
            "this lab cannot limit what the proxy may use: it is a process without a group of its own"
        )
    return ctx.target


FAULT = ProxyThrottle()
