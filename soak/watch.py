"""Waits for traffic to recover from a fault, by ``soak.verdict.recovery``. Satisfies ``chaos.target.RecoveryWatch``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from chaos.target import Recovery
from soak.clock import RunClock
from soak.measure.facts import SecondFacts
from soak.verdict.recovery import RecoveryTracker

_LATE_REPORT_S = 2.0
"""A second is known about this long after it ended."""


class TrafficRecoveryWatch:
    """Feeds the tracker as seconds come in; wakes who waits.

    ``remembered_s`` is how far back seconds are kept: what a fault and its recovery may take, with the steady minute before it.
    """

    def __init__(self, clock: RunClock, *, remembered_s: int) -> None:
        self._clock = clock
        self._tracker = RecoveryTracker(capacity_s=remembered_s)
        self._changed = asyncio.Event()

    def add(self, facts: SecondFacts) -> None:
        """Take the next second."""
        self._tracker.add(facts)
        self._changed.set()
        self._changed = asyncio.Event()

    async def recovered(self, fault_id: int, edges_s: Sequence[float], timeout_s: float) -> Recovery:
        """Wait until traffic has calmed after the last edge, at most ``timeout_s`` after it (and the reports' delay)."""
        del fault_id  # traffic alone judges; the edges say where to look
        left_s = max(edges_s) + timeout_s + _LATE_REPORT_S - self._clock.now()
        try:
            async with asyncio.timeout(max(left_s, 0.0)):
                while not (found := self._tracker.judge(edges_s)).settled:
                    await self._changed.wait()
        except TimeoutError:
            found = self._tracker.judge(edges_s)
        return Recovery(found.recovered_s, found.recovery_s, {**found.detail, "upper_s": found.upper_s})
