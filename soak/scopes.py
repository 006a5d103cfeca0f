"""Stamps traffic with what is going on. Satisfies ``chaos.target.Scopes``; the one place that makes scopes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from soak.clock import RunClock
from soak.model import Phase, Scope


class ScopeBook:
    """Faults under way and the scope that follows from them.

    ``record`` is called with each new scope before any request can carry it; ``announce`` tells the load workers and
    returns once they have been told.
    """

    def __init__(
        self,
        clock: RunClock,
        *,
        record: Callable[[Scope], None],
        announce: Callable[[Scope], Awaitable[None]],
    ) -> None:
        self._clock = clock
        self._record = record
        self._announce = announce
        self._under_way: dict[int, Phase] = {}
        self._lock = asyncio.Lock()
        self.current = Scope(0, Phase.STEADY)
        record(self.current)

    async def fault(self, fault_id: int) -> None:
        """From now on requests belong to this fault."""
        await self._change(fault_id, Phase.FAULT)

    async def recovery(self, fault_id: int) -> None:
        """Traffic is recovering from this fault."""
        await self._change(fault_id, Phase.RECOVERY)

    async def done(self, fault_id: int) -> None:
        """This fault explains nothing any more."""
        await self._change(fault_id, None)

    async def _change(self, fault_id: int, phase: Phase | None) -> None:
        async with self._lock:
            if phase is None:
                self._under_way.pop(fault_id, None)
            else:
                self._under_way[fault_id] = phase
            phases = set(self._under_way.values())
            now = Phase.FAULT if Phase.FAULT in phases else Phase.RECOVERY if phases else Phase.STEADY
            scope = Scope(self.current.id + 1, now, tuple(sorted(self._under_way)), self._clock.now())
            self._record(scope)
            self.current = scope
            await self._announce(scope)
