"""Where everything of a local lab listens: names, loopback addresses, ports that are free and stay usable.

Ports lie outside the kernel's ephemeral range. Inside it, a client's outgoing connection could take the port of an origin
that is down, so that the origin could not come back; or a connect to that closed port could be given the very same port
as its source and reach itself. Each process draws from a stretch of its own, so that no other soak on this host takes the port
of an origin that is down, or one that a proxy is about to listen on.
"""

from __future__ import annotations

import functools
import random
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from soak.errors import LabError
from soak.proxies.base import BackendAddress

LOOPBACK = "127.0.0.1"
_LOWEST_PORT = 10_000
_HIGHEST_PORT = 65_535
_TRIES = 2_000
_STRETCH = 1_024


@dataclass(frozen=True, slots=True)
class ProxyAddress:
    """Where clients reach the proxy."""

    host: str
    http_port: int
    https_port: int
    tcp_port: int = 0
    """Where bytes are passed on unread to the backends' TLS; 0: the proxy cannot."""
    metrics_url: str = ""
    """The proxy's own metrics; "": it has none."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Addresses of one lab; they stay the same for the whole run."""

    proxy: ProxyAddress
    backends: tuple[BackendAddress, ...]
    ports: Mapping[str, int] = field(default_factory=dict)
    """Further ports of the proxy (an admin page), by name."""


def backend_names(count: int) -> tuple[str, ...]:
    """Return ``b1``, ``b2``, ..."""
    return tuple(f"b{i}" for i in range(1, count + 1))


def choose_topology(backends: int, extra_ports: Sequence[str] = (), *, tcp: bool = False) -> Topology:
    """Choose free ports for the proxy and this many origins; with ``tcp`` also for a byte pipe to their TLS.

    Raises ``LabError`` when there are not enough.
    """
    pipes = backends + 1 if tcp else 0
    free = iter(free_ports(2 + backends + len(extra_ports) + pipes))
    address = ProxyAddress(LOOPBACK, next(free), next(free), next(free) if tcp else 0)
    origins = tuple(
        BackendAddress(name, LOOPBACK, next(free), next(free) if tcp else 0)
        for name in backend_names(backends)
    )
    return Topology(address, origins, {name: next(free) for name in extra_ports})


def ephemeral_range() -> tuple[int, int]:
    """Return the lowest and highest port that the kernel gives to outgoing connections."""
    low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    return int(low), int(high)


def free_ports(count: int, *, host: str = LOOPBACK, ephemeral: tuple[int, int] | None = None) -> list[int]:
    """Return different ports that nobody listens on, outside the ephemeral range.

    Drawn at random from this process' own stretch, and from all others once that is used up. Raises ``LabError``.
    """
    low, high = ephemeral or ephemeral_range()
    candidates = [port for port in range(_LOWEST_PORT, _HIGHEST_PORT + 1) if not low <= port <= high]
    if len(candidates) < count:
        candidates = list(range(_LOWEST_PORT, _HIGHEST_PORT + 1))
    chance, stretch = random.SystemRandom(), own_stretch()
    own = [port for port in candidates if port in stretch]
    others = [port for port in candidates if port not in stretch]
    draw = chance.sample(own, len(own)) + chance.sample(others, min(_TRIES, len(others)))
    ports: list[int] = []
    with ExitStack() as held:
        for port in draw:
            if len(ports) == count:
                break
            candidate = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                candidate.bind((host, port))
            except OSError:
                continue
            ports.append(port)
    if len(ports) < count:
        raise LabError(
            f"only {len(ports)} of {count} ports are free on {host}; end what listens there and try again"
        )
    return ports


@functools.cache
def own_stretch() -> range:
    """Return ports that no other soak in this network draws from while this process lives; none when all are claimed.

    A claim is an abstract Unix socket (unix(7)): the kernel gives it to one process, takes it back when that ends however it
    ends, and keeps it apart for each network namespace, as ports are.
    """
    low, high = ephemeral_range()
    starts = range(_LOWEST_PORT, _HIGHEST_PORT + 1 - _STRETCH, _STRETCH)
    outside = [start for start in starts if not low - _STRETCH < start <= high]
    for start in random.SystemRandom().sample(outside, len(outside)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as claim:
            try:
                claim.bind(f"\0soak-ports-{start}")
            except OSError:
                continue
            claim.detach()  # stays open as long as the process
            return range(start, start + _STRETCH)
    return range(0)
