"""A daemon that stands still at a given step of a fault, to be killed there. Run as a process: RUN KIND STEP.

Prints one line of JSON when it has got there: the guardian's pid.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chaos.faults.catalog import registry
from chaos.guardian import spawn_guardian
from chaos.heal import MonotonicClock
from chaos.journal import Intent, Journal, Step
from chaos.model import FaultRequest, Source
from chaos.runner import Runner
from chaos.target import BackendState, Identity, Recovery
from tests.chaos.disk_lab import NAMES, DiskLab
from tests.fakes import FakeScopes

TOUCHED = "touched"
"""Between the deed and its note in the journal."""


class Doom:
    """Stands still for ever at its step."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.guardian = 0

    def at(self, step: str) -> None:
        if step == self.step:
            sys.stdout.write(json.dumps({"guardian": self.guardian, "step": step}) + "\n")
            sys.stdout.flush()
            while True:
                signal.pause()


class DoomedJournal(Journal):
    doom: Doom

    def intent(self, intent: Intent, at_s: float | None) -> None:
        super().intent(intent, at_s)
        self.doom.at("intent")

    def step(self, fault_id: int, step: Step, at_s: float | None, **data: Any) -> None:
        super().step(fault_id, step, at_s, **data)
        self.doom.at(step.value)


class DoomedLab(DiskLab):
    doom: Doom

    async def backend_stop(self, name: str, identity: Identity, *, force: bool) -> None:
        await super().backend_stop(name, identity, force=force)
        self.doom.at(TOUCHED)

    async def backend_pause(self, name: str, identity: Identity) -> None:
        await super().backend_pause(name, identity)
        self.doom.at(TOUCHED)


class Sight:
    """Sees in the processes what traffic would show."""

    def __init__(self, lab: DiskLab, clock: MonotonicClock) -> None:
        self.lab, self.clock = lab, clock

    async def generation_seen(self, generation: int, timeout_s: float) -> float | None:
        raise NotImplementedError

    async def serial_seen(self, serial: str, timeout_s: float) -> float | None:
        raise NotImplementedError

    def last_seen(self, kind: str, value: str) -> float | None:
        raise NotImplementedError

    async def origin_silent(self, name: str, timeout_s: float) -> float | None:
        status = await self.lab.backend_status(name)
        return None if status.state is BackendState.RUNNING else self.clock.now()

    async def origin_seen(self, name: str, after_s: float, timeout_s: float) -> float | None:
        return self.clock.now()


class Calm:
    async def recovered(self, fault_id: int, edges_s: Sequence[float], timeout_s: float) -> Recovery:
        return Recovery(max(edges_s), 0.0, {})


async def main(run: Path, kind: str, step: str) -> None:
    clock, doom = MonotonicClock(), Doom(step)
    guardian = await spawn_guardian(
        run_dir=run,
        open_lab="tests.chaos.disk_lab:open_lab",
        deadline_ns=time.monotonic_ns() + 60_000_000_000,
        log=run / "guardian.log",
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    doom.guardian = guardian.pid
    lab = DoomedLab(run)
    lab.doom = doom
    for name in NAMES:
        await lab.backend_start(name)
    journal = DoomedJournal(run / "journal.jsonl", t0_ns=time.monotonic_ns())
    journal.doom = doom
    runner = Runner(
        target=lab,
        observer=Sight(lab, clock),
        recovery=Calm(),
        scopes=FakeScopes(),
        clock=clock,
        journal=journal,
        faults=registry(),
        sink=lambda _record: None,
        event=lambda _name, _data: None,
    )
    await runner.run(FaultRequest(kind, Source.INJECT, 0.0, 0.2, "b1"))
    doom.at("after")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
