"""The one place that reads clocks. Everything else is given a ``Clock`` or a number.

Instants inside a run are integer nanoseconds of CLOCK_MONOTONIC, which all processes of a host share, or seconds
since the start of the run. Wall time is used for names and for people only.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol

NS = 1_000_000_000


class Clock(Protocol):
    """Monotonic and wall time, and a sleep that can be cancelled."""

    def monotonic_ns(self) -> int:
        """Return CLOCK_MONOTONIC in nanoseconds."""
        ...

    def wall_s(self) -> float:
        """Return wall time in seconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep; can be cancelled."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic_ns(self) -> int:
        """Return CLOCK_MONOTONIC in nanoseconds."""
        return time.monotonic_ns()

    def wall_s(self) -> float:
        """Return wall time in seconds since the epoch."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Sleep; can be cancelled."""
        await asyncio.sleep(max(0.0, seconds))


class RunClock:
    """A clock whose zero is the start of the run; satisfies ``chaos.target.Clock``."""

    def __init__(self, clock: Clock, t0_ns: int) -> None:
        self._clock = clock
        self.t0_ns = t0_ns

    def now(self) -> float:
        """Return seconds since the start of the run."""
        return (self._clock.monotonic_ns() - self.t0_ns) / NS

    def at(self, monotonic_ns: int) -> float:
        """Convert an instant to seconds since the start of the run."""
        return (monotonic_ns - self.t0_ns) / NS

    async def sleep(self, seconds: float) -> None:
        """Sleep; can be cancelled."""
        await self._clock.sleep(seconds)


def iso_utc(wall_s: float) -> str:
    """Return an ISO 8601 instant in UTC with whole seconds: ``2026-12-01T08:00:00Z``."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
