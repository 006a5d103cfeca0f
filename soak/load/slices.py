"""Cuts a plan's traffic into one slice for each load worker."""

from __future__ import annotations

from soak.load.limits import most_in_flight
from soak.load.traffic import ClassSpec, LoadSlice
from soak.plan import Plan


def slices_of(
    plan: Plan, classes: list[ClassSpec], *, t0_ns: int, ca_file: str, open_files: int
) -> list[LoadSlice]:
    """Return the slices of all workers. ``open_files`` is the limit of each worker's process."""
    traffic = plan.traffic
    in_flight = traffic.max_in_flight or most_in_flight(
        classes, traffic.response_timeout, open_files * plan.workers
    )
    return [
        LoadSlice(
            worker=k,
            workers=plan.workers,
            t0_ns=t0_ns,
            seconds=plan.length,
            seed=plan.seed,
            classes=classes,
            arrivals=traffic.arrivals,
            connect_timeout_s=traffic.connect_timeout,
            tls_timeout_s=traffic.tls_timeout,
            response_timeout_s=traffic.response_timeout,
            body_timeout_s=traffic.body_timeout,
            max_in_flight=max(1, in_flight // plan.workers),
            max_lag_s=traffic.max_lag,
            coalesce_s=traffic.coalesce,
            max_age_s=traffic.max_age,
            idle_timeout_s=traffic.idle_timeout,
            ca_file=ca_file,
            realtime=plan.self_limits.realtime,
        )
        for k in range(plan.workers)
    ]
