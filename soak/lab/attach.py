"""The attach lab: a proxy and backends that somebody else runs, as processes or as containers. Broken and healed, never made or removed.

Wires its parts and owns the lifecycle. What soak changes is the proxy's configuration and certificate, and those are given back by
``stop``, by the guardian, or by ``soak heal``. Satisfies ``soak.lab.base.Lab``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from certs.authority import Authority
from chaos.model import Evidence
from chaos.target import Backends, Identity, TargetError
from soak.clock import Clock
from soak.errors import LabError
from soak.lab.assembled import AssembledLab, there
from soak.lab.attached import Thing
from soak.lab.attachedbackends import AttachedBackends
from soak.lab.attachedcompanions import beside_of
from soak.lab.attachedcontainer import AttachedContainer
from soak.lab.attachedfaults import AttachedFaults
from soak.lab.attachedfiles import program_of
from soak.lab.attachedprocess import AttachedProcess
from soak.lab.attachedproxy import AttachedProxy, give_back
from soak.lab.attachedtls import origin_tls_of
from soak.lab.attachments import PROXY, Attachments, attachments_of, topology_of, until_all_run
from soak.lab.attachstate import Borrowed, originals_of, write_borrowed
from soak.lab.base import OnEvent
from soak.lab.counted import Counted
from soak.lab.equipment import counted_at
from soak.lab.together import together
from soak.lab.topology import Topology
from soak.model import Vital
from soak.plan import Plan
from soak.rundir import RunDir
from soak.tasks import cancel, spawn

_TEND_PERIOD_S = 2.0


class AttachLab(AttachedFaults, AssembledLab):
    """One run's system under test, which belongs to somebody else."""

    def __init__(
        self, run: RunDir, plan: Plan, *, on_event: OnEvent, clock: Clock | None = None, routes: int = 0
    ) -> None:
        """Read the plan; nothing is looked for yet. Raises ``PlanError``."""
        assert plan.lab.attach is not None
        super().__init__(run, plan, on_event=on_event, clock=clock, routes=routes)
        self._where = plan.lab.attach
        self._topology = counted_at(topology_of(self._where), self._adapter)
        self._originals = originals_of(run)
        self._counted: Counted | None = None
        self._attachments: Attachments | None = None
        self._backends: AttachedBackends | None = None
        self._started_proxy: AttachedProxy | None = None
        self._known: Mapping[str, Identity] = {}
        self._tending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Find everything, take the proxy over; returns once a checked answer came through over TLS.

        Raises ``LabError`` with what is missing and how to set it; then the proxy has its own files again.
        """
        try:
            await self._start()
        except BaseException as error:
            await self.stop()
            if isinstance(error, TargetError):
                raise LabError(str(error)) from error
            raise
        self._tending = spawn(self._tend(), name="tend-lab", on_death=self._task_died)

    async def stop(self) -> Evidence:
        """Give the proxy its own files back. Idempotent; ``ok`` means that it has them."""
        await cancel(self._tending)
        if self._attachments is None:
            return Evidence(ok=True)
        try:
            return await give_back(
                self._originals,
                self._attachments.proxy,
                self._known.get(PROXY, {}),
                adapter=self._adapter,
                clock=self._clock,
                where=self._where.proxy,
                beside=beside_of(self._plan, self._attachments.companions, self._known),
            )
        except (OSError, TargetError) as error:
            return Evidence(ok=False, detail={"error": str(error)}, reason=str(error))
        finally:
            self._attachments.close()

    async def vitals(self, at_s: float) -> list[Vital]:
        """Look at the proxy with all its processes, and at each origin. ``at_s`` is stamped on the result."""
        attachments = self._attached
        whole = [attachments.proxy, *attachments.companions.values()]
        looks = [thing.vital(at_s, self._adapter) for thing in whole]
        looks += [thing.vital(at_s, None) for thing in attachments.backends.values()]
        seen = await asyncio.gather(*looks)
        return [together(seen[: len(whole)]), *seen[len(whole) :]]

    async def origin_stats(self, name: str) -> Mapping[str, Any]:
        """Return what an origin counted since the lab started. Raises ``TargetError`` when the origins share no file."""
        if self._counted is None:
            raise TargetError(
                f"{name} shares no counters with soak: start the origins with --shared FILE and set lab.attach.shared to it; "
                "without, duplicates and cache hits are not judged"
            )
        return self._counted.since_start(name)

    # inside

    @property
    def _places(self) -> Topology:
        return self._topology

    @property
    def _able(self) -> frozenset[str]:
        return self._where.abilities

    def _backend_part(self) -> Backends:
        return there(self._backends)

    def _proxy_part(self) -> AttachedProxy:
        return self._proxy

    @property
    def _attached(self) -> Attachments:
        return there(self._attachments)

    @property
    def _proxy(self) -> AttachedProxy:
        return there(self._started_proxy)

    async def _start(self) -> None:
        self._run.lab.mkdir(parents=True, exist_ok=True)
        timeout_s = self._plan.lab.start_timeout
        self._attachments = found = await attachments_of(self._run, self._where, self._clock)
        self._known = await until_all_run(found, self._clock, timeout_s)
        if self._where.shared is not None:
            self._counted = await asyncio.to_thread(Counted, Path(self._where.shared), self.backend_names())
        binary, to_ask = await asyncio.to_thread(self._binary_of, found.proxy)
        self.proxy_version = await asyncio.to_thread(self._adapter.version, to_ask)
        authority = await asyncio.to_thread(Authority.create, self._run.certs)
        await asyncio.to_thread(write_borrowed, self._run, Borrowed(self._plan, self._known))
        self._backends = AttachedBackends(
            found.backends,
            self._topology.backends,
            self._clock,
            start_timeout_s=timeout_s,
            tls=origin_tls_of(self._where.proxy),
        )
        self._started_proxy = AttachedProxy(
            self._setup(binary, authority),
            self._where.proxy,
            thing=found.proxy,
            originals=self._originals,
            beside=found.companions,
        )
        await self._started_proxy.start()
        if self._counted is not None:
            self._counted.start()

    def _binary_of(self, proxy: Thing) -> tuple[Path, Path]:
        """Return the proxy's binary where it runs, and one on this host that can be asked what it is."""
        configured = self._plan.proxy.binary
        if isinstance(proxy, AttachedProcess):
            binary = proxy.binary() if configured is None else self._adapter.find_binary(configured)
            return binary, binary
        assert isinstance(proxy, AttachedContainer)
        program = program_of(self._adapter, configured)
        return program, proxy.stand_in(self._run.lab / "proxy-binary", str(program))

    async def _tend(self) -> None:
        """Notice when somebody replaces the proxy: then reloads reach it no more, and the record says since when."""
        same = True
        while same:
            await self._clock.sleep(_TEND_PERIOD_S)
            try:
                same = await self._proxy.look()
            except TargetError as error:
                self._on_event("proxy.not_seen", {"error": str(error)})
        self._on_event(
            "proxy.died",
            {"name": PROXY, "how": "it ended or was started anew", "was": dict(self._known[PROXY])},
        )
