"""What a fault is: the small protocols that every file under ``chaos/faults`` fulfils, and what they are given.

Two shapes. A *disturbance* holds for a while and is undone: prepare, inject, verify_active, revert, verify_clean.
A *transition* is a change without a way back: prepare, apply, verify_effect, and restore when it took no effect.
Faults keep no state of their own: all that a stranger needs to undo one is in its ``Undo``, which is on disk before
anything is touched. Must not know who asked for a fault, when, or how its traffic is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from chaos.model import Evidence, FaultOutcome, FaultShape, Undo
from chaos.target import Clock, Observer, Target, TargetError


class TargetKind(StrEnum):
    """What a fault is aimed at."""

    BACKEND = "backend"
    PROXY = "proxy"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class FaultContext:
    """Everything a fault may use. ``effect_timeout_s`` bounds each wait for something to show in traffic."""

    target: Target
    observer: Observer
    clock: Clock
    next_generation: Callable[[], int]
    """Allocates a config generation that was never used in this run."""
    effect_timeout_s: float = 10.0
    blind: bool = False
    """Nobody watches traffic (``soak heal``, the guardian): judge by processes alone and wait for no sight."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Of this instance, from the plan or ``soak inject --param``; for ``prepare``, which keeps in the ``Undo`` what it needs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a verification found: ``verified``, or one of the ways in which it was not, with its evidence.

    ``at_s`` is the instant that the evidence points to (first answer of a new generation, last answer of a backend).
    """

    outcome: FaultOutcome
    evidence: Evidence
    at_s: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the claim was verified."""
        return self.outcome is FaultOutcome.VERIFIED

    @classmethod
    def verified(cls, at_s: float, **detail: Any) -> Finding:
        """It is as claimed, since ``at_s``."""
        return cls(FaultOutcome.VERIFIED, Evidence(ok=True, detail={**detail, "at_s": at_s}), at_s)

    @classmethod
    def inconclusive(cls, reason: str, **detail: Any) -> Finding:
        """Nothing showed that the fault touched anything."""
        return cls(FaultOutcome.INCONCLUSIVE, Evidence(ok=False, detail=detail, reason=reason))

    @classmethod
    def failed(cls, reason: str, **detail: Any) -> Finding:
        """The system under test did not do what it must."""
        return cls(FaultOutcome.FAILED, Evidence(ok=False, detail=detail, reason=reason))

    @classmethod
    def dirty(cls, reason: str, **detail: Any) -> Finding:
        """The target is not as it was before the fault."""
        return cls(FaultOutcome.DIRTY, Evidence(ok=False, detail=detail, reason=reason))


@runtime_checkable
class Fault(Protocol):
    """What all faults share: who they are and what they need."""

    @property
    def name(self) -> str:
        """Name on the command line and in plans: ``backend-down``."""
        ...

    @property
    def summary(self) -> str:
        """One sentence: what it does."""
        ...

    @property
    def shape(self) -> FaultShape:
        """Disturbance or transition."""
        ...

    @property
    def needs(self) -> frozenset[str]:
        """Capabilities that the target must support: ``reload``, ``cert_rotate``, ``backend_stop``, ``backend_pause``."""
        ...

    @property
    def target_kind(self) -> TargetKind:
        """What it is aimed at."""
        ...

    @property
    def default_hold_s(self) -> float:
        """How long it holds when nobody says; 0 for transitions."""
        ...

    @property
    def takes_backend_away(self) -> bool:
        """Whether its target serves nothing while it holds; at least one healthy backend must remain."""
        ...

    def resources(self, target: str) -> frozenset[str]:
        """Return what it locks: ``proxy``, ``backend:b1``. Two faults never hold the same resource."""
        ...

    async def prepare(self, ctx: FaultContext, target: str) -> Undo:
        """Read the original state and the identity of the target. Touches nothing."""
        ...


@runtime_checkable
class Disturbance(Fault, Protocol):
    """A fault that holds and is undone."""

    async def inject(self, ctx: FaultContext, undo: Undo) -> None:
        """Do it. Raises ``TargetError`` when it could not be done; ``revert`` follows in any case."""
        ...

    async def verify_active(self, ctx: FaultContext, undo: Undo) -> Finding:
        """Show, by independent sight, that it took effect. Not shown is ``inconclusive``."""
        ...

    async def revert(self, ctx: FaultContext, undo: Undo) -> None:
        """Put the target back. Idempotent: already clean is success. Raises ``TargetError`` otherwise."""
        ...

    async def verify_clean(self, ctx: FaultContext, undo: Undo) -> Finding:
        """Show that the target is as it was (``dirty`` if not) and that traffic uses it again (``failed`` if not)."""
        ...


@runtime_checkable
class Transition(Fault, Protocol):
    """A change without a revert."""

    async def apply(self, ctx: FaultContext, undo: Undo) -> Evidence:
        """Do it; the evidence is the target's own word. Not ``ok`` means refused, in the target's words."""
        ...

    async def verify_effect(self, ctx: FaultContext, undo: Undo, applied: Evidence) -> Finding:
        """Show, by independent sight, that it took effect; ``applied`` is what ``apply`` returned."""
        ...

    async def restore(self, ctx: FaultContext, undo: Undo) -> Evidence:
        """Put the last state that was seen to work back in place. Idempotent."""
        ...


@runtime_checkable
class TakesParams(Protocol):
    """A fault that has params; one without is given none, and one that it does not know is refused before it begins."""

    params: Mapping[str, str]
    """What each is, in a sentence, by name."""

    def wrong_params(self, params: Mapping[str, Any], supports: Callable[[str], bool]) -> str:
        """Return in a sentence why these cannot be carried out, "" when they can. ``supports`` is the target's."""
        ...


OVERLAP = "overlap"
"""A param of the arbiter's own: an injected fault may begin beside another."""


def refused_params(fault: Fault, params: Mapping[str, Any], supports: Callable[[str], bool]) -> str:
    """Return in a sentence why a fault cannot have these params, "" when it can. ``supports`` is the target's."""
    given = {name: value for name, value in params.items() if name != OVERLAP}
    known = fault.params if isinstance(fault, TakesParams) else {}
    for name in given:
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            return f"{fault.name} has no param {name!r}; {takes}"
    return fault.wrong_params(given, supports) if isinstance(fault, TakesParams) else ""


class BlindObserver:
    """The observer of a healer. Nobody watches traffic then, so it must not be asked: see ``FaultContext.blind``."""

    async def generation_seen(self, generation: int, timeout_s: float) -> float | None:
        """Raise ``TargetError``."""
        raise self._asked(f"generation {generation}", timeout_s)

    async def serial_seen(self, serial: str, timeout_s: float) -> float | None:
        """Raise ``TargetError``."""
        raise self._asked(f"serial {serial}", timeout_s)

    def last_seen(self, kind: str, value: str) -> float | None:
        """Raise ``TargetError``."""
        raise self._asked(f"{kind} {value}", 0)

    async def origin_silent(self, name: str, timeout_s: float) -> float | None:
        """Raise ``TargetError``."""
        raise self._asked(f"backend {name}", timeout_s)

    async def origin_seen(self, name: str, after_s: float, timeout_s: float) -> float | None:
        """Raise ``TargetError``."""
        del after_s
        raise self._asked(f"backend {name}", timeout_s)

    @staticmethod
    def _asked(what: str, timeout_s: float) -> TargetError:
        return TargetError(
            f"nobody watches traffic while healing: {what} cannot be seen within {timeout_s:g} s"
        )
