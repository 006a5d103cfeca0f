"""What a lab is to the rest of soak: a system under test that can be started, watched, asked, broken and taken down.

``soak.lab.catalog`` makes the one that a plan wants. The daemon and ``soak lab`` know no other type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from chaos.model import Evidence
from chaos.target import Target
from soak.lab.topology import ProxyAddress
from soak.model import Vital, WorkerEnd
from soak.proxies.base import BackendAddress

OnEvent = Callable[[str, Mapping[str, Any]], None]
"""Called on the event loop with a dotted name and JSON: ``origin.died``, ``proxy.died``, ``proxy.log_trimmed``."""
TASK_DIED = "lab.task_died"
"""A task of the lab's own ended of a defect (``name``, ``how``): from now on nobody sees what it was there to see."""


class Lab(Target, Protocol):
    """One run's system under test. Construct, ``start``, use, ``stop``; a failed ``start`` has already stopped."""

    @property
    def server_name(self) -> str:
        """Host header and SNI of the proxied site."""
        ...

    @property
    def proxy_version(self) -> str:
        """Version of the proxy, known from ``start`` on."""
        ...

    @property
    def proxy_address(self) -> ProxyAddress:
        """Where clients reach the proxy. Fixed for the run."""
        ...

    @property
    def backend_addresses(self) -> Sequence[BackendAddress]:
        """Where the origins listen, as seen from this host; for people: clients go through the proxy."""
        ...

    @property
    def ca_file(self) -> Path:
        """Root certificate that clients trust."""
        ...

    async def start(self) -> None:
        """Bring it up; returns once a checked answer came through over TLS.

        Raises ``LabError`` with the words of what did not come up; then nothing that this lab made is left.
        """
        ...

    async def stop(self) -> Evidence:
        """Take down what this lab made. Idempotent; ``ok`` means that nothing of it is left."""
        ...

    async def vitals(self, at_s: float) -> list[Vital]:
        """Look at the proxy with all its processes (subject ``proxy``), and at each origin. ``at_s`` is stamped on the result."""
        ...

    async def origin_stats(self, name: str) -> Mapping[str, Any]:
        """Return what an origin counted since the lab started: see ``soak.lab.local.LocalLab.origin_stats``. Raises ``TargetError``."""
        ...

    async def worker_ends(self) -> Mapping[int, WorkerEnd]:
        """Return how workers of the proxy ended lately, by pid, as far as its log says."""
        ...

    def serial(self) -> str:
        """Return the serial of the certificate that is installed."""
        ...
