"""Measures several generators beside each other: in turn, again and again, so that a noisy minute hits all of them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.load.cost import Cost, CpuRun, RunFailed, Spread, difference, run_pinned
from benchmarks.load.peers import OPEN, Peer, Task
from benchmarks.load.soakside import order_for
from soak.load.traffic import ClassSpec

SHORT_S = 1
PAUSE_S = 0.2

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Contestant:
    """Something to be measured. ``argv`` gets seconds; ``count`` finds the number of good answers in what it printed."""

    name: str
    model: str
    argv: Callable[[int], Sequence[str]]
    count: Callable[[str], int]
    note: str = ""
    missing: str = ""
    """Why it cannot run here, if so."""
    detail: Callable[[str], dict[str, Any]] = lambda _: {}
    """What else of its output is kept with the raw results."""


@dataclass(slots=True)
class Entry:
    """What was measured of one contestant."""

    name: str
    model: str
    note: str = ""
    missing: str = ""
    costs: list[Cost] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    details: list[dict[str, Any]] = field(default_factory=list)

    def cpu_us(self) -> Spread | None:
        """CPU per request, or None when nothing was measured."""
        return Spread.of([c.cpu_us for c in self.costs]) if self.costs else None

    def rate(self) -> Spread | None:
        """Requests per second."""
        return Spread.of([c.rate for c in self.costs]) if self.costs else None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Entry:
        """Read what ``to_json`` wrote."""
        return cls(**{**value, "costs": [Cost(**c) for c in value["costs"]]})


def of_peer(peer: Peer, task: Callable[[int], Task], *, note: str = "") -> Contestant:
    """Return a peer as a contestant."""
    return Contestant(
        name=peer.name,
        model=peer.model,
        argv=lambda seconds: peer.argv(task(seconds)),
        count=peer.count,
        note=note or peer.note,
        missing="" if peer.path() else f"not installed ({peer.comes_from})",
    )


def of_soak(
    name: str,
    spec: ClassSpec,
    scratch: Path,
    *,
    connections: int,
    ca_file: Path | None = None,
    outcome: str = "ok",
    note: str = "",
    coalesce_s: float | None = None,
) -> Contestant:
    """Return soak, sending one class, as a contestant. Requests that end otherwise than with ``outcome`` do not count."""

    def argv(seconds: int) -> list[str]:
        order = order_for(spec, seconds, connections=connections, ca_file=ca_file, coalesce_s=coalesce_s)
        file = scratch / "order.json"
        file.write_text(json.dumps(order.to_json()))
        return [sys.executable, "-m", "benchmarks.load.soakside", str(file)]

    return Contestant(
        name=name,
        model=OPEN,
        argv=argv,
        count=lambda output: int(json.loads(output)["outcomes"].get(outcome, 0)),
        note=note,
        detail=_soak_detail,
    )


def _soak_detail(output: str) -> dict[str, Any]:
    result = json.loads(output)
    kept = (
        "scheduled",
        "sent",
        "dropped",
        "missed",
        "outcomes",
        "opened",
        "lag_ms",
        "latency_ms",
        "service_ms",
    )
    return {name: result[name] for name in kept}


def side_by_side(
    contestants: Sequence[Contestant],
    *,
    repetitions: int,
    seconds: int,
    say: Say,
    run: Callable[[Sequence[str]], CpuRun] = run_pinned,
    pause_s: float = PAUSE_S,
) -> list[Entry]:
    """Measure all in turn, ``repetitions`` times: each a short run, then one of ``seconds`` more."""
    entries = {c.name: Entry(c.name, c.model, c.note, c.missing) for c in contestants}
    for turn in range(repetitions):
        for c in contestants:
            entry = entries[c.name]
            if c.missing:
                continue
            try:
                short = run(c.argv(SHORT_S))
                time.sleep(pause_s)
                long = run(c.argv(SHORT_S + seconds))
                cost = difference(short, c.count(short.output), long, c.count(long.output))
            except RunFailed as error:
                entry.failures.append(str(error))
                say(f"  {turn + 1}/{repetitions} {c.name}: {error}")
                continue
            entry.costs.append(cost)
            entry.details.append(c.detail(long.output))
            say(f"  {turn + 1}/{repetitions} {c.name}: {cost.cpu_us:.1f} us, {cost.rate:,.0f} req/s")
            time.sleep(pause_s)
    return list(entries.values())
