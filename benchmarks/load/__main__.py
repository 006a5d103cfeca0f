"""``make bench``: measure, print the tables, keep the raw results.

python -m benchmarks.load                      everything, about 25 minutes
python -m benchmarks.load --rows http1,lab     some tables
python -m benchmarks.load --quick              one short repetition: does it work here?
python -m benchmarks.load --write              put the tables into docs/PERFORMANCE.md
python -m benchmarks.load --show FILE --write  the tables of earlier results, nothing measured
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.load.machine import describe
from benchmarks.load.rows import ROWS, Effort
from benchmarks.load.tables import RENDER, fill, machine

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENT = ROOT / "docs" / "PERFORMANCE.md"
PEERS = ROOT / "benchmarks" / ".peers" / "node_modules" / ".bin"

QUICK = Effort(repetitions=1, seconds=2, lab_s=8, worker_s=20, day_s=3600)


def say(text: str) -> None:
    """Tell whoever waits how far it is."""
    print(text, file=sys.stderr, flush=True)


def measure(names: list[str], effort: Effort) -> dict[str, Any]:
    """Measure these tables. A table that fails says so and does not stop the others."""
    results: dict[str, Any] = {"schema": 1, "machine": describe(), "rows": {}}
    for name in names:
        say(f"{name}: {(ROWS[name].__doc__ or '').splitlines()[0]}")
        load = round(os.getloadavg()[0], 1)
        try:
            result = ROWS[name](effort, say)
        except (RuntimeError, OSError, ValueError, KeyError) as error:
            say(f"  {name} failed: {type(error).__name__}: {error}")
            continue
        results["rows"][name] = {"load_average_before": load, "result": result}
    return results


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load", description="Measure soak beside others."
    )
    parser.add_argument("--rows", default=",".join(ROWS), help=f"tables: {', '.join(ROWS)}")
    parser.add_argument("--repetitions", type=int, help="measurements of each (default 5)")
    parser.add_argument("--seconds", type=int, help="length of each (default 3)")
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="run servers and generators before all other programs (SCHED_RR; needs root): for a machine that is not idle",
    )
    parser.add_argument("--quick", action="store_true", help="one short repetition of each")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/PERFORMANCE.md")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print earlier results; measure nothing")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the raw results go")
    args = parser.parse_args()
    names = [n for n in args.rows.split(",") if n]
    if unknown := [n for n in names if n not in ROWS]:
        parser.error(f"no table {unknown[0]!r}; there are {', '.join(ROWS)}")
    if args.show is not None:
        results = json.loads(args.show.read_text())
    else:
        os.environ["PATH"] = f"{PEERS}{os.pathsep}{os.environ['PATH']}"
        os.environ["SOAK_BENCH_REALTIME"] = "1" if args.realtime else "0"
        base = QUICK if args.quick else Effort()
        effort = Effort(
            repetitions=args.repetitions or base.repetitions,
            seconds=args.seconds or base.seconds,
            lab_s=base.lab_s,
            worker_s=base.worker_s,
            day_s=base.day_s,
        )
        results = measure(names, effort)
        out = args.out or RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(results, separators=(",", ":")) + "\n")
        say(f"raw results: {os.path.relpath(out)}")
    print(machine(results["machine"]))
    for name, row in results["rows"].items():
        print(f"\n{name}\n\n{RENDER[name](row['result'])}")
    if args.write:
        DOCUMENT.write_text(fill(DOCUMENT.read_text(), results))
    sys.exit(0 if results["rows"] else 1)


if __name__ == "__main__":
    main()
