"""What only the origins can know, sampled while a run goes on: who was asked how often, what came twice, what a cache let through.

Not through the proxy: the lab asks the origins themselves. Totals only ever grow, even where an origin that starts again
begins at zero.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from chaos.target import TargetError
from soak.clock import RunClock
from soak.model import OriginTotals
from soak.tasks import spawn

ORIGINS_EVERY_S = 5.0

Ask = Callable[[str], Awaitable[Mapping[str, Any]]]
"""Returns the counters of an origin by name. Raises ``TargetError``."""


class OriginWatch:
    """Samples every origin; ``keep`` gets the totals after each look, ``on_event`` what must not happen."""

    def __init__(
        self,
        names: Sequence[str],
        ask: Ask,
        clock: RunClock,
        *,
        keep: Callable[[OriginTotals], None],
        on_event: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self._names = names
        self._ask = ask
        self._clock = clock
        self._keep = keep
        self._on_event = on_event
        self._before: dict[str, int] = {}
        """Counted by earlier processes of an origin, by ``name.counter``."""
        self._last: dict[str, int] = {}
        self._silent: set[str] = set()
        self._looked_s = 0.0
        self._one_at_a_time = asyncio.Lock()

    async def run(self) -> None:
        """Look every five seconds, on an absolute beat, until cancelled. A look that has begun is ended first."""
        number = 0
        while True:
            looking = spawn(self.look(), name="look-at-origins")
            try:
                await asyncio.shield(looking)  # its question gets its answer
            finally:
                await asyncio.wait({looking})
            number = max(number + 1, int(self._clock.now() / ORIGINS_EVERY_S) + 1)
            await self._clock.sleep(number * ORIGINS_EVERY_S - self._clock.now())

    async def look(self) -> None:
        """Ask every origin once, all at the same time. One that gives no answer keeps its last totals; that is told once."""
        async with self._one_at_a_time:
            await self._look()

    async def _look(self) -> None:
        now_s = self._clock.now()
        answers = await asyncio.gather(*map(self._ask, self._names), return_exceptions=True)
        for name, counted in zip(self._names, answers, strict=True):
            if isinstance(counted, TargetError):
                if name not in self._silent:
                    self._silent.add(name)
                    self._on_event("origin.not_counted", {"name": name, "error": str(counted)})
            elif isinstance(counted, BaseException):
                raise counted
            else:
                self._silent.discard(name)
                self._add(name, counted)
        self._looked_s = now_s
        self._keep(self.totals(now_s))

    def _add(self, name: str, counted: Mapping[str, Any]) -> None:
        twice = f"{name}.duplicates"
        known = self._total(twice)
        for counter, value in flat(counted).items():
            key = f"{name}.{counter}"
            if value < (last := self._last.get(key, 0)):  # another process counts from zero
                self._before[key] = self._before.get(key, 0) + last
            self._last[key] = value
        if (more := self._total(twice) - known) > 0:
            told = {"name": name, "more": more, "total": known + more, "since_s": round(self._looked_s, 1)}
            self._on_event("origin.duplicates", told)

    def _total(self, key: str) -> int:
        return self._before.get(key, 0) + self._last.get(key, 0)

    def totals(self, at_s: float) -> OriginTotals:
        """Return what is known now."""
        out: dict[str, dict[str, int]] = {}
        for key in self._last:
            name, _, counter = key.partition(".")
            out.setdefault(name, {})[counter] = self._total(key)
        return OriginTotals(at_s, out)


_NOW = frozenset({"connections", "websockets_open"})
"""Counters of what is open at present: they are no totals."""


def flat(counted: Mapping[str, Any]) -> dict[str, int]:
    """Return the totals among an origin's counters by dotted name: ``{"requests": 3, "cache.etag.full": 1}``."""
    out: dict[str, int] = {}
    for name, value in counted.items():
        if isinstance(value, Mapping):
            out.update({f"{name}.{inner}": n for inner, n in flat(value).items()})
        elif name not in _NOW:
            out[name] = int(value)
    return out
