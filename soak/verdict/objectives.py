"""Objectives as data: what was measured, the limit, whether it holds, and where the evidence lies. Plus how to say it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from chaos.model import FaultRecord


class Word(StrEnum):
    """What an objective says of the run."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FAIL = "fail"
    """The proxy did not do what it must."""
    INVALID = "invalid"
    """The run cannot support a judgement: our own fault, or the lab's."""


@dataclass(frozen=True, slots=True)
class Objective:
    """One judged objective."""

    name: str
    measured: str
    """What ``value`` is, in words."""
    value: float | None
    limit: float | None
    unit: str = ""
    """``share``, ``requests``, ``s``, ``faults``, ``ratio``, ``per_h``."""
    word: Word = Word.PASS
    reason: str = ""
    """When it is missed: what happened, when, under which fault."""
    at_s: float | None = None
    fault: int | None = None
    evidence: tuple[str, ...] = ()
    """What ``soak report --evidence`` takes: a fault id, ``e17`` for an evidence row, or ``steady``."""

    @property
    def ok(self) -> bool:
        """Whether the objective holds."""
        return self.word is Word.PASS

    @property
    def sentence(self) -> str:
        """The reason as a person reads it, with where to look."""
        look = f" (see: soak report --evidence {self.evidence[0]})" if self.evidence else ""
        return f"{self.name}: {self.reason}{look}"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value; ``name``, ``value``, ``limit`` and ``ok`` are part of the fixed contract."""
        return {
            "name": self.name,
            "value": self.value,
            "limit": self.limit,
            "ok": self.ok,
            "verdict": str(self.word),
            "measured": self.measured,
            "unit": self.unit,
            "reason": self.reason,
            "at_s": self.at_s,
            "fault": self.fault,
            "evidence": list(self.evidence),
        }


@dataclass(frozen=True, slots=True)
class NotJudged:
    """An objective that cannot be judged in this run, and why. It neither passes nor fails."""

    name: str
    reason: str

    def to_json(self) -> dict[str, str]:
        """Return a JSON value."""
        return {"name": self.name, "reason": self.reason}


Found = Objective | NotJudged
"""What a check returns: one objective, or the reason why there is none."""


def clock(at_s: float) -> str:
    """Return an instant of the run as people say it: ``9h20m``, ``12m05s``, ``41.3s``."""
    if at_s < 60:
        return f"{at_s:.1f}s"
    minutes, seconds = divmod(int(at_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m{seconds:02d}s" if hours else f"{minutes}m{seconds:02d}s"


def label(fault: FaultRecord) -> str:
    """Return how a fault instance is called in a sentence: ``reload #3 at 1m00s``."""
    at_s = fault.planned_s if fault.injected_s is None else fault.injected_s
    target = "" if fault.target in ("", "proxy") else f" of {fault.target}"
    return f"{fault.kind} #{fault.id}{target} at {clock(at_s)}"
