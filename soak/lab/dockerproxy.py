"""The proxy of a docker lab: an official image with soak's configuration mounted where the image expects one.

Files are written on this host and seen inside under another path: a directory is mounted, never a file, so that a file that is
renamed into place is seen. Everything else is as with a child of ours (``soak.lab.proxy``). Satisfies ``chaos.target.Proxy`` and
``chaos.target.Throttles``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from certs.authority import Authority
from certs.install import write_atomically
from chaos.target import BackendState, Identity, TargetError
from soak.clock import NS, Clock
from soak.errors import LabError
from soak.lab.attachedproxy import Attached, ask_for_reload
from soak.lab.base import OnEvent
from soak.lab.checking import Checked
from soak.lab.containerfaults import held_back_s, limits_of, loosen, tighten
from soak.lab.containers import ContainerSpec
from soak.lab.dockerorigins import OwnContainer
from soak.lab.engine import Engine
from soak.lab.enginewords import EngineError
from soak.lab.process import tail
from soak.lab.proxy import VALIDATE_TIMEOUT_S, LocalProxy, Setting
from soak.lab.reloading import Said
from soak.lab.state import LabState
from soak.lab.topology import Topology
from soak.plan import ProxyPlan
from soak.proxies.base import ContainerFacts, ProxyAdapter, ProxyModel, ReloadKind
from soak.rundir import RunDir

_LOOK_TIMEOUT_S = 1.5
_POLL_S = 0.05
_ANYWHERE = "0.0.0.0"  # noqa: S104 - inside its own network; the engine publishes it on loopback


class DockerProxy(LocalProxy):
    """The proxy as a container."""

    def __init__(
        self,
        run: RunDir,
        plan: ProxyPlan,
        topology: Topology,
        clock: Clock,
        *,
        engine: Engine,
        facts: ContainerFacts,
        spec: ContainerSpec,
        adapter: ProxyAdapter,
        authority: Authority,
        on_event: OnEvent,
        start_timeout_s: float,
        version: str,
        routes: int,
    ) -> None:
        """``spec`` is the container without its command; the directory of this host that it mounts is made here."""
        super().__init__(
            run,
            plan,
            topology,
            LabState(run),
            clock,
            adapter=adapter,
            binary=Path(plan.binary or facts.binary),
            authority=authority,
            on_event=on_event,
            start_timeout_s=start_timeout_s,
            version=version,
            routes=routes,
        )
        self._engine = engine
        self._inside = Path(facts.directory)
        argv = list(adapter.start_command(self._binary, self._inside))
        whole = replace(
            spec, argv=argv, directory=str(self._inside.parent), binds={self._directory: facts.directory}
        )
        self._container = OwnContainer("proxy", whole, engine)
        self._attached: Attached | None = None
        self._candidate = self._directory / "candidate"
        self._shown = self.certificate
        """Where the record looks for the certificate that is in place."""
        pairs = self._directory / "tls"
        self.certificate, self.key = pairs / "site.pem", pairs / "site.key"
        self.bundle = pairs / "site.bundle.pem"

    async def start(self) -> None:
        """Render, validate, install, start; returns once a checked answer came through it over TLS. Raises ``LabError``."""
        await asyncio.to_thread(self._prepare_directories)
        refused = await self._validate(self._current)
        if refused is not None:
            raise LabError(f"{self._adapter.name} refuses its configuration:\n{refused}")
        await asyncio.to_thread(self._put_in_place, self._current)
        await self._container.make()
        seen = await self._container.look()
        self._attached = Attached(self._container, seen.identity)
        self._engine.follow(self._container.made_id, self._output)
        await self._until_it_serves()

    async def proxy_identity(self) -> Identity:
        """Return the identity of the container as it was started. Raises ``TargetError`` when it has ended."""
        attached = self._running()
        if not await attached.look():
            raise TargetError(f"the proxy has ended: {await self._last_words()}")
        return attached.identity

    async def proxy_limits(self) -> Mapping[str, Any]:
        """Return what it may use."""
        return await limits_of(self._engine, self.container)

    async def proxy_tighten(self, identity: Identity, *, cpus: float, memory_bytes: int) -> None:
        """Let it use less."""
        await tighten(self._engine, "the proxy", identity, cpus, memory_bytes)

    async def proxy_loosen(self, identity: Identity, limits: Mapping[str, Any]) -> None:
        """Give it back what it had, whatever became of its process."""
        await loosen(self._engine, str(identity["container"]), limits)

    async def proxy_held_back_s(self) -> float | None:
        """Return how long it was held back."""
        return await held_back_s(self._engine, self.container)

    @property
    def container(self) -> str:
        """The id of its container."""
        return self._container.made_id

    # inside: where this proxy differs from a child of ours

    def _running(self) -> Attached:
        if self._attached is None:
            raise TargetError("the proxy is not started yet")
        return self._attached

    def _prepare_directories(self) -> None:
        super()._prepare_directories()
        self.certificate.parent.mkdir(mode=0o700, exist_ok=True)

    def _seen_inside(self, path: Path) -> Path:
        return self._inside / path.relative_to(self._directory)

    def _model(self, setting: Setting, directory: Path, *, broken: bool) -> ProxyModel:
        model = super()._model(setting, directory, broken=broken)
        return replace(
            model,
            listen_host=_ANYWHERE,
            directory=self._seen_inside(directory),
            certificate=self._seen_inside(model.certificate),
            key=self._seen_inside(model.key),
            bundle=self._seen_inside(model.bundle),
        )

    def _put_in_place(self, setting: Setting) -> None:
        super()._put_in_place(setting)
        write_atomically(self._shown, setting.pair.chain_pem, mode=0o644)

    async def _check(self, command: Sequence[str]) -> Checked:
        """Run the validator in the proxy's container, or in one of its image before there is one."""
        here, there = str(self._directory), str(self._inside)
        inside = [word.replace(here, there) for word in command]
        if self._attached is not None:
            return await self._container.run(inside, timeout_s=VALIDATE_TIMEOUT_S)
        spec = self._container.spec
        once = replace(spec, name=f"{spec.name}-check", argv=inside, network=None, address=None, ports={})
        try:
            done = await self._engine.run(once, timeout_s=VALIDATE_TIMEOUT_S)
        except EngineError as error:
            return Checked(None, str(error))
        return Checked(done.code, done.output)

    async def _reload(self, kind: ReloadKind | None = None) -> Said:
        return await ask_for_reload(
            self._adapter,
            self._running(),
            self.log,
            self._clock,
            directory=self._directory,
            ports=self._topology.ports,
            kind=kind,
        )

    async def _until_it_serves(self) -> None:
        deadline = self._clock.monotonic_ns() + int(self._start_timeout_s * NS)
        while (missing := await self._look(_LOOK_TIMEOUT_S)) is not None:
            seen = await self._container.look()
            late = self._clock.monotonic_ns() > deadline
            if seen.state is BackendState.STOPPED or late:
                why = f"it is not ready after {self._start_timeout_s:g} s ({missing})" if late else "it ended"
                raise LabError(f"{self._adapter.name} did not come up: {why}: {await self._last_words()}")
            await self._clock.sleep(_POLL_S)

    async def _last_words(self) -> str:
        """Say how it ended and what it said last."""
        try:
            seen = await self._engine.inspect(self.container)
        except EngineError as error:
            return str(error)
        how = "still running" if seen.alive else seen.how_ended
        return f"{how}; {self._end_words()}"

    def _end_words(self) -> str:
        said = "\n".join(filter(None, map(tail, dict.fromkeys((self.log.path, self._output)))))
        return f"it said:\n{said}" if said else "it said nothing"
