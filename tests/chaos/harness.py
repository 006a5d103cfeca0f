"""A runner on fakes, with everything that it says kept."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from chaos.arbiter import Arbiter
from chaos.faults.catalog import registry
from chaos.guard import AbortGuard
from chaos.journal import Journal, read_journal
from chaos.lifecycle import Limits
from chaos.model import FaultRecord, FaultRequest, Source
from chaos.runner import Runner
from tests.fakes import FakeClock, FakeObserver, FakeRecovery, FakeScopes, FakeTarget


class Rig:
    """Fakes, a real journal and a runner."""

    def __init__(self, tmp_path: Path, **limits: Any) -> None:
        self.clock = FakeClock()
        self.target = FakeTarget(self.clock)
        self.observer = FakeObserver(self.target, self.clock)
        self.scopes = FakeScopes()
        self.recovery = FakeRecovery(self.clock)
        self.path = tmp_path / "journal.jsonl"
        self.journal = Journal(self.path, t0_ns=0)
        self.records: list[FaultRecord] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.guard = AbortGuard(0.5, seconds=3)
        self.runner = Runner(
            target=self.target,
            observer=self.observer,
            recovery=self.recovery,
            scopes=self.scopes,
            clock=self.clock,
            journal=self.journal,
            faults=registry(),
            sink=self.records.append,
            event=lambda name, data: self.events.append((name, dict(data))),
            arbiter=Arbiter(gap_s=4.0),
            guard=self.guard,
            limits=Limits(**limits),
        )

    def wish(
        self, kind: str, /, hold_s: float = 10.0, target: str | None = None, **params: Any
    ) -> FaultRequest:
        return FaultRequest(kind, Source.INJECT, self.clock.now(), hold_s, target, params)

    async def run(
        self, kind: str, /, hold_s: float = 10.0, target: str | None = None, **params: Any
    ) -> FaultRecord:
        return await self.clock.drive(self.runner.run(self.wish(kind, hold_s, target, **params)))

    def start(
        self, kind: str, /, hold_s: float = 10.0, target: str | None = None, **params: Any
    ) -> asyncio.Task[FaultRecord]:
        return self.runner.submit(self.wish(kind, hold_s, target, **params))

    def steps(self, fault_id: int = 1) -> list[str]:
        """What the journal on disk says of a fault, in order."""
        entries = [e for e in read_journal(self.path).entries if e.fault_id == fault_id]
        return ["intent" if e.intent else str(e.step) for e in entries]

    def event_names(self) -> list[str]:
        return [name for name, _ in self.events]

    @property
    def dirty(self) -> list[str]:
        """Why the run is dirty, as often as it was told."""
        return [data["reason"] for name, data in self.events if name == "run.dirty"]
