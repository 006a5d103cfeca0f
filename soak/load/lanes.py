"""Which kind of lane carries a traffic class: the one place that chooses by protocol."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from soak.load.h2lane import H2Lane
from soak.load.http1lane import Http1Lane
from soak.load.lane import Lane
from soak.load.sockets import WebSocketLane
from soak.load.traffic import ClassSpec, LoadSlice
from soak.load.varied import CacheLane, RoutesLane

if TYPE_CHECKING:
    from soak.load.engine import Engine


def lane_of(
    engine: Engine, spec: ClassSpec, load: LoadSlice, number: int, context: ssl.SSLContext | None
) -> Lane:
    """Return the lane of a class. Raises ``ValueError`` for a protocol that no lane speaks."""
    if spec.protocol == "h2":
        return H2Lane(engine, spec, load, number, context)
    if spec.protocol == "websocket":
        return WebSocketLane(engine, spec, load, number, context)
    if spec.protocol != "http1":
        raise ValueError(f"no lane speaks {spec.protocol!r}")
    if spec.hosts:
        return RoutesLane(engine, spec, load, number, context)
    if spec.cache_keys:
        return CacheLane(engine, spec, load, number, context)
    return Http1Lane(engine, spec, load, number, context)
