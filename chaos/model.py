"""The words of chaos: what a fault is, what happened to one instance of it, and what was seen.

Owns the frozen records that travel from the timeline through the runner to the store. Knows nothing of how a
lab is built (``chaos.target``) nor of how faults are scheduled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal


class Source(StrEnum):
    """Who asked for a fault."""

    SCHEDULE = "schedule"
    INJECT = "inject"


class FaultOutcome(StrEnum):
    """How one fault instance ended."""

    VERIFIED = "verified"
    """Evidence showed that it took effect and that it was undone."""
    INCONCLUSIVE = "inconclusive"
    """It ran without an error, but nothing showed that it took effect."""
    FAILED = "failed"
    """It could not be injected, or the target did not do what it was told (a reload that never took effect)."""
    SKIPPED = "skipped"
    """It never began: refused, misfired, or no target was eligible. ``reason`` says why."""
    DIRTY = "dirty"
    """Its revert failed: the target is not as it was."""


class FaultShape(StrEnum):
    """Whether there is something to undo."""

    FAULT = "fault"
    """A disturbance that holds for a while and is then reverted."""
    TRANSITION = "transition"
    """A change without a revert (reload, certificate rotation)."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an independent observation showed. Never a return code alone.

    ``ok`` says whether the observation supports the claim; ``detail`` holds the observed values as JSON.
    """

    ok: bool
    detail: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Undo:
    """The original state and the identity of the target, as JSON: all that a stranger process needs to revert.

    ``target`` is the name (``b2``, ``proxy``); ``identity`` is what proves that it is the same thing
    (pid + start time, container id + start time); ``state`` is what to restore.
    """

    target: str
    identity: Mapping[str, Any]
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FaultRequest:
    """A wish to run one fault: from the timeline or from ``soak inject``.

    ``hold_s`` is how long a fault stays active; 0 for transitions. ``target`` None lets the arbiter choose.
    ``planned_s`` is seconds since the start of the run; for injected ones, the moment of the request.
    """

    kind: str
    source: Source
    planned_s: float
    hold_s: float = 0.0
    target: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """One fault instance, from plan to recovery. All instants are seconds since the start of the run.

    ``recovered_s`` is the instant from which traffic stayed in the steady band; ``recovery_s`` is the longest
    disturbance after an edge (injection, revert). Both are None while unknown. ``evidence`` collects what
    each step saw, keyed by step name.
    """

    id: int
    kind: str
    target: str
    source: Source
    planned_s: float
    injected_s: float | None = None
    active_s: float | None = None
    reverted_s: float | None = None
    recovered_s: float | None = None
    recovery_s: float | None = None
    outcome: FaultOutcome | None = None
    reason: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether the outcome is known."""
        return self.outcome is not None


Phase = Literal["steady", "fault", "recovery"]
