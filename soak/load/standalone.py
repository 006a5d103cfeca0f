"""The load engine alone, against any URL: what ``soak load`` runs. No lab, no faults, no store; the result is a dictionary.

Answers of a stranger's server carry no request id and no known body, so status and framing are what is checked.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from soak.errors import PlanError
from soak.load.dial import client_context
from soak.load.limits import raise_open_file_limit
from soak.load.pool import LoadPool
from soak.load.traffic import ClassSpec, LoadSlice
from soak.measure.histogram import Histogram, bucket_low_ns
from soak.measure.ledger import Ledger
from soak.measure.window import WorkerReport
from soak.model import Outcome
from soak.tasks import cancel, spawn

_START_S = 0.3
"""Time for workers that are up to read their slices and certificates before the first slot is due."""
_BEAT_S = 1.0
_MAX_WORKERS = 16
_PATH_SAFE = "/%:@!$&'()*+,;=~-._?[]"


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """What to send. ``connections`` bounds requests in flight (default: rate x response timeout)."""

    url: str
    rate: float
    seconds: float
    connections: int | None = None
    workers: int = 1
    arrivals: str = "uniform"
    seed: int = 1
    new_connections: bool = False
    """Open a connection for each request instead of keeping them."""
    status: int = 200
    response_timeout_s: float = 10.0
    ca_file: str | None = None
    """Authority to trust instead of the system's."""


def run_load(order: LoadOrder, *, on_second: Callable[[Ledger], None] | None = None) -> dict[str, Any]:
    """Run to the end (or to the first SIGINT, which ends it early and still reports) and return the result.

    Keys: ``schema``, ``url``, ``seconds``, ``rate``, ``load``, ``connections``, ``self`` as in the run report, and ``workers_died``.
    Raises ``PlanError`` for an order that cannot be carried out.
    """
    spec = _class_of(order)
    return asyncio.run(_run(order, spec, on_second))


def _class_of(order: LoadOrder) -> ClassSpec:
    url, host, port = _split(order.url)
    for name, value, low, top in (
        ("rate", order.rate, 0.001, 1e6),
        ("seconds", order.seconds, 0.001, 31 * 86_400),
        ("response timeout", order.response_timeout_s, 0.001, 3600),
    ):
        if not low <= value <= top:
            raise PlanError(f"{name} is {value:g}; it must be at least {low:g} and at most {top:g}")
    if not 1 <= order.workers <= _MAX_WORKERS:
        raise PlanError(f"workers is {order.workers}; it must be between 1 and {_MAX_WORKERS}")
    if order.connections is not None and order.connections < order.workers:
        raise PlanError(
            f"connections is {order.connections}; it must be at least 1 for each of {order.workers} workers"
        )
    if url.scheme == "https":
        try:
            client_context(order.ca_file)
        except OSError as error:  # ssl.SSLError is one
            raise PlanError(f"{order.ca_file!r} is no file of PEM certificates to trust: {error}") from error
    target = quote(url.path or "/", safe=_PATH_SAFE) + (
        f"?{quote(url.query, safe=_PATH_SAFE)}" if url.query else ""
    )
    named = f"[{host}]" if ":" in host else host
    return ClassSpec(
        name="url",
        rate=order.rate,
        host=host,
        port=port,
        authority=named if url.port is None else f"{named}:{port}",
        tls=url.scheme == "https",
        server_name=host,
        connection="new" if order.new_connections else "reuse",
        path=target,
        check_body=False,
        check_identity=False,
        status=order.status,
    )


def _split(text: str) -> tuple[SplitResult, str, int]:
    """Return a URL's parts, its host in ASCII and its port. Raises ``PlanError`` for what cannot be loaded."""
    example = "write it like http://127.0.0.1:8080/path"
    try:
        url = urlsplit(text)
        port = url.port
        host = (
            (url.hostname or "")
            if (url.hostname or "").isascii()
            else str(url.hostname).encode("idna").decode()
        )
    except (ValueError, UnicodeError) as error:
        raise PlanError(f"{text!r} is not a URL to load ({error}); {example}") from error
    if url.scheme not in ("http", "https") or not host or any(c <= " " for c in host):
        raise PlanError(f"{text!r} is not a URL to load; {example}")
    if port == 0:
        raise PlanError(f"{text!r} names port 0, on which nothing can listen; {example}")
    if url.username is not None:
        raise PlanError(f"{text!r} carries a user name, which is not sent; {example}")
    return url, host, port or (443 if url.scheme == "https" else 80)


def default_max_in_flight(rate: float, response_timeout_s: float, open_files: int) -> int:
    """Return how many requests may be in flight: rate x timeout, bounded by the open-file limit less what else is open."""
    return max(1, min(int(rate * response_timeout_s), open_files - 200))


async def _run(
    order: LoadOrder, spec: ClassSpec, on_second: Callable[[Ledger], None] | None
) -> dict[str, Any]:
    limit = raise_open_file_limit()
    in_flight = order.connections or default_max_in_flight(
        order.rate, order.response_timeout_s, limit * order.workers
    )
    ledger = Ledger()
    deaths: list[dict[str, object]] = []
    slices = [
        LoadSlice(
            worker=k,
            workers=order.workers,
            t0_ns=0,  # given at the start, when the workers are up
            seconds=order.seconds,
            seed=order.seed,
            classes=[spec],
            arrivals=order.arrivals,
            response_timeout_s=order.response_timeout_s,
            max_in_flight=max(1, in_flight // order.workers),
            ca_file=order.ca_file,
        )
        for k in range(order.workers)
    ]

    def on_report(report: WorkerReport) -> None:
        ledger.add(report)
        if on_second is not None:
            on_second(ledger)

    def on_event(name: str, data: dict[str, object]) -> None:
        if name == "load.worker_died":
            deaths.append(data)

    with tempfile.TemporaryDirectory(prefix="soak-load-") as scratch:
        pool = LoadPool(slices, log_path=Path(scratch) / "worker.log", on_report=on_report, on_event=on_event)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, pool.stop)
        try:
            await pool.prepare()
            await pool.start(t0_ns=monotonic_ns() + int(_START_S * 1e9))
            await _beat_until_done(pool)
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            await pool.kill()
    return summarize(order, ledger, deaths)


async def _beat_until_done(pool: LoadPool) -> None:
    done = spawn(pool.wait(), name="load-wait")
    try:
        while not done.done():
            pool.beat()
            await asyncio.wait({done}, timeout=_BEAT_S)
        await done
    finally:
        await cancel(done)


def quantiles_ms(histogram: Histogram) -> dict[str, float]:
    """Return p50, p99, p99.9 and the exact maximum in milliseconds."""
    at = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}
    return {name: round(histogram.quantile_ns(q) / 1e6, 4) for name, q in at.items()}


def summarize(order: LoadOrder, ledger: Ledger, deaths: list[dict[str, object]]) -> dict[str, Any]:
    """Return the result of a load run as a dictionary."""
    latency, service, lag = Histogram(), Histogram(), Histogram()
    for histogram in ledger.latency.values():
        latency.merge(histogram)
    for histogram in ledger.service.values():
        service.merge(histogram)
    for histogram in ledger.lag.values():
        lag.merge(histogram)
    total = ledger.total()
    outcomes = ledger.by_outcome()
    done = sum(outcomes.values())
    ok = outcomes.get(Outcome.OK, 0)
    newest = list(ledger.newest.values())
    cpu_s = sum(r.stats.cpu_s for r in newest)
    connections = ledger.connections
    return {
        "schema": 1,
        "url": order.url,
        "seconds": order.seconds,
        "rate": order.rate,
        "load": {
            "scheduled": total.scheduled,
            "sent": total.sent,
            "dropped": total.dropped,
            "missed": total.missed,
            "ok": ok,
            "failed": done - ok,
            "in_flight": ledger.in_flight(),
            "outcomes": {o.value: n for o, n in sorted(outcomes.items())},
            "latency_ms": quantiles_ms(latency),
            "service_ms": quantiles_ms(service),
            "lag_ms": quantiles_ms(lag),
            "bytes_received": ledger.bytes_received,
            "histogram": [[low / 1e6, n] for low, n in coarse(latency)],
        },
        "connections": {
            "opened": connections.opened,
            "closed_by_peer": connections.closed_by_peer,
            "closed_by_us": connections.closed_by_us,
            "tls_full": connections.tls_full,
            "tls_resumed": connections.tls_resumed,
            "reused": connections.reused,
        },
        "self": {
            "cpu_s": round(cpu_s, 3),
            "rss_bytes": sum(r.stats.rss_bytes for r in newest),
            "cpu_us_per_request": round(cpu_s / done * 1e6, 2) if done else None,
        },
        "workers_died": deaths,
        "violations": ledger.violations(),
    }


def coarse(histogram: Histogram, per_octave: int = 2) -> list[tuple[int, int]]:
    """Return the histogram in few rows for a picture: (lower end in nanoseconds, count), ``per_octave`` rows per doubling."""
    step = 128 // per_octave
    rows: dict[int, int] = {}
    for bucket, n in histogram.counts.items():
        rows[bucket // step] = rows.get(bucket // step, 0) + n
    return [(bucket_low_ns(i * step), n) for i, n in sorted(rows.items())]
