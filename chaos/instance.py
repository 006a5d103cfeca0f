"""The live state of one fault instance: its record so far, and how its steps were judged. Decides nothing, touches nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from chaos.fault import Fault
from chaos.model import Evidence, FaultOutcome, FaultRecord, FaultRequest, Undo

_SEVERITY = (
    FaultOutcome.VERIFIED,
    FaultOutcome.SKIPPED,
    FaultOutcome.INCONCLUSIVE,
    FaultOutcome.FAILED,
    FaultOutcome.DIRTY,
)
"""From best to worst."""


@dataclass(slots=True)
class Instance:
    """The live state of one fault instance."""

    fault: Fault
    request: FaultRequest
    record: FaultRecord
    end: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to end the hold early and undo the fault now."""
    undo: Undo | None = None
    outcome: FaultOutcome = FaultOutcome.VERIFIED
    reasons: list[tuple[int, str]] = field(default_factory=list)
    trouble: list[Exception] = field(default_factory=list)

    @property
    def id(self) -> int:
        """The instance's id."""
        return self.record.id

    @property
    def dirty(self) -> bool:
        """Whether its revert was given up."""
        return self.outcome is FaultOutcome.DIRTY

    @property
    def prepared(self) -> Undo:
        """What ``prepare`` returned."""
        assert self.undo is not None, "nothing is undone before it was prepared"
        return self.undo

    def update(self, **changes: Any) -> None:
        """Change the record."""
        self.record = replace(self.record, **changes)

    def saw(self, step: str, evidence: Evidence) -> None:
        """Keep what a step saw."""
        value = {"ok": evidence.ok, **evidence.detail}
        if evidence.reason:
            value["reason"] = evidence.reason
        self.update(evidence={**self.record.evidence, step: value})

    def conclude(self, outcome: FaultOutcome, reason: str = "") -> None:
        """Take a step's judgement; the worst one wins and its reason comes first."""
        rank = _SEVERITY.index(outcome)
        if rank > _SEVERITY.index(self.outcome):
            self.outcome = outcome
        if reason and (rank, reason) not in self.reasons:
            self.reasons.append((rank, reason))

    @property
    def reason(self) -> str:
        """All reasons, the worst first."""
        return "; ".join(text for _, text in sorted(self.reasons, key=lambda pair: -pair[0]))
