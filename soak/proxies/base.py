"""The proxy contract: render, validate, start, reload, recognise processes. One adapter a file, no I/O but asking versions.

An adapter turns a neutral model into the proxy's own configuration and says which commands and signals to use; the
lab runs them. The config generation is a response header that the configuration itself sets.

What only some proxies need is optional: an adapter that has ``reload`` (``ReloadsByCall``), ``extra_ports``
(``NeedsPorts``), ``roles`` (``TellsProcesses``), ``metrics_url`` (``HasMetrics``), ``reload_kinds``
(``KnowsReloadKinds``), ``read_at_start`` (``ReadsAtStart``) or ``abilities`` (``TellsAbilities``) is asked, one without it is not. One whose proxy is several processes has
``companions`` (``soak.proxies.companion``), and one whose log says how workers ended has ``worker_ends`` (``TellsEnds``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from soak.model import WorkerEnd

if TYPE_CHECKING:  # an origin needs the names of headers alone
    from soak.proxyplan import ProxyPlan

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
METRICS_PORT = "metrics"
"""Name, in ``extra_ports``, of the port for the proxy's own metrics."""
SERVER_NAME = "soak.test"
"""Name of the proxied site: Host header, SNI, and the subject of the run's certificates."""


CRASHES = frozenset(
    {
        Signals.SIGABRT,
        Signals.SIGBUS,
        Signals.SIGFPE,
        Signals.SIGILL,
        Signals.SIGSEGV,
        Signals.SIGSYS,
        Signals.SIGTRAP,
    }
)
"""Signals that a process brings upon itself; KILL and TERM may come from anybody."""


class Capability(StrEnum):
    """What an adapter can do."""

    RELOAD = "reload"
    CERT_ROTATE = "cert_rotate"
    MARKER = "marker"
    METRICS = "metrics"
    """It has an endpoint of its own that counts requests; the adapter then is a ``HasMetrics``."""
    H2 = "h2"
    WEBSOCKET = "websocket"
    TCP = "tcp"
    """It can pass bytes on unread: ``ProxyModel.tcp_port`` to the backends' ``tls_port``."""


class ReloadKind(StrEnum):
    """How much of a running proxy a reload replaces."""

    FULL = "full"
    """All of it: listeners or processes are replaced."""
    ROUTING = "routing"
    """What requests meet and what is answered: listeners, processes and connections stay."""


class MetricsFormat(StrEnum):
    """What a proxy's own metrics are written in."""

    PROMETHEUS = "prometheus"
    """Prometheus' text: it can be scraped."""
    STUB_STATUS = "stub_status"
    """The four lines of nginx's ``stub_status``."""


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
    tls_port: int = 0
    """Where it speaks TLS itself, with a certificate of the run's authority; 0: nowhere."""


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
    bundle: Path = Path()
    """The full chain and the key in one PEM file, for proxies that want them together."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Free loopback ports beside the two, by the names in ``extra_ports``; the same for the whole run."""
    tcp_port: int = 0
    """Where bytes are passed on unread to the backends' ``tls_port``, for ``Capability.TCP``; 0: nowhere."""
    full_generation: int = 0
    """The last generation that came by a reload of kind ``full``: what a ``routing`` one must not touch may carry it only."""


RunInside = Callable[[Sequence[str]], Awaitable[tuple[int | None, str]]]
"""Takes a command, whose paths may be this host's; returns its status, None when it could not be run, and what it said."""


@dataclass(frozen=True, slots=True)
class ReloadContext:
    """What an adapter knows when it asks the running proxy for a reload. The new files are already in place."""

    directory: Path
    pid: int
    """The process that was started; in a container 1."""
    ports: Mapping[str, int]
    timeout_s: float
    """After so many seconds the call is cancelled: what became of it is then for traffic to show."""
    kind: ReloadKind | None = None
    """One of the adapter's ``reload_kinds``; None: the first of them."""
    run: RunInside | None = None
    """Runs a command where the proxy runs, when that is a container; None: the proxy runs on this host."""
    host: str = "127.0.0.1"
    """Where this host reaches ``ports``."""
    inside: Path | None = None
    """``directory`` as the proxy sees it, when it runs in a container; None: by the same path."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What the proxy itself answered to a reload. Traffic judges whether that is true."""

    accepted: bool
    reason: str = ""
    """Why it was refused, in the proxy's words."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """As JSON, for the record."""


@dataclass(frozen=True, slots=True)
class SeenProcess:
    """One living process of the proxy."""

    pid: int
    ppid: int
    argv: Sequence[str]
    started: float = 0.0
    """Seconds since boot; 0: nobody knows."""


def input_of(directory: Path) -> Path:
    """Return the file that the proxy gets as its standard input: who has it as input belongs to the lab."""
    return directory.parent / "proxy.stdin"


def output_of(directory: Path) -> Path:
    """Return the file that gets the proxy's standard output and error, for proxies whose only log that is."""
    return directory.parent / "proxy.out"


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
        """Return the command that runs the proxy in the foreground. Its working directory is ``directory.parent``."""
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


@runtime_checkable
class ReloadsByCall(Protocol):
    """An adapter whose proxy is asked for a reload and answers; instead of ``reload_signal`` and the log."""

    async def reload(self, context: ReloadContext) -> Reloaded:
        """Ask for a reload. ``OSError`` and ``LabError`` (the proxy could not be asked) count as a refusal."""
        ...


@runtime_checkable
class ConfiguredByPlan(Protocol):
    """An adapter that knows nothing by itself: its facts are in the plan. The catalog asks it (``adapter_of``)."""

    def configured(self, plan: ProxyPlan) -> ProxyAdapter:
        """Return the adapter of the proxy that the plan describes."""
        ...


@runtime_checkable
class SaysLimits(Protocol):
    """An adapter that says why its proxy cannot do something, or only in part. For people, before a run."""

    limits: Mapping[str, str]
    """A clause each, by the name of a capability: ``{"reload": "it reads its file once, at start"}``."""


@runtime_checkable
class NamesMainProcess(Protocol):
    """An adapter whose proxy may be started by something that is not to get its signals."""

    def main_pid(self, directory: Path) -> int | None:
        """Return the pid that gets signals, None: that of what was started. Raises ``soak.errors.LabError``."""
        ...


@runtime_checkable
class StopsGracefully(Protocol):
    """An adapter whose proxy is asked to end by its own ``stop_signal`` first."""

    stop_grace_s: float
    """How long it may take; what is left then is ended as in every lab."""


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """How a proxy is run from its official image."""

    image: str
    """The image, pinned."""
    directory: str
    """Where the image expects the configuration; the lab mounts its own there. Its parent is the working directory."""
    binary: str
    """The program in the image; the image's entrypoint is not used."""
    companions: Mapping[str, str] = field(default_factory=dict)
    """The image of each of its companions, by name, pinned: it runs in a container of its own, in the network of the proxy's."""
    reads: Sequence[Path] = ()
    """Directories of this host that the image lacks; the container sees them under the same path, and cannot write there."""
    how_to_get: str = ""
    """What puts ``reads`` there, for the error when one is missing."""


@runtime_checkable
class RunsInContainer(Protocol):
    """An adapter whose proxy has an image. Its paths and its socket are in ``ContainerFacts.directory``, on both sides."""

    container: ContainerFacts


@runtime_checkable
class NeedsPorts(Protocol):
    """An adapter whose proxy listens on more than the two ports for traffic."""

    extra_ports: Sequence[str]
    """Names of further loopback ports; their numbers are in ``ProxyModel.ports`` and ``ReloadContext.ports``.

    ``METRICS_PORT`` is among them only if this binary has ``Capability.METRICS``.
    """


@runtime_checkable
class ReadsAtStart(Protocol):
    """An adapter whose proxy reads some of its files only when it starts, so that no reload takes a change of them."""

    read_at_start: Sequence[str]
    """Their names, as ``render`` has them. What they hold depends on addresses alone, which are the same for a whole run."""


@runtime_checkable
class TellsProcesses(Protocol):
    """An adapter that needs more than a command line to tell what a process is; instead of ``role``."""

    def roles(self, processes: Sequence[SeenProcess]) -> Mapping[int, ProcessRole]:
        """Tell the roles of all living processes of the proxy, by pid; one that is left out is ``OTHER``."""
        ...


@runtime_checkable
class TellsEnds(Protocol):
    """An adapter whose proxy writes into its error log how each of its workers ended."""

    def worker_ends(self, log_text: str) -> Mapping[int, WorkerEnd]:
        """Return what a piece of the log says, by pid; the newest word about a pid counts."""
        ...


@runtime_checkable
class HasMetrics(Protocol):
    """An adapter whose proxy counts for itself: what ``Capability.METRICS`` declares."""

    metrics_format: MetricsFormat

    def metrics_url(self, ports: Mapping[str, int], host: str = "127.0.0.1") -> str:
        """Return the URL of the proxy's own metrics, on one of its ``extra_ports`` (listening on ``listen_host``)."""
        ...


@runtime_checkable
class KnowsReloadKinds(Protocol):
    """An adapter that can reload in more ways than ``full``; it then is a ``ReloadsByCall``, too."""

    reload_kinds: Sequence[ReloadKind]
    """The first is what a reload is when nobody says; certificates and what is restored come by that one."""


def reload_kinds_of(adapter: ProxyAdapter) -> tuple[ReloadKind, ...]:
    """Return the kinds of reload that a proxy knows, the usual one first; none when it has no reload."""
    if Capability.RELOAD not in adapter.capabilities:
        return ()
    return tuple(adapter.reload_kinds) if isinstance(adapter, KnowsReloadKinds) else (ReloadKind.FULL,)


def supported_by(adapter: ProxyAdapter) -> frozenset[str]:
    """Return what faults may ask of a proxy, in the words of ``chaos.target.Target.supports``."""
    kinds = {f"reload:{kind}" for kind in reload_kinds_of(adapter)}
    asked = {Capability.RELOAD, Capability.CERT_ROTATE, Capability.MARKER}
    return frozenset({*map(str, adapter.capabilities & asked), *kinds})


@runtime_checkable
class TellsAbilities(Protocol):
    """An adapter whose proxy may have been built without some of what ``capabilities`` declares."""

    def abilities(self, binary: Path) -> frozenset[Capability]:
        """Ask this binary what it can. Raises ``soak.errors.LabError`` when it does not say."""
        ...


def abilities_of(adapter: ProxyAdapter, binary: Path) -> frozenset[Capability]:
    """Return what a proxy can do with this binary. Raises ``soak.errors.LabError``."""
    return adapter.abilities(binary) if isinstance(adapter, TellsAbilities) else adapter.capabilities
