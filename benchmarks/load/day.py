"""A day in the memory of the daemon: every second's windows through ledger, metrics and store, then the report.

``python -m benchmarks.load.day SECONDS CLASSES`` prints JSON. The windows are made here (each class has the histogram of some
hundred requests); what takes them is what a real run has.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from pathlib import Path
from random import Random
from statistics import fmean
from time import perf_counter
from typing import Any

from soak.measure.histogram import Histogram
from soak.measure.ledger import Ledger
from soak.measure.window import Window, WorkerReport
from soak.metrics import Metrics
from soak.model import ConnectionStats, Outcome, Phase, Scope, SelfStats, Sighting, SightKind, SightVia, Vital
from soak.plan import Plan
from soak.report.build import build_report
from soak.store import StoreReader, StoreWriter

_PER_CLASS = 200
_SHAPES = 64
_PAGE = os.sysconf("SC_PAGE_SIZE")
NAMES = ("tls-reused", "tls-new", "post", "h2", "large", "slow", "churn", "cache")


def rss_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def slope_per_hour(samples: list[float], every_s: float) -> float:
    """Return the slope of equidistant samples, per hour, by least squares. 0 for fewer than two."""
    if len(samples) < 2:
        return 0.0
    hours = [i * every_s / 3600 for i in range(len(samples))]
    mean_x, mean_y = fmean(hours), fmean(samples)
    over = sum((x - mean_x) * (y - mean_y) for x, y in zip(hours, samples, strict=True))
    return over / sum((x - mean_x) ** 2 for x in hours)


def _spread(rng: Random, median_ns: float, n: int) -> Histogram:
    out = Histogram()
    for _ in range(n):
        out.add(int(rng.lognormvariate(0, 0.5) * median_ns))
    return out


def _windows(second: int, names: tuple[str, ...], shapes: list[tuple[Histogram, Histogram]]) -> list[Window]:
    windows = []
    for i, name in enumerate(names):
        latency, lag = shapes[(second * 7 + i * 13) % len(shapes)]
        windows.append(
            Window(
                second=second,
                traffic=name,
                scope=0,
                scheduled=_PER_CLASS,
                sent=_PER_CLASS,
                dropped=0,
                missed=0,
                carried=0,
                in_flight=0,
                outcomes={Outcome.OK: _PER_CLASS},
                stale_non_idempotent=0,
                latency=latency,
                service=latency,
                lag=lag,
                last_failure_due_s=None,
                bytes_received=_PER_CLASS * 1024,
            )
        )
    return windows


def _report(second: int, windows: list[Window]) -> WorkerReport:
    seen = Sighting(SightKind.ORIGIN, f"b{second % 3 + 1}", SightVia.TRAFFIC, second, second + 0.9, 1000)
    return WorkerReport(
        worker=0,
        second=second,
        windows=windows,
        sightings=[seen],
        connections=ConnectionStats(opened=1, closed_by_us=1, reused=999),
        open_connections=50,
        idle_connections=40,
        evidence=(),
        evidence_dropped=0,
        stats=SelfStats(second * 0.05, 50_000_000, 60, 0.001, 0.00003, 0.0002, 0.0005, 0.001),
    )


def simulate(seconds: int, classes: int, directory: Path) -> dict[str, Any]:
    """Run the windows of ``seconds`` through everything, then make the report. Times in seconds."""
    rng = Random(1)
    names = NAMES[:classes]
    shapes = [(_spread(rng, 6e5, _PER_CLASS), _spread(rng, 3e4, _PER_CLASS)) for _ in range(_SHAPES)]
    plan = Plan.model_validate(
        {
            "length": f"{seconds}s",
            "rate": _PER_CLASS * classes,
            "traffic": {"classes": [{"name": n, "share": 1 / classes} for n in names]},
        }
    )
    ledger = Ledger()
    metrics = Metrics(plan, ledger, run_id="bench", proxy_version="1", started_wall_s=0.0, faults={})
    scrapes: list[float] = []
    rss: list[int] = []
    step = max(60, seconds // 24)
    started = perf_counter()
    with StoreWriter(directory / "run.db") as store:
        store.set_meta("plan", plan.model_dump(mode="json", by_alias=True))
        store.add_scope(Scope(0, Phase.STEADY))
        for second in range(seconds):
            report = _report(second, _windows(second, names, shapes))
            ledger.add(report)
            metrics.observe_report(report)
            store.add_report(report)
            if second % 5 == 0:
                for subject in ("proxy", "b1", "b2", "b3", "daemon", "worker"):
                    vital = Vital(second, subject, 10_000_000, second * 0.01, 30, 3)
                    store.add_vital(vital)
                    metrics.observe_vital(vital)
            if second % 500 == 499:
                store.flush()
            if second % step == step - 1:
                before = perf_counter()
                metrics.render()
                scrapes.append(perf_counter() - before)
                rss.append(rss_bytes())
        store.set_meta("ended", {"at_s": seconds, "reason": "finished", "dirty": False})
    fed_s = perf_counter() - started
    gc.collect()
    before = perf_counter()
    with StoreReader(directory / "run.db") as reader:
        built = build_report(reader)
    report_s = perf_counter() - before
    late = [float(r) for r in rss[len(rss) // 6 :]]
    return {
        "seconds": seconds,
        "classes": classes,
        "requests": built["load"]["sent"],
        "verdict": built["verdict"],
        "feed_us_per_second": fed_s / seconds * 1e6,
        "report_s": report_s,
        "scrape_s_median": sorted(scrapes)[len(scrapes) // 2],
        "scrape_s_max": max(scrapes),
        "rss_bytes": rss,
        "rss_every_s": step,
        "rss_slope_bytes_per_h": slope_per_hour(late, step),
        "rss_after_report_bytes": rss_bytes(),
        "store_bytes": (directory / "run.db").stat().st_size,
    }


def main() -> None:
    """Simulate what the arguments say."""
    with tempfile.TemporaryDirectory(prefix="soak-bench-") as scratch:
        print(json.dumps(simulate(int(sys.argv[1]), int(sys.argv[2]), Path(scratch))))


if __name__ == "__main__":
    main()
