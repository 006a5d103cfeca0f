"""What a fault may ask of the system under test. A lab implements these small protocols; chaos calls them.

All methods are bounded in time by the implementation or by the runner; none of them retries silently. Names
(``b1``) address things, identities prove them: every method that touches a process takes the identity that was
read in ``prepare`` and refuses when it no longer holds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from chaos.model import Evidence

Identity = Mapping[str, Any]
"""JSON that proves that a thing is the same thing: ``{"pid": 12, "started": 3456.78}`` or a container's id."""


class TargetError(Exception):
    """The lab could not do what a fault asked. The message is a sentence with the value and the rule it broke."""


class IdentityChangedError(TargetError):
    """The thing behind the name is not the one that was prepared; it must not be touched."""


class Clock(Protocol):
    """Time as the runner sees it. ``now()`` is seconds since the start of the run, monotonic."""

    def now(self) -> float:
        """Return seconds since the start of the run."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep; can be cancelled."""
        ...


class BackendState(StrEnum):
    """What a look at a backend's process (and its port) shows."""

    RUNNING = "running"
    STOPPED = "stopped"
    """No process, port closed."""
    HUNG = "hung"
    """The process exists and is suspended (SIGSTOP, paused container)."""


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """One look at one backend."""

    name: str
    state: BackendState
    identity: Identity
    """Identity of the present process; empty when stopped."""


class Backends(Protocol):
    """Backends that can be taken away and brought back."""

    def backend_names(self) -> Sequence[str]:
        """Return the names, in order."""
        ...

    async def backend_status(self, name: str) -> BackendStatus:
        """Look at one backend now (process table and a real request or connect, not a cached flag)."""
        ...

    async def backend_stop(self, name: str, identity: Identity, *, force: bool) -> None:
        """End the backend: SIGTERM, or SIGKILL when ``force``. Returns once the process is gone."""
        ...

    async def backend_start(self, name: str) -> Identity:
        """Start a stopped backend on its old address; returns once it answers. Already running is success."""
        ...

    async def backend_pause(self, name: str, identity: Identity) -> None:
        """Suspend the backend without ending it (SIGSTOP, docker pause)."""
        ...

    async def backend_resume(self, name: str, identity: Identity) -> None:
        """Resume a suspended backend (SIGCONT). Already running is success."""
        ...


class Proxy(Protocol):
    """The proxy under test, as far as faults may touch it."""

    async def proxy_identity(self) -> Identity:
        """Return the identity of the proxy's main process."""
        ...

    def generation(self) -> int:
        """Return the config generation that was last asked for and accepted."""
        ...

    async def apply_generation(self, generation: int, *, kind: str = "") -> Evidence:
        """Render the configuration with this generation, validate it, put it in place and reload.

        ``kind`` is how: ``full`` or ``routing``; "": as this proxy is usually reloaded. One that the proxy does not know is
        not ``ok``, and nothing was touched; ``detail["kind"]`` says which it was.

        Returns what the proxy itself said of it; whether traffic shows it is the observer's business.
        """
        ...

    async def apply_broken_config(self) -> Evidence:
        """Put a configuration in place that the proxy must refuse, and ask for a reload.

        ``ok`` says whether the proxy *refused* it (validation or its log). Restores the last good file before it returns.
        """
        ...

    async def install_certificate(self, generation: int) -> Mapping[str, Any]:
        """Issue a new leaf, install the pair atomically, reload. Returns ``{"serial", "fingerprint", "old_serial"}``.

        ``generation`` is the config generation that the accompanying reload carries.
        """
        ...

    async def restore_proxy(self) -> Evidence:
        """Put the last configuration and certificate that were seen to work back in place and reload."""
        ...


@runtime_checkable
class Partitions(Protocol):
    """A lab that can take a backend off the network (capability ``backend_partition``)."""

    async def backend_networks(self, name: str) -> Mapping[str, Any]:
        """Return as JSON which networks it is on, with all that it takes to put it back; empty when it is on none.

        Raises ``TargetError`` when it could not get its address again.
        """
        ...

    async def backend_disconnect(self, name: str, identity: Identity) -> None:
        """Take it off every network; its process goes on. On none is success."""
        ...

    async def backend_reconnect(self, name: str, identity: Identity, networks: Mapping[str, Any]) -> None:
        """Put it back on these networks, with its old addresses. On them is success; so is a restart meanwhile."""
        ...


@runtime_checkable
class Throttles(Protocol):
    """A lab that can change what the proxy may use (capability ``proxy_throttle``)."""

    async def proxy_limits(self) -> Mapping[str, Any]:
        """Return as JSON what the proxy may use: ``cpus``, ``memory_bytes`` (0: no limit), and ``exact`` for its way back."""
        ...

    async def proxy_tighten(self, identity: Identity, *, cpus: float, memory_bytes: int) -> None:
        """Let it use so much; 0 leaves that as it is. Takes effect at once, without a restart."""
        ...

    async def proxy_loosen(self, identity: Identity, limits: Mapping[str, Any]) -> None:
        """Give it back exactly what ``proxy_limits`` once said. So it is already is success; so is a restart meanwhile."""
        ...

    async def proxy_held_back_s(self) -> float | None:
        """Return how long its threads were held back by a limit of CPU, added up since its start; None: it cannot be seen."""
        ...


class Observer(Protocol):
    """Independent sight of what clients get: fed by the load engine and the prober, not by the proxy's admin side."""

    async def generation_seen(self, generation: int, timeout_s: float) -> float | None:
        """Wait until an answer carries this generation; returns seconds since run start of the first one, or None."""
        ...

    async def serial_seen(self, serial: str, timeout_s: float) -> float | None:
        """Wait until a fresh, non-resumed handshake shows this serial; returns its instant, or None."""
        ...

    def last_seen(self, kind: str, value: str) -> float | None:
        """Return when ``kind`` ("generation" or "serial") last showed ``value``, in seconds since run start."""
        ...

    async def origin_silent(self, name: str, timeout_s: float) -> float | None:
        """Wait until traffic shows no answer of this backend for a moment; returns the instant of its last answer.

        None when the backend still answered at the end of the time, so it was never gone.
        """
        ...

    async def origin_seen(self, name: str, after_s: float, timeout_s: float) -> float | None:
        """Wait for an answer by this backend that was sent after ``after_s``; returns its instant, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Recovery:
    """What traffic showed after the edges of a fault. Instants are seconds since run start, lengths are seconds.

    ``recovered_s`` is the instant from which traffic stayed in the steady band (None: not within the time);
    ``recovery_s`` is the longest disturbance after any edge; ``detail`` holds each edge's own length and the band.
    """

    recovered_s: float | None
    recovery_s: float | None
    detail: Mapping[str, Any]


class RecoveryWatch(Protocol):
    """Judges recovery from traffic alone: error ratio and p99 back in the steady band for three seconds running."""

    async def recovered(self, fault_id: int, edges_s: Sequence[float], timeout_s: float) -> Recovery:
        """Wait until traffic has calmed after the last edge (injection or revert), at most ``timeout_s`` after it."""
        ...


class Scopes(Protocol):
    """Stamps requests with what is going on. Called by the runner *before* it touches anything."""

    async def fault(self, fault_id: int) -> None:
        """From now on requests belong to this fault; returns once the load workers have been told."""
        ...

    async def recovery(self, fault_id: int) -> None:
        """The fault was reverted (or the transition applied); traffic is recovering from it."""
        ...

    async def done(self, fault_id: int) -> None:
        """The fault no longer explains anything."""
        ...


class Target(Backends, Proxy, Protocol):
    """Everything a lab offers to faults."""

    def supports(self, capability: str) -> bool:
        """Whether the lab and its proxy can do this: ``reload``, ``cert_rotate``, ``backend_stop``, ``backend_pause``.

        And which kinds of reload: ``reload:full``, ``reload:routing``.
        """
        ...


class Healable(Protocol):
    """What the guardian and ``soak heal`` need: a lab that was opened from its files, with no daemon alive."""

    disposable: bool
    """True when the lab belongs to the run alone (local, docker): healing is removing it, undos need not be played."""

    async def release(self) -> Evidence:
        """Leave nothing of the run behind, by identity. Idempotent. ``ok`` means nothing is left.

        A disposable lab ends every process and container of its own. Another one gives back what was borrowed, and ends nothing;
        it is asked after the undos were played.
        """
        ...

    def target(self) -> Target | None:
        """Return the live target to play undos against; None when the lab is disposable."""
        ...


HealableFactory = Callable[[str], Awaitable[Healable]]
"""Opens the lab of a run directory: ``soak.lab:open_for_healing``."""
