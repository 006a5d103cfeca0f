"""Worker reports for tests, said in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soak.measure.histogram import Histogram
from soak.measure.window import Window, WorkerReport
from soak.model import ConnectionStats, Outcome, SelfStats, Sighting


def histogram(ns: int, n: int) -> Histogram:
    h = Histogram()
    if n:
        h.add(ns, n)
    return h


def window(
    second: int,
    *,
    traffic: str = "get",
    scope: int = 0,
    ok: int = 100,
    missed: int = 0,
    dropped: int = 0,
    outcomes: Mapping[Outcome, int] | None = None,
    in_flight: int = 0,
    latency_ns: int = 1_000_000,
    last_failure_due_s: float | None = None,
) -> Window:
    failed = dict(outcomes or {})
    done = ok + sum(failed.values())
    return Window(
        second=second,
        traffic=traffic,
        scope=scope,
        scheduled=done + missed + dropped,
        sent=done,
        dropped=dropped,
        missed=missed,
        carried=0,
        in_flight=in_flight,
        outcomes={Outcome.OK: ok, **failed},
        stale_non_idempotent=0,
        latency=histogram(latency_ns, done),
        service=histogram(latency_ns, done),
        lag=histogram(30_000, done),
        last_failure_due_s=last_failure_due_s,
    )


def report(
    second: int,
    *windows: Window,
    worker: int = 0,
    sightings: tuple[Sighting, ...] = (),
    notes: tuple[Mapping[str, Any], ...] = (),
    lag_p99_s: float = 0.0001,
    loop_gap_s: float = 0.001,
    final: bool = False,
) -> WorkerReport:
    return WorkerReport(
        worker=worker,
        second=second,
        windows=windows or (window(second),),
        sightings=sightings,
        connections=ConnectionStats(),
        open_connections=0,
        idle_connections=0,
        evidence=(),
        evidence_dropped=0,
        stats=SelfStats(
            0.1 * (second + 1), 40_000_000, 20, loop_gap_s, 0.00005, lag_p99_s, lag_p99_s, lag_p99_s
        ),
        final=final,
        notes=notes,
    )
