"""The origins of a local lab: started, looked at, taken away and brought back, each proven by identity before it is touched.

Satisfies ``chaos.target.Backends``. An origin keeps its port over restarts; one that ends by itself is an event.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import Any

from chaos.target import BackendState, BackendStatus, Identity, IdentityChangedError, TargetError
from soak.clock import NS, Clock
from soak.errors import LabError
from soak.lab.process import Child, living, signal_process, start_child, tail
from soak.lab.shared import Shared, create, stats_of
from soak.lab.state import LabState
from soak.lab.vitals import Subject
from soak.proxies.base import BackendAddress
from soak.rundir import RunDir

_LOOK_TIMEOUT_S = 2.0
_END_TIMEOUT_S = 5.0
_SUSPEND_TIMEOUT_S = 2.0
_POLL_S = 0.005
ORIGIN_CERTIFICATE = "origin.pem"
"""In the run's certificates: what origins that speak TLS show, all the same, for the whole run."""
ORIGIN_KEY = "origin.key"


class LocalBackends:
    """Origins as processes on loopback."""

    def __init__(
        self,
        run: RunDir,
        addresses: Sequence[BackendAddress],
        state: LabState,
        clock: Clock,
        *,
        on_event: Callable[[str, Mapping[str, Any]], None],
        start_timeout_s: float,
    ) -> None:
        self._run = run
        self._addresses = {address.name: address for address in addresses}
        self._state = state
        self._clock = clock
        self._on_event = on_event
        self._start_timeout_s = start_timeout_s
        self._children: dict[str, Child] = {}
        self._shared = run.lab / "origins.shared"
        self._counted: dict[str, memoryview] = {}
        self._locks = {name: asyncio.Lock() for name in self._addresses}

    async def start_all(self) -> None:
        """Start every origin, at the same time. Raises ``LabError`` with the words of the first that does not come up."""
        await asyncio.to_thread(self._share)
        outcomes = await asyncio.gather(*map(self._start, self._addresses), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _share(self) -> None:
        try:
            create(self._shared)
            for row, name in enumerate(self._addresses):
                self._counted[name] = Shared.open(self._shared, row).counters
        except (OSError, ValueError) as error:
            raise LabError(f"the origins cannot share {self._shared}: {error}") from error

    def children(self) -> list[Child]:
        """Return the processes started so far, the last one of each origin."""
        return list(self._children.values())

    def subjects(self) -> list[Subject]:
        """Return what the census of vitals looks at."""
        return [Subject(name, child.identity) for name, child in self._children.items()]

    def backend_names(self) -> Sequence[str]:
        """Return the names, in order."""
        return tuple(self._addresses)

    async def backend_status(self, name: str) -> BackendStatus:
        """Look at the process, then ask it who it is. One that lives and does not answer within 2 s counts as hung."""
        address = self._address(name)
        child = self._children.get(name)
        row = living(child.identity) if child is not None else None
        if child is None or row is None:
            if await answers(address):
                raise TargetError(
                    f"{name} has no process, but something answers on its port {address.port}; it is not ours"
                )
            return BackendStatus(name, BackendState.STOPPED, {})
        running = not row.suspended and await answers(address)
        return BackendStatus(name, BackendState.RUNNING if running else BackendState.HUNG, child.identity)

    async def backend_stop(self, name: str, identity: Identity, *, force: bool) -> None:
        """End it with SIGTERM, or SIGKILL when ``force``; returns once the process is gone (at most 5 s)."""
        async with self._lock(name):
            child = self._proven(name, identity)
            child.expected_to_end = True
            signal_process(identity, SIGKILL if force else SIGTERM)
            with suppress(IdentityChangedError):
                signal_process(identity, SIGCONT)  # a suspended process would never act on SIGTERM
            try:
                async with asyncio.timeout(_END_TIMEOUT_S):
                    await child.process.wait()
            except TimeoutError:
                raise TargetError(
                    f"{name} (pid {identity['pid']}) still lives {_END_TIMEOUT_S:g} s after it was told to end"
                ) from None

    async def backend_start(self, name: str) -> Identity:
        """Start it on its old port; returns once it answers. A living one is success as it is."""
        address = self._address(name)
        async with self._lock(name):
            child = self._children.get(name)
            if child is not None and child.alive:
                return child.identity
            try:
                return await self._start(address.name)
            except LabError as error:
                raise TargetError(str(error)) from error

    async def backend_pause(self, name: str, identity: Identity) -> None:
        """Suspend it with SIGSTOP; returns once the kernel shows it as stopped."""
        async with self._lock(name):
            self._proven(name, identity)
            signal_process(identity, SIGSTOP)
            await self._until_suspended(name, identity, wanted=True)

    async def backend_resume(self, name: str, identity: Identity) -> None:
        """Resume it with SIGCONT; one that already runs is success."""
        async with self._lock(name):
            self._proven(name, identity)
            signal_process(identity, SIGCONT)
            await self._until_suspended(name, identity, wanted=False)

    async def command(self, name: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send one line to an origin's control pipe (``soak.lab.answers.Misbehaviour``) and return its reply.

        Raises ``TargetError`` when it is refused or not answered.
        """
        self._address(name)
        async with self._lock(name):
            child = self._children[name]
            pipes = child.process
            if pipes.stdin is None or pipes.stdout is None:
                raise TargetError(f"{name} has no control pipe")
            try:
                async with asyncio.timeout(_LOOK_TIMEOUT_S):
                    pipes.stdin.write(json.dumps(dict(value)).encode() + b"\n")
                    await pipes.stdin.drain()
                    reply: dict[str, Any] = json.loads(await pipes.stdout.readline())
            except (OSError, TimeoutError, ValueError) as error:
                raise TargetError(f"{name} did not answer the command {dict(value)!r}") from error
        if "error" in reply:
            raise TargetError(f"{name} refused the command: {reply['error']}")
        return reply

    async def stats(self, name: str) -> Mapping[str, Any]:
        """Return what it counted, restarts included, whatever state it is in. Raises ``TargetError`` for an unknown name."""
        self._address(name)
        child = self._children.get(name)
        row = living(child.identity) if child is not None else None
        if name not in self._counted:
            raise TargetError(f"{name} was never started")
        now: Mapping[str, Any] = {"connections": 0, "websockets_open": 0}
        if row is not None and not row.suspended:
            with suppress(TargetError):
                now = await self.command(name, {"stats": True})
        return {**now, **stats_of(self._counted[name])}  # the table is never behind, a late reply may be

    def _address(self, name: str) -> BackendAddress:
        if name not in self._addresses:
            raise TargetError(f"there is no backend {name!r}; there are {', '.join(self._addresses)}")
        return self._addresses[name]

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks[self._address(name).name]

    def _proven(self, name: str, identity: Identity) -> Child:
        """Return the present process when it is the one that was prepared; else raise ``IdentityChangedError``."""
        child = self._children.get(name)
        if child is None or dict(child.identity) != dict(identity) or not child.alive:
            raise IdentityChangedError(
                f"{name} is no longer the process {dict(identity)}; it was not touched"
            )
        return child

    async def _start(self, name: str) -> Identity:
        address = self._addresses[name]
        argv = [sys.executable, "-P", "-m", "soak.lab.origin"]
        argv += ["--name", name, "--host", address.host, "--port", str(address.port)]
        argv += ["--shared", str(self._shared), "--row", str(list(self._addresses).index(name))]
        if address.tls_port:
            argv += ["--tls-port", str(address.tls_port)]
            argv += ["--certificate", str(self._run.certs / ORIGIN_CERTIFICATE)]
            argv += ["--key", str(self._run.certs / ORIGIN_KEY)]
        self._state.intend(name, argv)
        child = await start_child(
            name,
            argv,
            directory=self._run.lab,
            run_id=self._run.id,
            log=self._run.lab / f"{name}.log",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            on_end=self._on_end,
        )
        self._children[name] = child
        self._state.started(name, child.identity)
        await self._until_ready(child, address)
        return child.identity

    async def _until_ready(self, child: Child, address: BackendAddress) -> None:
        assert child.process.stdout is not None
        why = f"no answer within {self._start_timeout_s:g} s"
        with suppress(TimeoutError):
            async with asyncio.timeout(self._start_timeout_s):
                if not await child.process.stdout.readline():
                    await child.process.wait()
                    why = "it ended"
                elif await answers(address):
                    return
        child.expected_to_end = True
        with suppress(IdentityChangedError):
            signal_process(child.identity, SIGKILL)
        raise LabError(
            f"the origin {child.name} did not come up on {address.host}:{address.port}: {why}: {child.words()}"
        )

    async def _until_suspended(self, name: str, identity: Identity, *, wanted: bool) -> None:
        deadline = self._clock.monotonic_ns() + int(_SUSPEND_TIMEOUT_S * NS)
        while True:
            row = living(identity)
            if row is None:
                raise IdentityChangedError(
                    f"{name} ended while it was being {'suspended' if wanted else 'resumed'}"
                )
            if row.suspended is wanted:
                return
            if self._clock.monotonic_ns() > deadline:
                raise TargetError(
                    f"{name} (pid {row.pid}) is still in state {row.state} {_SUSPEND_TIMEOUT_S:g} s after the signal"
                )
            await self._clock.sleep(_POLL_S)

    def _on_end(self, child: Child) -> None:
        if child.expected_to_end:
            return
        self._on_event("origin.died", {**child.end(), "words": tail(child.log)})


async def answers(address: BackendAddress) -> bool:
    """Ask an origin for its name over a fresh connection."""
    try:
        async with asyncio.timeout(_LOOK_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            try:
                writer.write(f"GET / HTTP/1.1\r\nHost: {address.host}\r\nConnection: close\r\n\r\n".encode())
                answer = await reader.read()
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return False
    return answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(f"\r\n\r\n{address.name}\n".encode())
