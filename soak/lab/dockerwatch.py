"""Watches the containers of a lab once a second and tells what nobody asked for.

One that ends, vanishes or loses a process to the OOM killer is an event, and so is an engine that is away and back. Touches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from soak.clock import Clock
from soak.lab.containers import Container
from soak.lab.engine import Engine
from soak.lab.enginewords import ContainerGoneError, EngineError

PERIOD_S = 1.0
PROXY = "proxy"

OnEvent = Callable[[str, Mapping[str, Any]], None]


class DockerWatch:
    """Tells each thing once."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        *,
        containers: Callable[[], Mapping[str, str]],
        away: Callable[[], AbstractSet[str]],
        on_event: OnEvent,
    ) -> None:
        """``containers`` gives the ids by name (``proxy``, ``b1``); ``away`` names those that a fault has ended."""
        self._engine = engine
        self._clock = clock
        self._containers = containers
        self._away = away
        self._on_event = on_event
        self._dead: set[str] = set()
        self._gone = False
        self._oom_kills: dict[str, int] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self._clock.sleep(PERIOD_S)
            await self.look()

    async def look(self) -> None:
        """Look once."""
        try:
            for name, container in self._containers().items():
                await self._look_at(name, container)
        except EngineError as error:
            if not self._gone:
                self._on_event("engine.away", {"host": self._engine.host, "error": str(error)})
            self._gone = True
            return
        if self._gone:
            self._on_event("engine.back", {"host": self._engine.host})
        self._gone = False

    def count_oom_kills(self, name: str, kills: int) -> None:
        """Take note of what a look at the vitals saw: a process may be killed while its container lives on."""
        before = self._oom_kills.get(name, 0)
        self._oom_kills[name] = kills
        if kills > before:
            self._on_event(
                f"{_kind(name)}.oom",
                {"name": name, "kills": kills - before, "how": "killed for want of memory"},
            )

    async def _look_at(self, name: str, container: str) -> None:
        try:
            seen = await self._engine.inspect(container)
        except ContainerGoneError:
            self._tell(
                name, f"{container} gone", "removed", {"container": container, "how": "somebody removed it"}
            )
            return
        if seen.alive:
            self._dead -= {key for key in self._dead if key.startswith(f"{name} ")}
        elif seen.state in ("exited", "dead") and name not in self._away():
            await self._tell_end(name, seen)

    async def _tell_end(self, name: str, seen: Container) -> None:
        if f"{name} {seen.id} {seen.started}" in self._dead:
            return
        words = await self._engine.logs(seen.id, tail=20)
        data = {
            "container": seen.id,
            "exit": seen.exit_code,
            "oom": seen.oom_killed,
            "how": seen.how_ended,
            "words": words,
        }
        self._tell(name, f"{seen.id} {seen.started}", "died", data)

    def _tell(self, name: str, key: str, what: str, data: Mapping[str, Any]) -> None:
        if f"{name} {key}" in self._dead:
            return
        self._dead.add(f"{name} {key}")
        self._on_event(f"{_kind(name)}.{what}", {"name": name, **data})


def _kind(name: str) -> str:
    return PROXY if name == PROXY or name.startswith(f"{PROXY}-") else "origin"
