"""The load engine alone, against any URL or a proxy before soak's origins: what ``soak load`` runs.

No lab, no faults, no store; the result is a dictionary.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Any

from soak.load.limits import most_in_flight, raise_open_file_limit
from soak.load.orders import LoadOrder, classes_of_order
from soak.load.pool import LoadPool
from soak.load.summary import Told, coarse, quantiles_ms, summarize
from soak.load.traffic import ClassSpec, LoadSlice
from soak.measure.ledger import Ledger
from soak.measure.window import WorkerReport
from soak.tasks import cancel, spawn

__all__ = ["LoadOrder", "coarse", "quantiles_ms", "run_load"]

_START_S = 0.3
"""Time for workers that are up to read their slices and certificates before the first slot is due."""
_BEAT_S = 1.0


def run_load(order: LoadOrder, *, on_second: Callable[[Ledger], None] | None = None) -> dict[str, Any]:
    """Run to the end, wait for what is in flight (its deadlines bound that), and return the result.

    The first SIGINT ends it early and still reports; a second one does not wait for what is in flight. Keys: ``schema``, ``url``,
    ``seconds``, ``rate``, ``load``, ``connections``, ``self`` as in the run report, ``waited_s``, ``origins``, ``duplicates`` and
    ``workers_died``. Raises ``PlanError`` for an order that cannot be carried out.
    """
    classes = classes_of_order(order)
    return asyncio.run(_run(order, classes, on_second))


async def _run(
    order: LoadOrder, classes: Sequence[ClassSpec], on_second: Callable[[Ledger], None] | None
) -> dict[str, Any]:
    ledger, told = Ledger(), Told()

    def on_report(report: WorkerReport) -> None:
        ledger.add(report)
        told.add(report)
        if on_second is not None:
            on_second(ledger)

    def on_event(name: str, data: dict[str, object]) -> None:
        if name == "load.worker_died":
            told.deaths.append(data)

    with tempfile.TemporaryDirectory(prefix="soak-load-") as scratch:
        log_path = Path(scratch) / "worker.log"
        pool = LoadPool(_slices_of(order, classes), log_path=log_path, on_report=on_report, on_event=on_event)
        loop = asyncio.get_running_loop()
        interrupted = asyncio.Event()
        hurried = asyncio.Event()

        def on_interrupt() -> None:
            (hurried if interrupted.is_set() else interrupted).set()
            pool.stop()

        loop.add_signal_handler(signal.SIGINT, on_interrupt)
        try:
            await pool.prepare()
            t0_ns = monotonic_ns() + int(_START_S * 1e9)
            await pool.start(t0_ns=t0_ns)
            await _beat_until_done(pool, hurried)
            if not interrupted.is_set():
                told.waited_s = max(0.0, (monotonic_ns() - t0_ns) / 1e9 - order.seconds)
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            await pool.kill()
    return summarize(order, ledger, told)


def _slices_of(order: LoadOrder, classes: Sequence[ClassSpec]) -> list[LoadSlice]:
    files = raise_open_file_limit() * order.workers
    in_flight = order.connections or most_in_flight(classes, order.response_timeout_s, files)
    return [
        LoadSlice(
            worker=k,
            workers=order.workers,
            t0_ns=0,  # given at the start, when the workers are up
            seconds=order.seconds,
            seed=order.seed,
            classes=classes,
            arrivals=order.arrivals,
            response_timeout_s=order.response_timeout_s,
            max_in_flight=max(1, in_flight // order.workers),
            ca_file=order.ca_file,
            realtime=order.realtime,
            coalesce_s=order.coalesce_s,
        )
        for k in range(order.workers)
    ]


async def _beat_until_done(pool: LoadPool, hurried: asyncio.Event) -> None:
    """Keep the workers going until they have reported a last time, or until nobody wants to wait for that."""
    done = spawn(pool.wait(), name="load-wait")
    hurry = spawn(hurried.wait(), name="load-hurry")
    try:
        while not (done.done() or hurry.done()):
            pool.beat()
            await asyncio.wait({done, hurry}, timeout=_BEAT_S, return_when=asyncio.FIRST_COMPLETED)
        if done.done():
            await done
    finally:
        await cancel(done)
        await cancel(hurry)
