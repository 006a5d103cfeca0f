"""What one proxy binary gives a local lab: which of the adapter's capabilities it has, hence which ports there are.

A proxy may have been built without what its adapter can render (``Capability.TCP``, ``Capability.METRICS``); then there is
no port for it, the adapter leaves it out, and traffic that needs it is refused before anything starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from soak.errors import LabError
from soak.lab.topology import Topology, choose_topology
from soak.plan import TrafficClassPlan
from soak.proxies.base import METRICS_PORT, Capability, HasMetrics, NeedsPorts, ProxyAdapter


def equipped(
    adapter: ProxyAdapter,
    able: frozenset[Capability],
    *,
    backends: int,
    classes: Iterable[TrafficClassPlan],
    binary: Path,
) -> Topology:
    """Choose addresses for what the binary can. Raises ``LabError`` when it cannot carry one of the classes."""
    tcp = Capability.TCP in able
    for one in classes:
        if one.through == "l4" and not tcp:
            raise LabError(
                f"{one.name} goes through l4, and {binary} was built without it (tcp); use another binary or leave the class out"
            )
    names = adapter.extra_ports if isinstance(adapter, NeedsPorts) else ()
    metrics = Capability.METRICS in able
    topology = choose_topology(backends, [n for n in names if metrics or n != METRICS_PORT], tcp=tcp)
    return counted_at(topology, adapter)


def counted_at(topology: Topology, adapter: ProxyAdapter) -> Topology:
    """Add where the proxy counts for itself, if there is a port for that."""
    if METRICS_PORT not in topology.ports or not isinstance(adapter, HasMetrics):
        return topology
    url = adapter.metrics_url(topology.ports, topology.proxy.host)
    return replace(topology, proxy=replace(topology.proxy, metrics_url=url))
