"""What can be done to a container that cannot be done to a process: take it off its networks, change what it may use.

For the labs ``docker`` and ``attach``. What is needed for the way back is JSON, for a stranger may have to go it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chaos.target import Identity, IdentityChangedError, TargetError
from soak.lab.containers import Container, Limits
from soak.lab.engine import Engine
from soak.lab.enginewords import ContainerGoneError, for_faults

ABILITIES = frozenset({"backend_partition", "proxy_throttle"})
"""What a lab of containers can do beside what every lab can."""


async def networks_of(engine: Engine, name: str, container: str) -> Mapping[str, Any]:
    """Return the networks that a container is on. Raises ``TargetError`` for an address that it would not get again."""
    with for_faults():
        seen = await engine.inspect(container)
    for network, end in seen.ends.items():
        if not end.fixed:
            raise TargetError(
                f"{name} has no fixed address in the network {network}, so it would come back with another one; "
                "give it one (compose: networks: ...: ipv4_address, and a subnet for the network)"
            )
    return {
        network: {"id": end.network, "address": end.address, "aliases": list(end.aliases)}
        for network, end in sorted(seen.ends.items())
    }


async def disconnect(engine: Engine, name: str, identity: Identity) -> None:
    """Take a container off every network. Raises ``IdentityChangedError`` when it is another process than the one prepared."""
    with for_faults():
        seen = await engine.inspect(str(identity["container"]))
        if seen.identity != {key: identity[key] for key in seen.identity}:
            raise IdentityChangedError(
                f"{name} is no longer {dict(identity)} but {dict(seen.identity)}; it was not touched"
            )
        for end in seen.ends.values():
            await engine.leave(end.network, seen.id)


async def reconnect(engine: Engine, container: str, networks: Mapping[str, Any]) -> None:
    """Put a container back on these networks at its old addresses. Idempotent."""
    with for_faults():
        for end in networks.values():
            await engine.join(end["id"], container, end["address"], end["aliases"])


async def limits_of(engine: Engine, container: str) -> Mapping[str, Any]:
    """Return what a container may use, with the exact numbers for the way back."""
    with for_faults():
        limits = (await engine.inspect(container)).limits
    exact = {
        "cpu_period": limits.cpu_period,
        "cpu_quota": limits.cpu_quota,
        "memory": limits.memory,
        "memory_swap": limits.memory_swap,
        "nano_cpus": limits.nano_cpus,
    }
    return {"cpus": limits.cpus, "memory_bytes": limits.memory, "exact": exact}


async def tighten(engine: Engine, name: str, identity: Identity, cpus: float, memory_bytes: int) -> None:
    """Let a container use less. Raises ``TargetError`` for a limit that the engine could not take back."""
    with for_faults():
        seen = await engine.inspect(str(identity["container"]))
        if seen.identity != {key: identity[key] for key in seen.identity}:
            raise IdentityChangedError(
                f"{name} is no longer {dict(identity)} but {dict(seen.identity)}; it was not touched"
            )
        if memory_bytes and not seen.limits.memory:
            raise TargetError(
                f"{name} has no limit of memory, and an engine cannot lift one again; give its container one first"
            )
        await engine.update(seen.id, seen.limits.tightened(cpus, memory_bytes))


async def loosen(engine: Engine, container: str, limits: Mapping[str, Any]) -> None:
    """Give a container exactly the limits of before."""
    with for_faults():
        await engine.update(container, Limits(**limits["exact"]))


async def held_back_s(engine: Engine, container: str) -> float | None:
    """Return how long its threads were held back by a quota since its start; None: it cannot be seen."""
    with for_faults():
        seen: Container = await engine.inspect(container)
        if not seen.alive:
            raise ContainerGoneError(f"{seen.name} has ended")
        return (await engine.counters(seen)).throttled_s
