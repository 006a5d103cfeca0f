"""What is measured, row by row of issue and document: each function measures one table and returns it as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.load.compare import Contestant, Say, of_peer, of_soak, side_by_side
from benchmarks.load.cost import RunFailed, before_others, run_pinned
from benchmarks.load.day import slope_per_hour
from benchmarks.load.evenness import Evenness, evenness_of
from benchmarks.load.peers import AB, AUTOCANNON, CONNECTIONS, H2LOAD, HEY, K6, OHA, WRK, Task
from benchmarks.load.soakside import order_for, spec_for
from benchmarks.load.target import Target, serving
from soak.load.traffic import LoadSlice

HTTP1_RATE = 10_000
BUSY_RATE = 50_000
TLS_NEW_RATE = 300
H2_RATE = 4_000
LAB_RATE = 1_000
_COALESCE_S = 0.0
_MANY = 2_000
"""In-flight bound where the question is not what others do with as few connections."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and how often."""

    repetitions: int = 5
    seconds: int = 3
    lab_s: int = 20
    worker_s: int = 120
    day_s: int = 86_400


def _entries(contestants: Sequence[Contestant], effort: Effort, say: Say) -> list[dict[str, Any]]:
    found = side_by_side(contestants, repetitions=effort.repetitions, seconds=effort.seconds, say=say)
    return [entry.to_json() for entry in found]


def http1(effort: Effort, say: Say) -> dict[str, Any]:
    """(a) HTTP/1.1 keep-alive, 1 KiB, every check on, at 10,000 requests a second."""
    with serving() as target, tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)

        def task(seconds: int) -> Task:
            return Task(target, seconds, HTTP1_RATE, here)

        contestants = [
            of_soak("soak", spec_for(target, HTTP1_RATE), here, connections=CONNECTIONS),
            of_soak(
                "soak --coalesce 0",
                spec_for(target, HTTP1_RATE),
                here,
                connections=CONNECTIONS,
                coalesce_s=_COALESCE_S,
                note="each request has a wake of its own",
            ),
            *(of_peer(peer, task) for peer in (H2LOAD, HEY, AUTOCANNON, K6, OHA, WRK, AB)),
            of_soak(f"soak at {BUSY_RATE:,}", spec_for(target, BUSY_RATE), here, connections=CONNECTIONS),
        ]
        entries = _entries(contestants, effort, say)
        even = {c.name: _evenness(target, c, say) for c in contestants if not c.missing}
    return {"rate": HTTP1_RATE, "entries": entries, "evenness": even}


def _evenness(target: Target, contestant: Contestant, say: Say) -> dict[str, Any] | None:
    """Watch one run from the server's side."""
    with target.noting_arrivals() as log:
        try:
            run_pinned(contestant.argv(3))
        except RunFailed as error:
            say(f"  evenness of {contestant.name}: {error}")
            return None
    found: Evenness | None = evenness_of(log.read_text())
    return None if found is None else found.to_json()


def tls_new(effort: Effort, say: Say) -> dict[str, Any]:
    """(d) A new TLS 1.3 connection for each request."""
    with serving() as target, tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)

        def task(seconds: int) -> Task:
            return Task(target, seconds, TLS_NEW_RATE, here, tls=True, keep=False)

        spec = spec_for(target, TLS_NEW_RATE, port=target.https_port, tls=True, connection="new")
        contestants = [
            of_soak(
                "soak",
                spec,
                here,
                connections=CONNECTIONS,
                ca_file=target.ca_file,
                note="chain and name verified",
            ),
            *(of_peer(peer, task, note="nothing verified") for peer in (H2LOAD, HEY, K6, OHA, WRK, AB)),
        ]
        return {"rate": TLS_NEW_RATE, "entries": _entries(contestants, effort, say)}


def h2(effort: Effort, say: Say) -> dict[str, Any]:
    """(d) HTTP/2 over TLS, 16 connections x 16 streams, at 4,000 requests a second."""
    with serving() as target, tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)

        def task(seconds: int) -> Task:
            return Task(target, seconds, H2_RATE, here, tls=True, http2=True, connections=16, streams=16)

        spec = spec_for(
            target, H2_RATE, port=target.https_port, tls=True, protocol="h2", connections=16, streams=16
        )
        contestants = [
            of_soak(
                "soak", spec, here, connections=256, ca_file=target.ca_file, note="chain and name verified"
            ),
            *(of_peer(peer, task, note="nothing verified") for peer in (H2LOAD, HEY, K6, OHA)),
        ]
        return {"rate": H2_RATE, "entries": _entries(contestants, effort, say)}


def checks(effort: Effort, say: Say) -> dict[str, Any]:
    """(f) What each check costs: the same load with one of them off, or with answers that differ, or all wrong."""
    with serving() as target, tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        full = spec_for(target, HTTP1_RATE)
        off = replace(full, check_identity=False, check_body=False)
        variants: list[tuple[str, Any, str, str]] = [
            ("every check on", full, "ok", ""),
            ("identity off", replace(full, check_identity=False), "ok", ""),
            ("checksum off", replace(full, check_body=False), "ok", ""),
            ("identity, checksum and length off", replace(off, response_bytes=None), "ok", ""),
            (
                "no sightings",
                replace(full, path="/bare"),
                "ok",
                "the server names neither origin nor generation",
            ),
            (
                "every answer parsed",
                replace(full, path="/differs"),
                "ok",
                "each answer has a header of its own, so none is known",
            ),
            ("the same, checksum off", replace(full, path="/differs", check_body=False), "ok", ""),
            (
                "every answer wrong",
                replace(full, status=201),
                "status_unexpected",
                "each is a failure with its error text; 10 a second are kept whole",
            ),
        ]
        contestants = [
            of_soak(name, spec, here, connections=CONNECTIONS, outcome=outcome, note=note)
            for name, spec, outcome, note in variants
        ]
        return {"rate": HTTP1_RATE, "entries": _entries(contestants, effort, say)}


# -- soak alone --------------------------------------------------------------------------------------------------------


def run_soak(load: LoadSlice, scratch: Path) -> tuple[dict[str, Any], float]:
    """Carry out an order on the generators' CPU; return the result and the wall seconds."""
    file = scratch / "order.json"
    file.write_text(json.dumps(load.to_json()))
    done = run_pinned(
        [sys.executable, "-m", "benchmarks.load.soakside", str(file)], timeout_s=load.seconds + 60
    )
    return json.loads(done.output), done.wall_s


def highest(holds: Callable[[int], bool], *, start: int, top: int, step: int) -> int:
    """Return the highest rate that holds: by doubling, then by halving the gap down to ``step``. 0 if ``start`` does not."""
    if not holds(start):
        return 0
    good, bad = start, start * 2
    while bad <= top and holds(bad):
        good, bad = bad, bad * 2
    bad = min(bad, top + step)
    while bad - good > step:
        middle = (good + bad) // 2 // step * step
        if middle <= good:
            break
        if holds(middle):
            good = middle
        else:
            bad = middle
    return good


def scale(effort: Effort, say: Say) -> dict[str, Any]:
    """(b) The highest rate that one worker holds without a missed or dropped slot, and what was full when it did not."""
    tries: list[dict[str, Any]] = []
    with before_others() as first, serving() as target, tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)

        def once(rate: int) -> dict[str, Any]:
            before = target.cpu_s()
            load = order_for(spec_for(target, rate), effort.seconds, connections=_MANY)
            result, _ = run_soak(load, here)
            lost = result["missed"] + result["dropped"]
            busy_s = result["cpu_s"][-1] - result["cpu_s"][0]  # from the end of the first second on
            share = busy_s / max(1, effort.seconds - 1)
            return {
                "rate": rate,
                "held": lost == 0
                and result["done"] == result["scheduled"] == result["outcomes"].get("ok", 0),
                "missed": result["missed"],
                "dropped": result["dropped"],
                "worker_cpu_share": share,
                "server_cpu_share": (target.cpu_s() - before) / effort.seconds,
                "lag_ms": result["lag_ms"],
                "latency_ms": result["latency_ms"],
                "cpu_us": share / rate * 1e6,
            }

        def holds(rate: int) -> bool:
            for _ in range(3):  # a stall of the machine is not a limit of the engine
                found = once(rate)
                tries.append(found)
                say(
                    f"  {rate:,} req/s: {found['missed']} missed, {found['dropped']} dropped, worker "
                    f"{found['worker_cpu_share']:.0%} of a core, server {found['server_cpu_share']:.0%}"
                )
                if found["held"]:
                    return True
            return False

        best = highest(holds, start=5_000, top=160_000, step=5_000)
    return {"held": best, "tries": tries, "before_others": first}


_PLAN = """\
name: bench
length: {seconds}s
rate: {rate}
traffic:
  classes:
    - {{name: plain, share: 0.5, tls: false}}
    - {{name: tls, share: 0.5}}
"""


def lab(effort: Effort, say: Say) -> dict[str, Any]:
    """(c) A whole run without faults at 1,000 requests a second: nginx, three origins, daemon and worker on the same cores."""
    runs = []
    with tempfile.TemporaryDirectory() as scratch:
        for turn in range(effort.repetitions):
            plan = Path(scratch) / "soak.yaml"
            plan.write_text(_PLAN.format(seconds=effort.lab_s, rate=LAB_RATE))
            command = [sys.executable, "-m", "soak.cli", "start", str(plan), "--json"]
            done = subprocess.run(
                [*command, "--dir", str(Path(scratch) / f"run{turn}")],
                capture_output=True,
                text=True,
                timeout=effort.lab_s + 120,
                check=False,
            )
            try:
                report = json.loads(done.stdout)
            except ValueError:
                say(f"  run {turn + 1} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
                continue
            load = report["load"]
            runs.append(
                {
                    "verdict": report["verdict"],
                    **{k: load[k] for k in ("scheduled", "sent", "dropped", "missed", "ok", "failed")},
                    **{k: load[k] for k in ("lag_ms", "latency_ms", "service_ms")},
                    "cpu_us_per_request": report["self"]["cpu_us_per_request"],
                }
            )
            say(
                f"  run {turn + 1}: {report['verdict']}, lag p50 {load['lag_ms']['p50']} ms, p99 {load['lag_ms']['p99']} ms"
            )
    return {"rate": LAB_RATE, "seconds": effort.lab_s, "runs": runs}


def memory(effort: Effort, say: Say) -> dict[str, Any]:
    """(e) A day of windows through ledger, metrics, store and report; and a worker's own memory over minutes."""
    command = [sys.executable, "-m", "benchmarks.load.day", str(effort.day_s), "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        raise RunFailed(f"the simulated day ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    day = json.loads(done.stdout)
    say(
        f"  {day['seconds']:,} s simulated: report in {day['report_s']:.2f} s, scrape {day['scrape_s_median'] * 1e3:.1f} ms"
    )
    with serving() as target, tempfile.TemporaryDirectory() as scratch:
        load = order_for(spec_for(target, LAB_RATE), effort.worker_s, connections=CONNECTIONS)
        result, _ = run_soak(load, Path(scratch))
    rss = [float(n) for n in result["rss_bytes"]]
    late = rss[len(rss) // 3 :]
    worker = {
        "seconds": effort.worker_s,
        "rate": LAB_RATE,
        "rss_first_bytes": rss[0],
        "rss_last_bytes": rss[-1],
        "rss_growth_bytes": median(late[-10:]) - median(late[:10]),
        "rss_slope_bytes_per_h": slope_per_hour(late, 1.0),
        "rss_bytes": result["rss_bytes"],
    }
    say(f"  worker: {rss[0] / 2**20:.1f} MiB, {rss[-1] / 2**20:.1f} MiB after {effort.worker_s} s")
    return {"day": day, "worker": worker}


ROWS: Mapping[str, Callable[[Effort, Say], dict[str, Any]]] = {
    "http1": http1,
    "checks": checks,
    "scale": scale,
    "lab": lab,
    "tls-new": tls_new,
    "h2": h2,
    "memory": memory,
}
"""Every table by its name on the command line."""

__all__ = ["ROWS", "Effort", "highest", "run_soak"]
