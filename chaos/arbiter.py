"""Decides whether a fault may begin now. One arbiter for the schedule and for ``soak inject``.

Pure: time and the state of the world are arguments, every answer carries its reason. Must not touch anything.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chaos.fault import OVERLAP, Fault, TargetKind
from chaos.model import FaultRequest, Source

NO_TARGET = "none"
PROXY = "proxy"


@dataclass(frozen=True, slots=True)
class Granted:
    """It may begin, on this target."""

    target: str
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet. ``until_s`` is when to ask again; None: when something changes."""

    until_s: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Never; asking again is of no use."""

    reason: str


Decision = Granted | Wait | Refused


@dataclass(frozen=True, slots=True)
class ActiveFault:
    """A fault that was granted and has not recovered yet."""

    id: int
    kind: str
    target: str
    resources: frozenset[str]
    takes_backend_away: bool


@dataclass(frozen=True, slots=True)
class ChaosState:
    """What the arbiter must know of the world."""

    backends: Sequence[str] = ()
    healthy: frozenset[str] = frozenset()
    """Backends whose process runs and answers."""
    missing: frozenset[str] = frozenset()
    """Capabilities that the asked fault needs and the target lacks."""
    recovered_s: float | None = None
    """When traffic had recovered from the latest fault, in seconds since run start."""
    turn: int = 0
    """How many backends the arbiter has already chosen."""
    stopped: str = ""
    """Why no fault may begin any more (dirty, guarded, stopping); empty otherwise."""


@dataclass(frozen=True, slots=True)
class Arbiter:
    """The rules. ``gap_s`` is the least time between the recovery from one fault and the start of the next."""

    gap_s: float = 4.0

    def request(
        self, req: FaultRequest, fault: Fault, now: float, active: Iterable[ActiveFault], state: ChaosState
    ) -> Decision:
        """Decide on one request at ``now`` (seconds since run start)."""
        active = list(active)
        if refusal := self._impossible(req, fault, state):
            return Refused(refusal)
        if (wait := self._too_early(req, now, active, state)) is not None:
            return wait
        if fault.target_kind is TargetKind.BACKEND:
            return self._backend(req, fault, active, state)
        target = req.target or (PROXY if fault.target_kind is TargetKind.PROXY else NO_TARGET)
        if (holder := _holder(fault.resources(target), active)) is not None:
            return Wait(None, f"{target} is held by {_named(holder)}")
        return Granted(target, f"{target} is free")

    @staticmethod
    def _impossible(req: FaultRequest, fault: Fault, state: ChaosState) -> str:
        if state.stopped:
            return state.stopped
        if state.missing:
            return f"{fault.name} needs {', '.join(sorted(state.missing))}, which this lab and its proxy cannot do"
        known = {
            TargetKind.BACKEND: list(state.backends),
            TargetKind.PROXY: [PROXY],
            TargetKind.NONE: [NO_TARGET],
        }
        names = known[fault.target_kind]
        if req.target is not None and req.target not in names:
            return f"{fault.name} has no target {req.target!r}{nearest(req.target, names)}"
        if fault.target_kind is TargetKind.BACKEND and not names:
            return f"{fault.name} needs a backend, and this lab has none"
        return ""

    def _too_early(
        self, req: FaultRequest, now: float, active: Sequence[ActiveFault], state: ChaosState
    ) -> Wait | None:
        if overlaps(req):
            return None
        if active:
            return Wait(
                None,
                f"{_named(active[0])} is still active, and faults run one at a time unless told to overlap",
            )
        if state.recovered_s is not None and now < state.recovered_s + self.gap_s:
            until = state.recovered_s + self.gap_s
            return Wait(
                until, f"traffic recovered at {state.recovered_s:.1f} s and the gap is {self.gap_s:g} s"
            )
        return None

    @staticmethod
    def _backend(
        req: FaultRequest, fault: Fault, active: Sequence[ActiveFault], state: ChaosState
    ) -> Decision:
        """Choose the asked backend, or the next in turn that is healthy and free."""
        away = {fault_.target for fault_ in active if fault_.takes_backend_away}
        shift = state.turn % len(state.backends)
        in_turn = [*state.backends[shift:], *state.backends[:shift]]
        wait: Wait | None = None
        reasons: list[str] = []
        for name in in_turn if req.target is None else [req.target]:
            if (holder := _holder(fault.resources(name), active)) is not None:
                wait = Wait(None, f"{name} is held by {_named(holder)}")
            elif name not in state.healthy:
                reasons.append(f"{name} is not running")
            elif fault.takes_backend_away and not state.healthy - away - {name}:
                reasons.append(f"{name} is the last healthy backend; one must remain")
                if away:
                    wait = Wait(None, reasons[-1])
            else:
                how = "its turn" if req.target is None else "asked for"
                return Granted(name, f"{name} is healthy, free and {how}")
        return wait or Refused(f"no backend for {fault.name}: {', '.join(reasons)}")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest known word, or the list of all when none is close."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(names)}"


def overlaps(req: FaultRequest) -> bool:
    """Whether this request may run beside other faults and without a gap; only an injection may."""
    return req.source is Source.INJECT and bool(req.params.get(OVERLAP))


def _holder(resources: frozenset[str], active: Iterable[ActiveFault]) -> ActiveFault | None:
    return next((fault for fault in active if fault.resources & resources), None)


def _named(fault: ActiveFault) -> str:
    return f"#{fault.id} {fault.kind} on {fault.target}"
