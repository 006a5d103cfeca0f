"""soak as a command to be measured: ``python -m benchmarks.load.soakside ORDER.json``.

The same parts as ``soak load``: a parent that reads one report a second, and a worker process that sends. Both count.
The order is a ``LoadSlice`` as JSON; the result is printed as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns
from typing import Any

from benchmarks.load.target import BODY_BYTES, HOST, Target
from soak.load.limits import raise_open_file_limit
from soak.load.pool import LoadPool
from soak.load.standalone import quantiles_ms
from soak.load.traffic import ClassSpec, LoadSlice
from soak.measure.histogram import Histogram
from soak.measure.ledger import Ledger

_START_S = 0.3


def spec_for(target: Target, rate: float, **changes: Any) -> ClassSpec:
    """Return the class that all comparisons send: GET 1 KiB with every check on."""
    base = ClassSpec(
        name="bench",
        rate=rate,
        host=HOST,
        port=target.http_port,
        authority="soak.test",
        server_name="soak.test",
        response_bytes=BODY_BYTES,
    )
    return replace(base, **changes)


def order_for(
    spec: ClassSpec,
    seconds: float,
    *,
    connections: int,
    ca_file: Path | None = None,
    coalesce_s: float | None = None,
) -> LoadSlice:
    """Return what one worker is told."""
    return LoadSlice(
        worker=0,
        workers=1,
        t0_ns=0,
        seconds=seconds,
        seed=1,
        classes=[spec],
        max_in_flight=connections,
        coalesce_s=coalesce_s,
        ca_file=None if ca_file is None else str(ca_file),
    )


async def carry_out(load: LoadSlice) -> dict[str, Any]:
    """Run the load and return what came of it, with the worker's resident memory at each second."""
    ledger = Ledger()
    rss: list[int] = []
    cpu: list[float] = []

    def on_report(report: Any) -> None:
        ledger.add(report)
        rss.append(report.stats.rss_bytes)
        cpu.append(report.stats.cpu_s)

    with tempfile.TemporaryDirectory(prefix="soak-bench-") as scratch:
        pool = LoadPool([load], log_path=Path(scratch) / "log", on_report=on_report, on_event=lambda *_: None)
        try:
            await pool.prepare()
            await pool.start(t0_ns=monotonic_ns() + int(_START_S * 1e9))
            waiting = asyncio.ensure_future(pool.wait())
            while not waiting.done():
                pool.beat()
                await asyncio.wait({waiting}, timeout=1.0)
            await waiting
        finally:
            await pool.kill()
    return _result(ledger, rss, cpu)


def _result(ledger: Ledger, rss: list[int], cpu: list[float]) -> dict[str, Any]:
    total = ledger.total()
    outcomes = {o.value: n for o, n in ledger.by_outcome().items()}
    merged = {name: Histogram() for name in ("latency", "service", "lag")}
    for name, out in merged.items():
        for histogram in getattr(ledger, name).values():
            out.merge(histogram)
    return {
        "scheduled": total.scheduled,
        "sent": total.sent,
        "dropped": total.dropped,
        "missed": total.missed,
        "done": sum(outcomes.values()),
        "outcomes": outcomes,
        "opened": ledger.connections.opened,
        "cpu_s": cpu,
        "latency_ms": quantiles_ms(merged["latency"]),
        "service_ms": quantiles_ms(merged["service"]),
        "lag_ms": quantiles_ms(merged["lag"]),
        "rss_bytes": rss,
        "violations": ledger.violations(),
    }


def main() -> None:
    """Carry out the order in the file that is named."""
    raise_open_file_limit()
    load = LoadSlice.from_json(json.loads(Path(sys.argv[1]).read_text()))
    print(json.dumps(asyncio.run(carry_out(load))))


if __name__ == "__main__":
    main()
