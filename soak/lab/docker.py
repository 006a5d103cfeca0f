"""The docker lab: a network, origins and one proxy as containers that soak makes, labels with its run, and removes.

Wires its parts and owns the lifecycle. The engine must be on this host: containers mount directories of the run, and clients reach the
proxy at a published port. Satisfies ``soak.lab.base.Lab``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from certs.authority import Authority
from chaos.model import Evidence
from chaos.target import Backends, Identity
from soak.clock import Clock
from soak.errors import LabError
from soak.lab.assembled import AssembledLab, there
from soak.lab.attached import Role
from soak.lab.base import OnEvent
from soak.lab.containerfaults import ABILITIES
from soak.lab.containers import ContainerSpec, Network
from soak.lab.containervitals import look_at_container
from soak.lab.dockerorigins import DockerOrigins, OwnContainer, origin_spec, user
from soak.lab.dockerproxy import DockerProxy
from soak.lab.dockerstate import labels_of, name_of, release, write_record
from soak.lab.dockerwatch import PROXY, DockerWatch
from soak.lab.engine import Engine
from soak.lab.equipment import equipped
from soak.lab.oneoff import stand_in
from soak.lab.together import together
from soak.lab.topology import LOOPBACK, Topology
from soak.labplan import DockerLabPlan
from soak.model import Vital
from soak.plan import Plan
from soak.proxies.base import (
    SERVER_NAME,
    BackendAddress,
    ContainerFacts,
    ProxyAdapter,
    RunsInContainer,
    abilities_of,
)
from soak.rundir import RunDir
from soak.tasks import cancel, spawn

_OF_LAB = frozenset({"backend_stop", "backend_pause"}) | ABILITIES
_TEND_PERIOD_S = 10.0
_ORIGIN_PORT, _ORIGIN_TLS_PORT = 8080, 8443
_PROXY_HOST, _FIRST_ORIGIN = 5, 10
"""Places in the subnet; the first ones belong to the engine."""
_OPEN_FILES = 20_000
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - compared with what a plan may say, bound nowhere


class DockerLab(AssembledLab):
    """One run's system under test, in containers."""

    def __init__(
        self, run: RunDir, plan: Plan, *, on_event: OnEvent, clock: Clock | None = None, routes: int = 0
    ) -> None:
        """Read the plan; nothing is asked or made yet. Raises ``PlanError``, and ``LabError`` for a proxy without an image."""
        super().__init__(run, plan, on_event=on_event, clock=clock, routes=routes)
        self._where = plan.lab.docker or DockerLabPlan()
        self._facts = facts_of(self._adapter, self._where)
        self._engine: Engine | None = None
        self._topology: Topology | None = None
        self._origins: DockerOrigins | None = None
        self._started_proxy: DockerProxy | None = None
        self._watch: DockerWatch | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Make the network and the containers; returns once a checked answer came through over TLS.

        Raises ``LabError`` with the words of what did not come up; then nothing is left.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        assert self._watch is not None
        self._tasks = [
            spawn(self._watch.run(), name="watch-containers", on_death=self._task_died),
            spawn(self._tend(), name="tend-lab", on_death=self._task_died),
        ]

    async def stop(self) -> Evidence:
        """Remove everything at once. Idempotent; ``ok`` means that nothing is left."""
        for task in self._tasks:
            await cancel(task)
        if self._engine is None:
            return Evidence(ok=True)
        evidence = await release(self._run, self._engine.host, self._clock)
        self._engine.close()
        return evidence

    async def vitals(self, at_s: float) -> list[Vital]:
        """Look at the proxy's container and at each origin's. ``at_s`` is stamped on the result."""
        whole = [self._proxy.container, *self._proxy.companions().values()]
        looks = [look_at_container(self._door, one, PROXY, at_s, self._adapter) for one in whole]
        looks += [
            look_at_container(self._door, container, name, at_s)
            for name, container in self._backends.containers().items()
        ]
        seen = await asyncio.gather(*looks)
        vitals = [together(seen[: len(whole)]), *seen[len(whole) :]]
        if self._watch is not None:
            for vital in vitals:
                self._watch.count_oom_kills(vital.subject, int(vital.detail.get("oom_kills", 0)))
        return vitals

    async def origin_stats(self, name: str) -> Mapping[str, Any]:
        """Return what an origin counted since the lab started, restarts included. Raises ``TargetError``."""
        return self._backends.stats(name)

    # chaos.target.Target

    async def backend_networks(self, name: str) -> Mapping[str, Any]:
        """Return which networks a backend is on."""
        return await self._backends.backend_networks(name)

    async def backend_disconnect(self, name: str, identity: Identity) -> None:
        """Take a backend off the network."""
        await self._backends.backend_disconnect(name, identity)

    async def backend_reconnect(self, name: str, identity: Identity, networks: Mapping[str, Any]) -> None:
        """Put it back at its old address."""
        await self._backends.backend_reconnect(name, identity, networks)

    async def proxy_limits(self) -> Mapping[str, Any]:
        """Return what the proxy may use."""
        return await self._proxy.proxy_limits()

    async def proxy_tighten(self, identity: Identity, *, cpus: float, memory_bytes: int) -> None:
        """Let the proxy use less."""
        await self._proxy.proxy_tighten(identity, cpus=cpus, memory_bytes=memory_bytes)

    async def proxy_loosen(self, identity: Identity, limits: Mapping[str, Any]) -> None:
        """Give it back what it had."""
        await self._proxy.proxy_loosen(identity, limits)

    async def proxy_held_back_s(self) -> float | None:
        """Return how long the proxy was held back."""
        return await self._proxy.proxy_held_back_s()

    # inside

    @property
    def _places(self) -> Topology:
        return there(self._topology)

    @property
    def _able(self) -> frozenset[str]:
        return _OF_LAB

    def _backend_part(self) -> Backends:
        return self._backends

    def _proxy_part(self) -> DockerProxy:
        return self._proxy

    @property
    def _door(self) -> Engine:
        return there(self._engine)

    @property
    def _backends(self) -> DockerOrigins:
        return there(self._origins)

    @property
    def _proxy(self) -> DockerProxy:
        return there(self._started_proxy)

    async def _start(self) -> None:
        engine = self._engine = await Engine.connect(self._where.host)
        for image in images_of(self._facts, self._where):
            await engine.require_image(image)
        require_reads(self._facts)
        origins_directory = self._run.lab / "origins"
        origins_directory.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(write_record, self._run, engine.host)
        wanted = await asyncio.to_thread(self._equip, engine)
        network = await engine.create_network(name_of(self._run, "net"), labels_of(self._run))
        self._topology = addressed(wanted, network.subnet, self._where)
        authority = await asyncio.to_thread(Authority.create, self._run.certs)
        self._origins = self._make_origins(engine, network.name, origins_directory)
        if wanted.proxy.tcp_port:
            pair = authority.leaf(SERVER_NAME, f"*.{SERVER_NAME}", self._where.publish, "localhost")
            await asyncio.to_thread(self._origins.certify, pair.chain_pem, pair.key_pem)
        self._started_proxy = self._make_proxy(engine, network, authority)
        await self._origins.start_all()
        await self._started_proxy.start()
        self._watch = DockerWatch(
            engine,
            self._clock,
            containers=lambda: {
                PROXY: self._proxy.container,
                **self._proxy.companions(),
                **self._backends.containers(),
            },
            away=lambda: self._backends.away,
            on_event=self._on_event,
        )

    def _equip(self, engine: Engine) -> Topology:
        """Ask the image's binary what it is and can, and choose ports of this host. Some container starts: not for the event loop."""
        binary = stand_in(
            self._run.lab / "proxy-binary",
            engine=engine.host,
            image=self._facts.image,
            program=self._plan.proxy.binary or self._facts.binary,
            name=name_of(self._run, "ask"),
            labels=labels_of(self._run),
            reads=self._facts.reads,
        )
        self.proxy_version = self._adapter.version(binary)
        return equipped(
            self._adapter,
            abilities_of(self._adapter, binary),
            backends=self._plan.lab.backends,
            classes=self._plan.traffic.classes,
            binary=binary,
        )

    def _make_origins(self, engine: Engine, network: str, directory: Path) -> DockerOrigins:
        image = self._where.origin_image
        containers = {
            address.name: OwnContainer(
                address.name,
                origin_spec(self._run, image, network, address, row, directory=directory),
                engine,
            )
            for row, address in enumerate(self._places.backends)
        }
        return DockerOrigins(
            engine,
            containers,
            self._places.backends,
            self._clock,
            directory=directory,
            start_timeout_s=self._plan.lab.start_timeout,
        )

    def _make_proxy(self, engine: Engine, network: Network, authority: Authority) -> DockerProxy:
        places = self._places
        ports = {
            places.proxy.http_port,
            places.proxy.https_port,
            places.proxy.tcp_port,
            *places.ports.values(),
        }
        spec = ContainerSpec(
            name=name_of(self._run, PROXY),
            image=self._facts.image,
            argv=(),
            labels=labels_of(self._run, Role.PROXY, PROXY),
            network=network.name,
            address=str(ip_network(network.subnet)[_PROXY_HOST]),
            ports={port: port for port in sorted(ports - {0})},
            publish=self._where.publish,
            user=user(),
            cpus=self._where.cpus,
            memory_bytes=self._where.memory,
            open_files=_OPEN_FILES,
        )
        setup = self._setup(Path(self._plan.proxy.binary or self._facts.binary), authority)
        return DockerProxy(setup, engine=engine, facts=self._facts, spec=spec)

    async def _tend(self) -> None:
        """Keep the proxy's log bounded: an endless fault must not fill the disk."""
        while True:
            await self._clock.sleep(_TEND_PERIOD_S)
            if cut := await asyncio.to_thread(self._proxy.trim_logs):
                self._on_event("proxy.log_trimmed", {"bytes": cut})


def facts_of(adapter: ProxyAdapter, where: DockerLabPlan) -> ContainerFacts:
    """Return how this proxy runs in a container, with the plan's image. Raises ``LabError`` when nobody knows."""
    if not isinstance(adapter, RunsInContainer):
        raise LabError(
            f"{adapter.name} has no image that soak knows; run it in the local lab, or in containers of your own (lab attach)"
        )
    facts = adapter.container
    if not (image := where.proxy_image or facts.image):
        raise LabError(
            f"soak knows no image of {adapter.name}; name the one that has it in lab.docker.proxy_image"
        )
    return replace(facts, image=image, companions={**facts.companions, **where.companion_images})


def images_of(facts: ContainerFacts, where: DockerLabPlan) -> tuple[str, ...]:
    """Return all images that a lab is made of."""
    return (facts.image, *facts.companions.values(), where.origin_image)


def require_reads(facts: ContainerFacts) -> None:
    """Raise ``LabError`` when a directory is missing that the container is to see: an engine would make an empty one."""
    for path in facts.reads:
        if not path.is_dir():
            raise LabError(
                f"{path} is missing, which the container needs beside its image; {facts.how_to_get}"
            )


def addressed(wanted: Topology, subnet: str, where: DockerLabPlan) -> Topology:
    """Move a topology into a subnet, each part on an address of its own. Raises ``LabError`` for one that is too small.

    By default the load goes to the proxy's own address: behind a port that is published on loopback stands a relay of the
    engine's, a program that would be measured, too, and that closes connections later than the proxy does.
    """
    places = ip_network(subnet)
    if places.num_addresses < _FIRST_ORIGIN + len(wanted.backends) + 2:
        raise LabError(
            f"the engine gave the subnet {subnet}, which is too small for {len(wanted.backends)} origins; "
            "set a larger size in its default-address-pools"
        )
    origins = tuple(
        BackendAddress(
            one.name,
            str(places[_FIRST_ORIGIN + row]),
            _ORIGIN_PORT,
            _ORIGIN_TLS_PORT if one.tls_port else 0,
        )
        for row, one in enumerate(wanted.backends)
    )
    published = LOOPBACK if where.publish == _EVERYWHERE else where.publish
    host = published if where.reach == "published" else str(places[_PROXY_HOST])
    return replace(wanted, proxy=replace(wanted.proxy, host=host), backends=origins)
