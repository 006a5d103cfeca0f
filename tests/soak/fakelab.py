"""A lab in memory with an address, vitals and origins that count: what a run needs of one beside what faults ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from certs.authority import Authority
from chaos.model import FaultRecord
from soak.lab.topology import LOOPBACK, ProxyAddress
from soak.model import Member, OriginTotals, Sighting, Unwell, Vital, WorkerEnd
from soak.proxies.base import SERVER_NAME
from tests.fakes import FakeClock, FakeTarget


class FakeLab(FakeTarget):
    """Its proxy listens nowhere, so that every request and probe is refused."""

    server_name = SERVER_NAME
    proxy_version = "1.2.3"

    def __init__(self, certs: Path, port: int, clock: FakeClock | None = None) -> None:
        super().__init__(clock or FakeClock())
        certs.mkdir()
        Authority.create(certs)
        self.ca_file = certs / "ca.pem"
        self.proxy_address = ProxyAddress(LOOPBACK, port, port, metrics_url="http://metrics")
        self.failing: Exception | None = None
        """What looks at it raise."""
        self.members: Sequence[Member] = ()
        """The processes of its proxy."""
        self.ends: Mapping[int, WorkerEnd] = {}

    async def vitals(self, at_s: float) -> list[Vital]:
        if self.failing is not None:
            raise self.failing
        processes = len(self.members) or 1
        return [
            Vital(at_s, "proxy", rss_bytes=1000, cpu_s=0.1, fds=5, processes=processes, members=self.members)
        ]

    async def worker_ends(self) -> Mapping[int, WorkerEnd]:
        return self.ends

    async def origin_stats(self, name: str) -> Mapping[str, Any]:
        if self.failing is not None:
            raise self.failing
        return {"requests": 3, "name": 0} if name else {}


class Told:
    """Keeps what a run's recorder would be told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.vitals: list[Vital] = []
        self.sightings: list[Sighting] = []
        self.totals: list[OriginTotals] = []
        self.unwells: list[Unwell] = []
        self.faults: list[FaultRecord] = []

    def event(self, name: str, data: Mapping[str, Any] | None = None, /) -> None:
        self.events.append((name, dict(data or {})))

    def vital(self, vital: Vital) -> None:
        self.vitals.append(vital)

    def sighting(self, sighting: Sighting) -> None:
        self.sightings.append(sighting)

    def origins(self, totals: OriginTotals) -> None:
        self.totals.append(totals)

    def unwell(self, unwell: Unwell) -> None:
        self.unwells.append(unwell)

    def fault(self, record: FaultRecord, served: object) -> None:
        assert served is not None
        self.faults.append(record)

    @property
    def names(self) -> Sequence[str]:
        return [name for name, _ in self.events]
