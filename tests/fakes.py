"""Fakes that several rooms share: a clock that tests move, and a lab, its observer, scopes and recovery in memory.

They behave (a stopped backend is silent, a reload that is swallowed is never seen); they do not record expectations.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from chaos.model import Evidence
from chaos.target import (
    BackendState,
    BackendStatus,
    Identity,
    IdentityChangedError,
    Recovery,
    TargetError,
)

T = TypeVar("T")

NS = 1_000_000_000
SETTLE_ROUNDS = 60
"""Turns of the loop after which everything that can run without time has run."""


async def settle() -> None:
    """Let everything run that does not wait for time."""
    for _ in range(SETTLE_ROUNDS):
        await asyncio.sleep(0)


class FakeClock:
    """Time that passes only when a test says so. Satisfies ``soak.clock.Clock`` and ``chaos.target.Clock``."""

    def __init__(self, now: float = 0.0, *, wall_s: float = 1_800_000_000.0) -> None:
        self._now = now
        self._wall_offset_s = wall_s - now
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        """Return the fake time in seconds."""
        return self._now

    def monotonic_ns(self) -> int:
        """Return the fake time in nanoseconds."""
        return round(self._now * NS)

    def wall_s(self) -> float:
        """Return a wall time that moves with the fake time."""
        return self._now + self._wall_offset_s

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock only, as an administrator does."""
        self._wall_offset_s += seconds

    async def sleep(self, seconds: float) -> None:
        """Sleep until the test has moved the time that far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), future))
        await future

    @property
    def sleepers(self) -> int:
        """How many are asleep."""
        return sum(1 for _, _, future in self._sleepers if not future.done())

    async def advance(self, seconds: float) -> None:
        """Move time, waking each sleeper at its own instant, in order."""
        end = self._now + seconds
        await settle()
        while (due := self._next_due()) is not None and due <= end:
            self._wake(due)
            await settle()
        self._now = max(self._now, end)
        await settle()

    async def drive(
        self, awaitable: Coroutine[Any, Any, T] | asyncio.Task[T], *, limit_s: float = 10_000
    ) -> T:
        """Move time from sleeper to sleeper until this ends; returns its result."""
        task = asyncio.ensure_future(awaitable)
        end = self._now + limit_s
        try:
            await settle()
            while not task.done():
                due = self._next_due()
                assert due is not None, "nothing is asleep and nothing goes on: a deadlock"
                assert due <= end, f"not done after {limit_s} fake seconds"
                self._wake(due)
                await settle()
            return task.result()
        finally:
            task.cancel()

    def _next_due(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _wake(self, due: float) -> None:
        self._now = max(self._now, due)
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)


class FakeTarget:
    """A lab in memory: backends with a state and an identity, a proxy with a generation and a certificate.

    ``plan(method, *behaviours)`` makes the next calls of a method raise (an exception), or do something else first
    (a coroutine function without arguments); then it behaves again. ``calls`` holds what was called, in order.
    """

    def __init__(self, clock: FakeClock, backends: Sequence[str] = ("b1", "b2", "b3")) -> None:
        self.clock = clock
        self.states = dict.fromkeys(backends, BackendState.RUNNING)
        self._pids = itertools.count(100)
        self.identities: dict[str, Identity] = {
            name: {"pid": next(self._pids), "started": 1.0, "port": 9000 + i}
            for i, name in enumerate(backends)
        }
        self.capabilities = {
            "reload",
            "reload:full",
            "cert_rotate",
            "backend_stop",
            "backend_pause",
            "marker",
        }
        self.capabilities |= {"backend_partition", "proxy_throttle"}
        self.calls: list[str] = []
        self.accepted = 1
        self.serving = 1
        self.serial = "A0"
        self.reload_ignored = False
        self.reload_refused = ""
        self.broken_accepted = False
        self.broken_kills = False
        self.broken_wedges = False
        self.restore_ok = True
        self.proxy: dict[str, Any] = {"pid": 50, "started": 1.0}
        self.networks: dict[str, dict[str, Any]] = {name: {"lab": name} for name in backends}
        self.limits: dict[str, Any] = {"cpus": 2.0, "memory_bytes": 1 << 30, "exact": {"quota": 200}}
        self.held_back_s: float | None = 0.0
        self.held_back = True
        """Whether a limit of CPU holds the proxy back."""
        self._good = (1, "A0")
        self._plans: dict[str, list[BaseException | Callable[[], Coroutine[Any, Any, None]]]] = {}

    def plan(self, method: str, *behaviours: BaseException | Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Script the next calls of a method."""
        self._plans.setdefault(method, []).extend(behaviours)

    async def _call(self, method: str, *arguments: object) -> None:
        self.calls.append(" ".join([method, *map(str, arguments)]))
        if queue := self._plans.get(method):
            behaviour = queue.pop(0)
            if isinstance(behaviour, BaseException):
                raise behaviour
            await behaviour()

    def supports(self, capability: str) -> bool:
        return capability in self.capabilities

    def backend_names(self) -> Sequence[str]:
        return list(self.states)

    async def backend_status(self, name: str) -> BackendStatus:
        await self._call("backend_status", name)
        state = self.states[name]
        return BackendStatus(name, state, {} if state is BackendState.STOPPED else self.identities[name])

    async def backend_stop(self, name: str, identity: Identity, *, force: bool) -> None:
        await self._call("backend_stop", name, "KILL" if force else "TERM")
        self._prove(name, identity)
        self.states[name] = BackendState.STOPPED

    async def backend_start(self, name: str) -> Identity:
        await self._call("backend_start", name)
        if self.states[name] is BackendState.STOPPED:
            self.identities[name] = {
                **self.identities[name],
                "pid": next(self._pids),
                "started": self.clock.now(),
            }
            self.states[name] = BackendState.RUNNING
        return self.identities[name]

    async def backend_pause(self, name: str, identity: Identity) -> None:
        await self._call("backend_pause", name)
        self._prove(name, identity)
        self.states[name] = BackendState.HUNG

    async def backend_resume(self, name: str, identity: Identity) -> None:
        await self._call("backend_resume", name)
        self._prove(name, identity)
        self.states[name] = BackendState.RUNNING

    async def backend_networks(self, name: str) -> Mapping[str, Any]:
        await self._call("backend_networks", name)
        return dict(self.networks[name])

    async def backend_disconnect(self, name: str, identity: Identity) -> None:
        await self._call("backend_disconnect", name)
        self._prove(name, identity)
        self.networks[name] = {}
        self.states[name] = BackendState.HUNG

    async def backend_reconnect(self, name: str, identity: Identity, networks: Mapping[str, Any]) -> None:
        await self._call("backend_reconnect", name)
        self.networks[name] = dict(networks)
        if self.states[name] is BackendState.HUNG:
            self.states[name] = BackendState.RUNNING

    async def proxy_limits(self) -> Mapping[str, Any]:
        await self._call("proxy_limits")
        return dict(self.limits)

    async def proxy_tighten(self, identity: Identity, *, cpus: float, memory_bytes: int) -> None:
        await self._call("proxy_tighten", cpus, memory_bytes)
        self.limits = {
            "cpus": cpus,
            "memory_bytes": memory_bytes or self.limits["memory_bytes"],
            "exact": {"quota": 1},
        }
        if self.held_back and self.held_back_s is not None:
            self.held_back_s += 1.5

    async def proxy_loosen(self, identity: Identity, limits: Mapping[str, Any]) -> None:
        await self._call("proxy_loosen")
        self.limits = dict(limits)

    async def proxy_held_back_s(self) -> float | None:
        await self._call("proxy_held_back_s")
        return self.held_back_s

    def _prove(self, name: str, identity: Identity) -> None:
        if dict(identity) != dict(self.identities[name]):
            raise IdentityChangedError(f"backend {name} is {self.identities[name]}, not {dict(identity)}")

    async def proxy_identity(self) -> Identity:
        await self._call("proxy_identity")
        return dict(self.proxy)

    def generation(self) -> int:
        return self.accepted

    def _reload(self, generation: int, serial: str) -> None:
        if not self.reload_ignored:
            self.serving, self.serial = generation, serial

    async def apply_generation(self, generation: int, *, kind: str = "") -> Evidence:
        await self._call("apply_generation", generation, *([kind] if kind else []))
        if self.reload_refused:
            return Evidence(ok=False, reason=self.reload_refused)
        self._good = (self.serving, self.serial)
        self.accepted = generation
        self._reload(generation, self.serial)
        return Evidence(ok=True, detail={"generation": generation})

    async def apply_broken_config(self) -> Evidence:
        await self._call("apply_broken_config")
        if self.broken_kills:
            self.serving = -1
        if self.broken_wedges:
            self.reload_ignored = True
        if self.broken_accepted:
            return Evidence(ok=False, reason="configuration test is successful")
        return Evidence(ok=True, detail={"word": "unknown directive"})

    async def install_certificate(self, generation: int) -> Mapping[str, Any]:
        await self._call("install_certificate", generation)
        old, new = self.serial, f"A{generation}"
        self._good = (self.serving, old)
        self.accepted = generation
        self._reload(generation, new)
        return {"serial": new, "old_serial": old, "fingerprint": "f" * 8}

    async def restore_proxy(self) -> Evidence:
        await self._call("restore_proxy")
        if not self.restore_ok:
            return Evidence(ok=False, reason="the reload was not taken")
        self._reload(*self._good)
        self.accepted = self._good[0]
        return Evidence(ok=True, detail={"generation": self.accepted})


class FakeObserver:
    """Sees what the fake lab would show in traffic, ``delay_s`` after it is so."""

    def __init__(self, target: FakeTarget, clock: FakeClock, delay_s: float = 0.2) -> None:
        self._target = target
        self._clock = clock
        self.delay_s = delay_s
        self.out_of_rotation: set[str] = set()
        """Backends that run but get no traffic."""
        self.ghosts: set[str] = set()
        """Backends that answer whatever their process does."""

    async def _wait(self, condition: Callable[[], bool], timeout_s: float) -> float | None:
        end = self._clock.now() + timeout_s
        while self._clock.now() < end:
            if condition():
                await self._clock.sleep(self.delay_s)
                return self._clock.now()
            await self._clock.sleep(0.1)
        return None

    def _answers(self, name: str) -> bool:
        runs = self._target.states[name] is BackendState.RUNNING
        return name in self.ghosts or (runs and name not in self.out_of_rotation)

    async def generation_seen(self, generation: int, timeout_s: float) -> float | None:
        return await self._wait(lambda: self._target.serving == generation, timeout_s)

    async def serial_seen(self, serial: str, timeout_s: float) -> float | None:
        return await self._wait(lambda: self._target.serial == serial, timeout_s)

    def last_seen(self, kind: str, value: str) -> float | None:
        shown = str(self._target.serving) if kind == "generation" else self._target.serial
        return self._clock.now() if shown == value else None

    async def origin_silent(self, name: str, timeout_s: float) -> float | None:
        seen = await self._wait(lambda: not self._answers(name), timeout_s)
        return None if seen is None else seen - self.delay_s

    async def origin_seen(self, name: str, after_s: float, timeout_s: float) -> float | None:
        return await self._wait(lambda: self._answers(name) and self._clock.now() >= after_s, timeout_s)


class FakeScopes:
    """Remembers what requests would be stamped with."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []
        self.fails = False

    async def _stamp(self, what: str, fault_id: int) -> None:
        if self.fails:
            raise TargetError("no load worker answers")
        self.log.append((what, fault_id))

    async def fault(self, fault_id: int) -> None:
        await self._stamp("fault", fault_id)

    async def recovery(self, fault_id: int) -> None:
        await self._stamp("recovery", fault_id)

    async def done(self, fault_id: int) -> None:
        await self._stamp("done", fault_id)


class FakeRecovery:
    """Traffic that calms ``after_s`` after the last edge; None: never. Known three seconds later, as in life."""

    def __init__(self, clock: FakeClock, after_s: float | None = 0.5) -> None:
        self._clock = clock
        self.after_s = after_s
        self.edges: list[tuple[float, ...]] = []

    async def recovered(self, fault_id: int, edges_s: Sequence[float], timeout_s: float) -> Recovery:
        self.edges.append(tuple(edges_s))
        after_s = timeout_s if self.after_s is None else self.after_s + 3.0
        await self._clock.sleep(max(edges_s) + after_s - self._clock.now())
        if self.after_s is None:
            return Recovery(None, None, {})
        return Recovery(max(edges_s) + self.after_s, self.after_s, {"edges": list(edges_s)})
