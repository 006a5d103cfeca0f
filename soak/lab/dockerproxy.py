"""The proxy of a docker lab: an official image with soak's configuration mounted where the image expects one.

Files are written on this host and seen inside under another path: a directory is mounted, never a file, so that a file that is
renamed into place is seen. Everything else is as with any proxy (``soak.lab.configured``). Satisfies ``chaos.target.Proxy`` and
``chaos.target.Throttles``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from signal import Signals
from typing import Any

from certs.install import write_atomically
from chaos.target import Identity, TargetError
from soak.errors import LabError
from soak.lab.attached import changed
from soak.lab.checking import Checked
from soak.lab.companioncontainers import CompanionContainers
from soak.lab.companions import companions_of
from soak.lab.configured import VALIDATE_TIMEOUT_S, ProxySetup, Setting
from soak.lab.containerfaults import held_back_s, limits_of, loosen, tighten
from soak.lab.containers import ContainerSpec
from soak.lab.dockerorigins import OwnContainer
from soak.lab.engine import Engine
from soak.lab.enginewords import EngineError
from soak.lab.identifiedproxy import IdentifiedProxy
from soak.lab.process import tail
from soak.proxies.base import ContainerFacts, NamesMainProcess, ProxyAdapter, ProxyModel
from soak.proxies.companion import Companion

_ANYWHERE = "0.0.0.0"  # noqa: S104 - inside its own network; the engine publishes it on loopback


class ProxyContainer(OwnContainer):
    """The container of a proxy, as this host speaks of it: commands with this host's paths, signals to whom the adapter names."""

    def __init__(self, spec: ContainerSpec, engine: Engine, adapter: ProxyAdapter) -> None:
        """``spec`` mounts one directory, the proxy's."""
        super().__init__("proxy", spec, engine)
        [(self._directory, inside)] = spec.binds.items()
        self._inside = Path(inside)
        self._adapter = adapter

    def seen_inside(self, path: Path) -> Path:
        """Return where the container sees a path of the mounted directory."""
        return self._inside / path.relative_to(self._directory)

    def outside(self, path: Path) -> Path:
        """Return where this host has what the container sees under a path of the mounted directory."""
        return self._directory / path.relative_to(self._inside)

    def inside(self, command: Sequence[str]) -> list[str]:
        """Return a command with the paths that the container sees."""
        return [word.replace(str(self._directory), str(self._inside)) for word in command]

    async def run(self, command: Sequence[str], *, timeout_s: float) -> Checked:
        """Run a command in the container."""
        return await super().run(self.inside(command), timeout_s=timeout_s)

    async def signal(self, identity: Identity, number: Signals) -> None:
        """Send a signal to its first process, or to the one that the adapter names, by the image's own shell.

        Raises ``TargetError``.
        """
        pid = self._main_pid()
        if pid in (None, 1):
            await super().signal(identity, number)
            return
        if (now := (await self.look()).identity) != dict(identity):
            raise changed(self.name, identity, now)
        done = await super().run(
            ["/bin/sh", "-c", f"kill -{int(number)} {pid}"], timeout_s=VALIDATE_TIMEOUT_S
        )
        if done.code != 0:
            raise TargetError(f"{number.name} could not be sent to pid {pid} of the container: {done.words}")

    def _main_pid(self) -> int | None:
        if not isinstance(self._adapter, NamesMainProcess):
            return None
        try:
            return self._adapter.main_pid(self._directory)
        except LabError as error:
            raise TargetError(str(error)) from error


class DockerProxy(IdentifiedProxy):
    """The proxy as a container."""

    def __init__(
        self, setup: ProxySetup, *, engine: Engine, facts: ContainerFacts, spec: ContainerSpec
    ) -> None:
        """``spec`` is the container without its command; the directory of this host that it mounts is made here."""
        inside = Path(facts.directory)
        here = setup.run.lab / "proxy"
        argv = list(setup.adapter.start_command(setup.binary, inside))
        whole = replace(
            spec,
            argv=argv,
            directory=str(inside.parent),
            binds={here: facts.directory},
            reads=tuple(facts.reads),
        )
        self._container = ProxyContainer(whole, engine, setup.adapter)
        self._companions = CompanionContainers(
            setup.run,
            setup.clock,
            engine,
            images=facts.companions,
            proxy=whole,
            host=setup.topology.proxy.host,
            start_timeout_s=setup.start_timeout_s,
        )
        super().__init__(setup, self._container, self._companions)
        self._inside = inside
        self._engine = engine
        self._candidate = self._directory / "candidate"
        self._shown = self.certificate
        """Where the record looks for the certificate that is in place."""
        pairs = self._directory / "tls"
        self.certificate, self.key = pairs / "site.pem", pairs / "site.key"
        self.bundle = pairs / "site.bundle.pem"

    async def start(self) -> None:
        """Render, validate, install, start; returns once a checked answer came through it over TLS. Raises ``LabError``."""
        await asyncio.to_thread(self._prepare_directories)
        await self._put_valid_in_place()
        await self._container.make()
        await self._identify()
        self._engine.follow(self._container.made_id, self._output)
        await self._start_companions()
        await self._until_it_serves()

    def trim_logs(self) -> int:
        """Keep the logs bounded; returns the bytes cut."""
        return self.log.trim() + self._companions.trim()

    def companions(self) -> Mapping[str, str]:
        """Return the id of each companion's container, by the name of the part."""
        return self._companions.containers()

    async def proxy_identity(self) -> Identity:
        """Return the identity of the container as it was started. Raises ``TargetError`` when it or a companion has ended."""
        running = self._running()
        if await self._has_ended():
            raise TargetError(f"the proxy has ended: {await self._last_words()}")
        return running.identity

    async def proxy_limits(self) -> Mapping[str, Any]:
        """Return what it may use; each companion may use as much."""
        return await limits_of(self._engine, self.container)

    async def proxy_tighten(self, identity: Identity, *, cpus: float, memory_bytes: int) -> None:
        """Let it, and each companion, use less."""
        await tighten(self._engine, "the proxy", identity, cpus, memory_bytes)
        for one in self._companions.members():
            await tighten(self._engine, one.thing.name, one.identity, cpus, memory_bytes)

    async def proxy_loosen(self, identity: Identity, limits: Mapping[str, Any]) -> None:
        """Give it back what it had, whatever became of its process, and each companion the same."""
        for container in (str(identity["container"]), *self.companions().values()):
            await loosen(self._engine, container, limits)

    async def proxy_held_back_s(self) -> float | None:
        """Return how long it and its companions were held back, one after the other."""
        containers = (self.container, *self.companions().values())
        held = [await held_back_s(self._engine, container) for container in containers]
        seen = [seconds for seconds in held if seconds is not None]
        return sum(seen) if len(seen) == len(held) else None

    @property
    def container(self) -> str:
        """The id of its container."""
        return self._container.made_id

    # inside: where this proxy differs from others

    def _prepare_directories(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self.certificate.parent.mkdir(mode=0o700, exist_ok=True)

    async def _start_companions(self) -> None:
        self._companions.beside(self.container)
        wanted = self._companions_in(self._directory, self._current)
        if too_early := [one.name for one in wanted if one.first]:
            raise LabError(
                f"{', '.join(too_early)} must run before {self._adapter.name}, in whose network it would run; use lab local"
            )
        try:
            await self._companions.start(wanted, first=False)
        except LabError as error:
            if not await self._running().look():  # then nothing in its network can come up
                raise LabError(await self._given_up("it ended")) from error
            raise

    def _companions_in(self, directory: Path, setting: Setting) -> Sequence[Companion]:
        model = self._model(setting, directory, broken=False)
        # Another image has them: where, its own PATH knows.
        found = companions_of(self._adapter, Path(self._binary.name), model)
        return [replace(one, reads=[self._container.outside(path) for path in one.reads]) for one in found]

    def _model(self, setting: Setting, directory: Path, *, broken: bool) -> ProxyModel:
        model = super()._model(setting, directory, broken=broken)
        return replace(
            model,
            listen_host=_ANYWHERE,
            directory=self._container.seen_inside(directory),
            certificate=self._container.seen_inside(model.certificate),
            key=self._container.seen_inside(model.key),
            bundle=self._container.seen_inside(model.bundle),
        )

    def _put_in_place(self, setting: Setting) -> None:
        super()._put_in_place(setting)
        write_atomically(self._shown, setting.pair.chain_pem, mode=0o644)

    async def _check(self, command: Sequence[str], *, companion: str = "") -> Checked:
        """Run the validator in the proxy's container, or in one of its image before there is one; a companion's beside it."""
        if companion:
            return await self._companions.check(companion, command, timeout_s=VALIDATE_TIMEOUT_S)
        if self._identified is not None:
            return await self._container.run(command, timeout_s=VALIDATE_TIMEOUT_S)
        spec, inside = self._container.spec, self._container.inside(command)
        once = replace(spec, name=f"{spec.name}-check", argv=inside, network=None, address=None, ports={})
        try:
            done = await self._engine.run(once, timeout_s=VALIDATE_TIMEOUT_S)
        except EngineError as error:
            return Checked(None, str(error))
        return Checked(done.code, done.output)

    async def _given_up(self, why: str) -> str:
        return f"{self._adapter.name} did not come up: {why}: {await self._last_words()}"

    async def _last_words(self) -> str:
        """Say how it ended and what it said last."""
        if ended := self._companions.ended():
            return ended
        try:
            seen = await self._engine.inspect(self.container)
        except EngineError as error:
            return str(error)
        how = "still running" if seen.alive else seen.how_ended
        return f"{how}; {self._end_words()}"

    def _end_words(self) -> str:
        if ended := self._companions.ended():
            return ended
        said = "\n".join(filter(None, map(tail, dict.fromkeys((self.log.path, self._output)))))
        return f"it said:\n{said}" if said else "it said nothing"
