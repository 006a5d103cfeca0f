"""The proxy contract: render, validate, start, reload, recognise processes. One adapter a file, no I/O but asking versions.

An adapter turns a neutral model into the proxy's own configuration and says which commands and signals to use; the
lab runs them. The config generation is a response header that the configuration itself sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from signal import Signals
from typing import Protocol

ID_HEADER = "X-Soak-Id"
"""Request id, set by the client, echoed by the origin."""
ORIGIN_HEADER = "X-Soak-Origin"
"""Name of the origin that answered."""
GENERATION_HEADER = "X-Soak-Generation"
"""Config generation, added by the proxy's configuration to every answer."""
ROUTE_HEADER = "X-Soak-Route"
"""Name of the route that was taken (``r1``, ``r2``, ...), added by the proxy's configuration to answers of routes."""
CACHE_HEADER = "X-Soak-Cache"
"""What the proxy's cache says of itself (``HIT``, ``MISS``, ...): for people; nothing is judged by it."""
VARIANT_HEADER = "X-Soak-Variant"
"""Request header that a cacheable resource may vary on."""
DUPLICATE_HEADER = "X-Soak-Duplicate"
"""``1`` on the answer of an origin to a request that is not idempotent and was delivered before, to whichever origin."""
SERVER_NAME = "soak.test"
"""Name of the proxied site: Host header, SNI, and the subject of the run's certificates."""


class Capability(StrEnum):
    """What an adapter can do."""

    RELOAD = "reload"
    CERT_ROTATE = "cert_rotate"
    MARKER = "marker"
    METRICS = "metrics"
    H2 = "h2"
    WEBSOCKET = "websocket"
    TCP = "tcp"


class ProcessRole(StrEnum):
    """What a process of the proxy is."""

    MASTER = "master"
    WORKER = "worker"
    OLD_WORKER = "old_worker"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class BackendAddress:
    """One origin as the proxy reaches it."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ProxyModel:
    """The neutral configuration of one generation."""

    generation: int
    listen_host: str
    http_port: int
    https_port: int
    server_name: str
    certificate: Path
    """Full chain, PEM."""
    key: Path
    backends: Sequence[BackendAddress]
    workers: int
    directory: Path
    """Writable directory of the proxy's own (logs, pid, temporary files)."""
    extra: str = ""
    broken: bool = False
    """Render a configuration that the proxy must refuse (for ``reload-bad``)."""
    routes: int = 0
    """How many hosts with a route each: ``r1.soak.test``, ``r2.soak.test``, ..."""
    version: str = ""
    """Version of the binary, for syntax that changed; "" is taken for a recent one."""


def route_names(count: int) -> tuple[str, ...]:
    """Return ``r1``, ``r2``, ...: what ``X-Soak-Route`` says, and the first label of the route's host."""
    return tuple(f"r{i}" for i in range(1, count + 1))


class ProxyAdapter(Protocol):
    """One proxy."""

    name: str
    capabilities: frozenset[Capability]

    def find_binary(self, configured: str | None) -> Path:
        """Return the binary; raises ``soak.errors.LabError`` naming what is missing and how to get it."""
        ...

    def version(self, binary: Path) -> str:
        """Ask the binary for its version: ``1.31.3``. Raises ``LabError`` when it does not run."""
        ...

    def render(self, model: ProxyModel) -> Mapping[str, str]:
        """Return file contents by path relative to ``model.directory``. The first is the main file."""
        ...

    def validate_command(self, binary: Path, directory: Path) -> Sequence[str] | None:
        """Return the command that checks the files in place without applying them; None if there is none."""
        ...

    def start_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return the command that runs the proxy in the foreground."""
        ...

    def reload_signal(self) -> Signals:
        """Return the signal to the main process that reloads configuration and certificates."""
        ...

    def stop_signal(self) -> Signals:
        """Return the signal that ends the proxy at once (not gracefully)."""
        ...

    def error_log(self, directory: Path) -> Path:
        """Return the file in which the proxy complains."""
        ...

    def refusals(self, log_text: str) -> Sequence[str]:
        """Return the lines in a piece of the error log that say that a configuration was refused."""
        ...

    def acceptances(self, log_text: str) -> Sequence[str] | None:
        """Return the lines in a piece of the error log that say that a configuration was taken; None if it never says."""
        ...

    def role(self, cmdline: str) -> ProcessRole:
        """Tell what a process is from its command line or title."""
        ...
