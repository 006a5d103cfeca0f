"""Soak every proxy that is installed, one after the other, and put what each lost into a table.

python -m benchmarks.matrix                          all of them, two minutes each; the table goes into README.md
python -m benchmarks.matrix --proxies nginx,haproxy  these alone; nothing is written into README.md
python -m benchmarks.matrix --minutes 0.5            a look
python -m benchmarks.matrix --resume                 go on with one that was interrupted
python -m benchmarks.matrix --show FILE              the table of earlier results; nothing is run
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.load.machine import describe
from benchmarks.matrix.entry import Entry, entry_of, not_run
from benchmarks.matrix.running import Run, run, soak_command
from benchmarks.matrix.table import block, fill, notes, table
from soak.errors import SoakError
from soak.planfile import Overrides, load_plan
from soak.proxies.base import abilities_of
from soak.proxies.catalog import adapters
from soak.proxyplan import COMMAND

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results" / "matrix.json"
KEPT = ROOT / "benchmarks" / ".matrix"
"""Reports as they came, and what an interrupted matrix has got so far; not for a repository."""
MINUTES, RATE, PRESET = 2.0, 1000.0, "quick"
INTERRUPTED = 130


def say(text: str) -> None:
    """Tell whoever waits how far it is."""
    print(text, file=sys.stderr, flush=True)


def names() -> list[str]:
    """Return every proxy that soak has an adapter for; one that only a plan knows is no row."""
    return [name for name in adapters() if name != COMMAND]


def measure(proxy: str, options: argparse.Namespace) -> Entry:
    """Soak one proxy, keep its report, and return its row. What does not run is a row with its reason."""
    adapter = adapters()[proxy]
    try:
        can = sorted(map(str, abilities_of(adapter, adapter.find_binary(None))))
        plan = load_plan(preset=PRESET, overrides=Overrides(proxy=proxy))
    except SoakError as error:
        return not_run(proxy, str(error), can=sorted(map(str, adapter.capabilities)))
    command = [*soak_command(), "start", "--preset", PRESET, "--proxy", proxy, "--json"]
    command += ["--minutes", f"{options.minutes:g}", "--rate", f"{options.rate:g}", *options.extra]
    done = run(command, options.minutes * 60, say, options.kept / "home")
    return folded(proxy, done, can, plan.left_out, options.kept)


def folded(proxy: str, done: Run, can: Sequence[str], left_out: Sequence[str], kept: Path) -> Entry:
    """Keep a report and return its row."""
    if done.report is None:
        return not_run(proxy, done.words, can=can)
    kept.mkdir(parents=True, exist_ok=True)
    (kept / f"{proxy}.json").write_text(json.dumps(done.report, indent=1) + "\n")
    try:
        return entry_of(proxy, done.report, done.status, can, left_out)
    except (KeyError, TypeError) as error:
        return not_run(proxy, f"its report lacks {error}", can=can)


def matrix(wanted: Sequence[str], options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """Soak these proxies in turn; returns the summary and whether all of them were. Ctrl-C ends it with what there is."""
    summary = begun(options)
    rows = {value["proxy"]: value for value in summary["entries"]}
    whole = True
    for i, proxy in enumerate(wanted, 1):
        if proxy in rows:
            say(f"{proxy} ({i} of {len(wanted)}): measured before the interruption")
            continue
        say(f"{proxy} ({i} of {len(wanted)}): {options.minutes:g} min at {options.rate:g} req/s ...")
        try:
            entry = measure(proxy, options)
        except KeyboardInterrupt:
            say("interrupted; what was measured is kept, and --resume goes on")
            whole = False
            break
        say(f"  {entry.verdict}{f': {entry.reason}' if entry.reason else ''}")
        rows[proxy] = entry.to_json()
        summary["entries"] = [rows[name] for name in wanted if name in rows]
        progress(options).write_text(json.dumps(summary, indent=1) + "\n")
    if whole:
        progress(options).unlink(missing_ok=True)
    return summary, whole


def progress(options: argparse.Namespace) -> Path:
    """Return where an unfinished matrix is kept."""
    options.kept.mkdir(parents=True, exist_ok=True)
    path: Path = options.kept / "unfinished.json"
    return path


def begun(options: argparse.Namespace) -> dict[str, Any]:
    """Return an empty summary, or with ``--resume`` the unfinished one if it was of the same kind."""
    fresh: dict[str, Any] = {
        "schema": 1,
        "preset": PRESET,
        "minutes": options.minutes,
        "rate": options.rate,
        "machine": describe(),
        "entries": [],
    }
    path = progress(options)
    if not options.resume or not path.exists():
        return fresh
    old: dict[str, Any] = json.loads(path.read_text())
    if all(old[key] == fresh[key] for key in ("schema", "preset", "minutes", "rate")):
        return old
    say("the unfinished matrix was of another length or rate; beginning anew")
    return fresh


def show(summary: Mapping[str, Any]) -> None:
    """Print the table and its notes."""
    entries = [Entry.from_json(value) for value in summary["entries"]]
    print(table(entries))
    for note in notes(entries):
        print(f"- {note}")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line. Ends with 2 for what makes no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.matrix",
        description="Soak every proxy that is installed and compare what each lost.",
    )
    parser.add_argument("--proxies", help=f"of these alone: {','.join(names())}")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="length of each run (default 2)")
    parser.add_argument("--rate", type=float, default=RATE, help="requests per second (default 1000)")
    parser.add_argument("--resume", action="store_true", help="go on with one that was interrupted")
    parser.add_argument("--write", action="store_true", help="write README.md even if this is only a part")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print earlier results; run nothing")
    parser.add_argument("--kept", type=Path, default=KEPT, help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    parser.add_argument("--document", type=Path, default=DOCUMENT, help=argparse.SUPPRESS)
    parser.add_argument("extra", nargs="*", metavar="-- FLAG", help="further flags of 'soak start'")
    options = parser.parse_args(argv)
    chosen = names() if options.proxies is None else [n for n in options.proxies.split(",") if n]
    if unknown := [n for n in chosen if n not in names()]:
        parser.error(f"no proxy {unknown[0]!r}; there are {', '.join(names())}")
    if not 0 < options.minutes <= 24 * 60 or not options.rate > 0:
        parser.error("--minutes must be more than 0 and at most 1440, --rate more than 0")
    options.chosen = chosen
    options.whole = options.proxies is None and (options.minutes, options.rate) == (MINUTES, RATE)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Do it; returns 0 when every proxy has its row, whatever its verdict."""
    options = arguments(argv)
    if options.show is not None:
        show(json.loads(options.show.read_text()))
        return 0
    summary, whole = matrix(options.chosen, options)
    show(summary)
    if not whole:
        return INTERRUPTED
    if options.whole or options.write:
        text = fill(options.document.read_text(), block(summary))
        options.results.parent.mkdir(parents=True, exist_ok=True)
        options.results.write_text(json.dumps(summary, indent=1) + "\n")
        options.document.write_text(text)
        say(f"written: {os.path.relpath(options.document)}, {os.path.relpath(options.results)}")
    else:
        say("a part, so README.md stays as it is; --write writes it nevertheless")
    return 0


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background job ignores Ctrl-C otherwise
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
