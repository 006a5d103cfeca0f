"""What the faults that take a backend away have in common: two independent looks, at the process and at traffic."""

from __future__ import annotations

from abc import ABC, abstractmethod

from chaos.fault import FaultContext, Finding, TargetKind
from chaos.model import FaultShape, Undo
from chaos.target import BackendState, Identity, TargetError


class BackendFault(ABC):
    """A backend serves nothing for a while. Subclasses say how it goes away and how it comes back."""

    shape = FaultShape.FAULT
    target_kind = TargetKind.BACKEND
    default_hold_s = 30.0
    takes_backend_away = True
    gone: BackendState
    """What a look at the process shows while the fault holds."""

    def resources(self, target: str) -> frozenset[str]:
        """Lock the backend."""
        return frozenset({f"backend:{target}"})

    async def prepare(self, ctx: FaultContext, target: str) -> Undo:
        """Remember which process it is. Raises ``TargetError`` when it does not run."""
        status = await ctx.target.backend_status(target)
        if status.state is not BackendState.RUNNING:
            raise TargetError(f"backend {target} is {status.state}; only a running backend can be taken away")
        return Undo(target, identity=dict(status.identity), state={"state": status.state.value})

    @abstractmethod
    async def inject(self, ctx: FaultContext, undo: Undo) -> None:
        """Take it away."""

    @abstractmethod
    async def revert(self, ctx: FaultContext, undo: Undo) -> None:
        """Bring it back; already back is success."""

    async def verify_active(self, ctx: FaultContext, undo: Undo) -> Finding:
        """Verify that the process is gone or suspended, and that its answers ceased."""
        name = undo.target
        last_s = await ctx.observer.origin_silent(name, ctx.effect_timeout_s)
        status = await ctx.target.backend_status(name)
        if status.state is not self.gone:
            reason = f"backend {name} is {status.state}, not {self.gone}: somebody else brought it back"
            return Finding.inconclusive(reason, process=status.state.value, identity=dict(status.identity))
        if last_s is None:
            reason = f"answers of backend {name} never ceased within {ctx.effect_timeout_s:g} s: traffic saw no effect"
            return Finding.inconclusive(reason, process=status.state.value)
        return Finding.verified(last_s, process=status.state.value, last_answer_s=last_s)

    async def verify_clean(self, ctx: FaultContext, undo: Undo) -> Finding:
        """Verify that it runs at its old address, and that traffic reaches it again."""
        name, since_s = undo.target, ctx.clock.now()
        status = await ctx.target.backend_status(name)
        seen = {"process": status.state.value, "identity": dict(status.identity)}
        if status.state is not BackendState.RUNNING:
            return Finding.dirty(f"backend {name} is {status.state} after the revert, not running", **seen)
        before, after = _address(undo.identity), _address(status.identity)
        if before != after:
            return Finding.dirty(f"backend {name} runs at {after} after the revert, not at {before}", **seen)
        if ctx.blind:
            return Finding.verified(since_s, **seen, traffic="not observed")
        answered_s = await ctx.observer.origin_seen(name, since_s, ctx.effect_timeout_s)
        if answered_s is None:
            reason = f"backend {name} never came back into rotation within {ctx.effect_timeout_s:g} s of its revert"
            return Finding.failed(reason, **seen)
        return Finding.verified(answered_s, **seen, first_answer_s=answered_s)


def _address(identity: Identity) -> dict[str, object]:
    """Return the part of an identity that says where the backend listens, as far as the lab tells."""
    return {key: identity[key] for key in ("address", "host", "port") if key in identity}
