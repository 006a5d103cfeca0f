"""The lane of a class is chosen by its protocol."""

from __future__ import annotations

from time import monotonic_ns

from soak.load.engine import Engine
from soak.load.lane import Http1Lane
from soak.load.traffic import ClassSpec, LoadSlice


async def test_http1_classes_get_a_pool_of_connections():
    """One lane for each class, in order."""
    specs = [ClassSpec(name, 1.0, "127.0.0.1", 1, "x") for name in ("a", "b")]
    load = LoadSlice(worker=0, workers=1, t0_ns=monotonic_ns(), seconds=1, seed=1, classes=specs)
    lanes = Engine(load, lambda _: None).lanes
    assert [("a", Http1Lane), ("b", Http1Lane)] == [(lane.name, type(lane)) for lane in lanes]
