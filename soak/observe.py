"""Independent sight of what clients get: folds sightings of traffic and prober, and lets faults wait for one.

Satisfies ``chaos.target.Observer``. Traffic's sightings come once a second with exact instants; the prober's come at
once. An instant is handed out only when traffic's report of that second is in, so that it is the earliest of both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from soak.clock import RunClock
from soak.model import Sighting, SightKind, SightVia

_REPORT_WAIT_S = 2.5
"""How long a sighting by the prober waits for traffic's report of the same second."""
_MAX_VALUES = 2000

Key = tuple[SightKind, str, SightVia]


class TrafficObserver:
    """What has been seen so far. ``silence_s`` is how long a backend must be unseen to count as silent."""

    def __init__(
        self, clock: RunClock, *, silence_s: float = 1.0, hurry: Callable[[float], None] | None = None
    ) -> None:
        self._clock = clock
        self._silence_s = silence_s
        self._hurry = hurry
        self._seen: dict[Key, Sighting] = {}
        self._covered_s = 0.0
        self._changed = asyncio.Event()

    def see(self, sighting: Sighting) -> None:
        """Fold one sighting."""
        key = (sighting.kind, sighting.value, sighting.via)
        known = self._seen.pop(key, None)
        if known is not None:
            sighting = replace(
                sighting,
                first_s=min(known.first_s, sighting.first_s),
                last_s=max(known.last_s, sighting.last_s),
                count=known.count + sighting.count,
            )
        self._seen[key] = sighting
        while len(self._seen) > _MAX_VALUES:
            del self._seen[next(iter(self._seen))]
        self._notify()

    def covered(self, until_s: float) -> None:
        """Note that traffic has reported all it saw before this instant."""
        if until_s > self._covered_s:
            self._covered_s = until_s
            self._notify()

    def first_seen(self, kind: SightKind, value: str) -> float | None:
        """Return when a value was first seen, by whomever."""
        found = [s.first_s for via in SightVia if (s := self._seen.get((kind, value, via)))]
        return min(found, default=None)

    def last_seen(self, kind: str, value: str) -> float | None:
        """Return when a value was last seen, by whomever; None if never."""
        found = [s.last_s for via in SightVia if (s := self._seen.get((SightKind(kind), value, via)))]
        return max(found, default=None)

    async def generation_seen(self, generation: int, timeout_s: float) -> float | None:
        """Wait until an answer carries this generation; returns the instant of the first one, or None."""
        value = str(generation)
        return await self._first(lambda: self.first_seen(SightKind.GENERATION, value), timeout_s)

    async def serial_seen(self, serial: str, timeout_s: float) -> float | None:
        """Wait until the prober's fresh handshake shows this serial; returns the first instant of anybody's sight, or None."""
        if self._hurry is not None:
            self._hurry(timeout_s)

        def probed() -> float | None:
            if (SightKind.SERIAL, serial, SightVia.PROBE) not in self._seen:
                return None
            return self.first_seen(SightKind.SERIAL, serial)

        return await self._first(probed, timeout_s)

    async def origin_silent(self, name: str, timeout_s: float) -> float | None:
        """Wait until no answer came from a backend for a moment; returns the instant of its last one, or None.

        A backend that was never seen counts as silent since the call.
        """
        asked_s = self._clock.now()

        def silent() -> float | None:
            last_s = self.last_seen(SightKind.ORIGIN, name)
            quiet_since_s = asked_s if last_s is None else max(last_s, asked_s)
            if self._covered_s < quiet_since_s + self._silence_s:
                return None
            return asked_s if last_s is None else last_s

        return await self._until(silent, timeout_s)

    async def origin_seen(self, name: str, after_s: float, timeout_s: float) -> float | None:
        """Wait for an answer by a backend after an instant; returns the instant of the newest one then, or None."""

        def seen() -> float | None:
            last_s = self.last_seen(SightKind.ORIGIN, name)
            return last_s if last_s is not None and last_s > after_s else None

        return await self._until(seen, timeout_s)

    # inside

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _first(self, look: Callable[[], float | None], timeout_s: float) -> float | None:
        """Wait for a first sight, then for traffic's word about the second before it, which may know an earlier one."""
        found = await self._until(look, timeout_s)
        if found is None:
            return None
        at_s = found
        await self._until(lambda: at_s if self._covered_s >= at_s else None, _REPORT_WAIT_S)
        return look()

    async def _until(self, look: Callable[[], float | None], timeout_s: float) -> float | None:
        try:
            async with asyncio.timeout(timeout_s):
                while (found := look()) is None:
                    await self._changed.wait()
                return found
        except TimeoutError:
            return look()
