"""The proxy of a local lab: a child of ours, with its companions.

How it is configured is ``soak.lab.configured``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from chaos.target import Identity, TargetError
from soak.lab.base import OnEvent
from soak.lab.checking import Checked, run_check
from soak.lab.companionprocesses import CompanionProcesses
from soak.lab.companions import companions_of
from soak.lab.configured import VALIDATE_TIMEOUT_S, ConfiguredProxy, ProxySetup, Setting
from soak.lab.process import Child, start_child
from soak.lab.receiving import Receiver
from soak.lab.reloading import CALL_TIMEOUT_S, Said, ask
from soak.lab.state import LabState, marker_of
from soak.lab.vitals import Subject, executables_of
from soak.proxies.base import ReloadContext, ReloadKind, TellsProcesses
from soak.proxies.companion import Companion


class LocalProxy(ConfiguredProxy):
    """The proxy as a process on loopback."""

    def __init__(self, setup: ProxySetup, state: LabState, *, on_event: OnEvent) -> None:
        super().__init__(setup)
        self._state = state
        self._on_event = on_event
        self._child: Child | None = None
        self._companions = CompanionProcesses(
            setup.run,
            state,
            setup.clock,
            host=setup.topology.proxy.host,
            on_event=on_event,
            start_timeout_s=setup.start_timeout_s,
        )

    # lifecycle

    async def start(self) -> None:
        """Render, validate, install, start; returns once a checked answer came through it over TLS. Raises ``LabError``."""
        await asyncio.to_thread(self._prepare_directories)
        await self._put_valid_in_place()
        companions = self._companions_in(self._directory, self._current)
        await self._companions.start(companions, first=True)
        argv = list(self._adapter.start_command(self._binary, self._directory))
        self._state.intend("proxy", argv)
        with marker_of(self._run).open("rb") as marker:
            self._child = await start_child(
                "proxy",
                argv,
                directory=self._run.lab,
                run_id=self._run.id,
                log=self._output,
                stdin=marker,
                stdout=None,
                on_end=self._on_end,
            )
        self._state.started("proxy", self._child.identity)
        await self._companions.start(companions, first=False)
        await self._until_it_serves()
        seen = await asyncio.to_thread(executables_of, self.subject())
        self._state.started("proxy", self._child.identity, seen)

    def children(self) -> list[Child]:
        """Return the processes started, if any."""
        return [*([] if self._child is None else [self._child]), *self._companions.members()]

    def trim_logs(self) -> int:
        """Keep the logs bounded; returns the bytes cut."""
        return self.log.trim() + self._companions.trim()

    def subject(self) -> Subject:
        """Return what the census of vitals looks at: the main process, its session, all descendants, and its companions."""
        identity: Identity = {} if self._child is None else self._child.identity
        roles = self._adapter.roles if isinstance(self._adapter, TellsProcesses) else None
        more = [one.identity for one in self._companions.members()]
        return Subject("proxy", identity, tree=True, role=self._adapter.role, roles=roles, more=more)

    async def proxy_identity(self) -> Identity:
        """Return the identity of the process that was started. Raises ``TargetError`` when it has ended."""
        if self._child is None or not self._child.alive or self._companions.ended():
            raise TargetError(f"the proxy has ended: {self._end_words()}")
        return self._child.identity

    # inside: where this proxy differs from others

    def _prepare_directories(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        marker_of(self._run).touch()

    def _companions_in(self, directory: Path, setting: Setting) -> Sequence[Companion]:
        return companions_of(self._adapter, self._binary, self._model(setting, directory, broken=False))

    async def _check(self, command: Sequence[str], *, companion: str = "") -> Checked:
        """Run a validator as a process of the run's."""
        del companion  # it is on this host, too
        return await run_check(
            command, directory=self._run.lab, run_id=self._run.id, timeout_s=VALIDATE_TIMEOUT_S
        )

    async def _reload(self, kind: ReloadKind | None = None) -> Said:
        """Ask for a reload, first the companions whose files have changed; returns what they and the proxy made of it."""
        return await self._companions.reload(lambda: self._ask(kind), everyone=kind is ReloadKind.FULL)

    async def _ask(self, kind: ReloadKind | None) -> Said:
        """Ask the proxy itself, by a call of the adapter's or by signal."""
        child = self._child
        assert child is not None
        receiver = Receiver(self._adapter, child, self._directory)
        pid, ports = int(child.identity["pid"]), self._topology.ports
        context = ReloadContext(self._directory, pid, ports, CALL_TIMEOUT_S, kind)
        return await ask(self._adapter, receiver, self.log, self._clock, context)

    async def _take_back(self) -> None:
        await super()._take_back()
        await self._companions.refresh()

    async def _has_ended(self) -> bool:
        assert self._child is not None
        return not self._child.alive or bool(self._companions.ended())

    async def _given_up(self, why: str) -> str:
        assert self._child is not None
        self._child.expected_to_end = True
        for one in self.children():
            await one.settled()
        return f"{self._adapter.name} did not come up: {why}: {self._end_words()}"

    def _end_words(self) -> str:
        """Say how the process ended and what it said last, in its log and on its output."""
        words = self._child.words(self.log.path, self._output) if self._child is not None else ""
        return "\n".join(filter(None, (self._companions.ended(), words)))

    def _on_end(self, child: Child) -> None:
        if child.expected_to_end:
            return
        self._on_event("proxy.died", {**child.end(), "words": self._end_words()})
