"""The local lab: origins and one proxy as processes on loopback. Nothing to set up, nothing left behind.

Wires its parts and owns the lifecycle; ``backends.py`` and ``proxy.py`` do what faults ask. Satisfies ``chaos.target.Target``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from certs.authority import Authority
from certs.install import install_pair
from chaos.model import Evidence
from chaos.target import Backends
from soak.clock import Clock
from soak.lab.assembled import AssembledLab, there
from soak.lab.backends import ORIGIN_CERTIFICATE, ORIGIN_KEY, LocalBackends
from soak.lab.base import OnEvent
from soak.lab.equipment import equipped
from soak.lab.proxy import LocalProxy
from soak.lab.receiving import ask_to_end
from soak.lab.state import LabState
from soak.lab.sweep import release
from soak.lab.topology import LOOPBACK, Topology
from soak.lab.vitals import look_at
from soak.model import Vital
from soak.plan import Plan
from soak.proxies.base import SERVER_NAME, abilities_of
from soak.rundir import RunDir
from soak.tasks import cancel, spawn

_TEND_PERIOD_S = 10.0
_REAP_TIMEOUT_S = 2.0
_OF_LAB = frozenset({"backend_stop", "backend_pause"})


class LocalLab(AssembledLab):
    """One run's system under test.

    ``on_event`` is called on the event loop. Construct, ``start``, use, ``stop``; a failed ``start`` has already stopped.
    """

    def __init__(
        self, run: RunDir, plan: Plan, *, on_event: OnEvent, clock: Clock | None = None, routes: int = 0
    ) -> None:
        """Find the proxy and choose the ports. Raises ``LabError`` or ``PlanError``; nothing is started or written."""
        super().__init__(run, plan, on_event=on_event, clock=clock, routes=routes)
        self.proxy_binary: Path = self._adapter.find_binary(plan.proxy.binary)
        self._topology = equipped(
            self._adapter,
            abilities_of(self._adapter, self.proxy_binary),
            backends=plan.lab.backends,
            classes=plan.traffic.classes,
            binary=self.proxy_binary,
        )
        self._state = LabState(run)
        self._backends = LocalBackends(
            run,
            self._topology.backends,
            self._state,
            self._clock,
            on_event=on_event,
            start_timeout_s=plan.lab.start_timeout,
        )
        self._started_proxy: LocalProxy | None = None
        self._tending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the origins, then the proxy; returns once a checked answer came through over TLS.

        Raises ``LabError`` with the words of what did not come up; then nothing is left running.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        self._tending = spawn(self._tend(), name="tend-lab", on_death=self._task_died)

    async def stop(self) -> Evidence:
        """End everything at once. Idempotent; ``ok`` means that nothing is left."""
        await cancel(self._tending)
        children = self._backends.children()
        if self._started_proxy is not None:
            children += self._started_proxy.children()
        for child in children:
            child.expected_to_end = True
        if self._started_proxy is not None:
            for child in self._started_proxy.children():
                await ask_to_end(self._adapter, child, self._run.lab / "proxy", self._clock)
        evidence = await release(self._run, self._clock)
        with suppress(TimeoutError):
            async with asyncio.timeout(_REAP_TIMEOUT_S):
                await asyncio.gather(*(child.process.wait() for child in children))
        return evidence

    async def vitals(self, at_s: float) -> list[Vital]:
        """Look at the proxy with all its workers, and at each origin. ``at_s`` is stamped on the result."""
        return await look_at([self._proxy.subject(), *self._backends.subjects()], at_s)

    async def misbehave(self, name: str, **wish: float) -> None:
        """Tell an origin to go wrong (fields of ``soak.lab.answers.Misbehaviour``); nothing: behave. Raises ``TargetError``."""
        await self._backends.command(name, wish)

    async def origin_stats(self, name: str) -> Mapping[str, Any]:
        """Return what an origin counted itself since the lab started, its own restarts included.

        ``requests``; ``non_idempotent`` and the ``duplicates`` among them (delivered before, to this or another origin);
        ``drips``; ``websockets`` opened and the ``messages`` that they echoed; ``cache``: by kind (``plain``, ``etag``, ``vary``, ``no-store``)
        how many ``full`` answers and ``not_modified`` ones it gave. And what is open now: ``connections``, ``websockets_open``; zero for an
        origin that is down or suspended.
        """
        return await self._backends.stats(name)

    # inside

    @property
    def _places(self) -> Topology:
        return self._topology

    @property
    def _able(self) -> frozenset[str]:
        return _OF_LAB

    def _backend_part(self) -> Backends:
        return self._backends

    def _proxy_part(self) -> LocalProxy:
        return self._proxy

    @property
    def _proxy(self) -> LocalProxy:
        return there(self._started_proxy)

    async def _start(self) -> None:
        self._run.lab.mkdir(parents=True, exist_ok=True)
        self.proxy_version = await asyncio.to_thread(self._adapter.version, self.proxy_binary)
        authority = await asyncio.to_thread(Authority.create, self._run.certs)
        if self._topology.proxy.tcp_port:
            await asyncio.to_thread(_certify_origins, authority, self._run.certs)
        setup = self._setup(self.proxy_binary, authority)
        self._started_proxy = LocalProxy(setup, self._state, on_event=self._on_event)
        await self._backends.start_all()
        await self._started_proxy.start()

    async def _tend(self) -> None:
        """Keep the proxy's log bounded: an endless fault must not fill the disk."""
        while True:
            await self._clock.sleep(_TEND_PERIOD_S)
            if cut := await asyncio.to_thread(self._proxy.trim_logs):
                self._on_event("proxy.log_trimmed", {"bytes": cut})


def _certify_origins(authority: Authority, directory: Path) -> None:
    """Give the origins a certificate of their own, which no rotation touches: what a byte pipe shows is theirs."""
    pair = authority.leaf(SERVER_NAME, f"*.{SERVER_NAME}", LOOPBACK, "localhost")
    certificate, key = directory / ORIGIN_CERTIFICATE, directory / ORIGIN_KEY
    install_pair(pair.chain_pem, pair.key_pem, certificate=certificate, key=key)
