"""The tables of ``docs/PERFORMANCE.md``, from the raw results alone: a file of results can be printed again at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.load.compare import Entry
from benchmarks.load.cost import Spread

Json = Mapping[str, Any]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first and those named ``note`` are numbers."""
    align = ["---" if i == 0 or name == "note" else "---:" for i, name in enumerate(head)]
    lines = [head, align, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def us(spread: Spread | None) -> str:
    """Spell microseconds with their range."""
    return "-" if spread is None else f"{spread.middle:.1f} ({spread.low:.1f} to {spread.high:.1f})"


def ratio(of: Spread | None, to: Spread | None) -> float | None:
    """Return how much more the first costs than the second."""
    return None if of is None or to is None or not to.middle else of.middle / to.middle


def times(value: float | None) -> str:
    """Spell a ratio."""
    return "-" if value is None else f"{value:.2f}"


def entries_of(result: Json) -> dict[str, Entry]:
    """Return what was measured, by name."""
    return {e["name"]: Entry.from_json(e) for e in result["entries"]}


def _why_not(entry: Entry) -> str:
    if entry.missing:
        return entry.missing
    words = [entry.note] if entry.note else []
    if entry.failures:
        words.append(f"{len(entry.failures)} of its runs failed: {entry.failures[-1][:120]}")
    return "; ".join(words)


def _comparison(result: Json, *, extra: Callable[[str], list[str]], names: Sequence[str]) -> str:
    """Return one line for each generator, and how many times as much soak costs."""
    entries = entries_of(result)
    own = entries["soak"].cpu_us()
    rows = []
    for entry in entries.values():
        cost, rate = entry.cpu_us(), entry.rate()
        more = times(None if entry.name.startswith("soak") else ratio(own, cost))
        held = "-" if rate is None else f"{rate.middle:,.0f}"
        rows.append([entry.name, entry.model, us(cost), more, held, *extra(entry.name), _why_not(entry)])
    return table(["generator", "model", "CPU us/request", "soak / it", "req/s", *names, "note"], rows)


def verdict(value: float | None, limit: float) -> str:
    """Say whether a limit was met."""
    if value is None:
        return "not measured here"
    return "met" if value <= limit else "**missed**"


def targets(rows: Sequence[tuple[str, float | None, float]]) -> str:
    """Return measured values beside the limits they were to keep."""
    return table(
        ["target", "measured", "limit", "verdict"],
        [[name, times(value), f"{limit:g}", verdict(value, limit)] for name, value, limit in rows],
    )


def http1(result: Json) -> str:
    """Return table (a)."""
    even: Json = result["evenness"]

    def seen(name: str) -> list[str]:
        found = even.get(name)
        return ["-", "-"] if found is None else [f"{found['empty_share']:.0%}", str(found["most"])]

    entries = entries_of(result)
    own = entries["soak"].cpu_us()
    busy = next((e.cpu_us() for n, e in entries.items() if n.startswith("soak at")), None)

    def beside(name: str) -> float | None:
        return ratio(own, entries[name].cpu_us())

    goals: list[tuple[str, float | None, float]] = [
        ("soak / wrk (wrk saturated)", beside("wrk"), 2.0),
        ("soak / k6", beside("k6"), 0.35),
        ("soak / hey", beside("hey"), 0.5),
    ]
    both = times(ratio(busy, entries["wrk"].cpu_us()))
    together = next((e for n, e in entries.items() if n.startswith("soak --coalesce")), None)
    details = [d for d in entries["soak"].details if d]
    lost = sum(d["missed"] + d["dropped"] for d in details)
    slots = sum(d["scheduled"] for d in details)
    return "\n\n".join(
        [
            _comparison(result, extra=seen, names=["empty ms", "fullest ms"]),
            targets(goals),
            (
                f"Both as busy as they get (soak at 50,000 req/s, wrk saturated): {both} times wrk. "
                f"soak's lag p50 at {result['rate']:,} req/s: {_lag(entries['soak'])} ms; {lost:,} of {slots:,} slots were not sent."
            ),
            *([] if together is None else [_coalesced(together, entries)]),
        ]
    )


def _lag(entry: Entry) -> str:
    """Return the median of a generator's own lateness, in milliseconds."""
    found = [d["lag_ms"]["p50"] for d in entry.details if d]
    return f"{median(found):.3f}" if found else "-"


def _coalesced(entry: Entry, entries: Mapping[str, Entry]) -> str:
    """Say what a wake for each slot costs, and what lag it saves."""
    own = entry.cpu_us()
    beside = ", ".join(
        f"{times(found)} times {name}"
        for name in ("wrk", "hey", "k6")
        if name in entries and (found := ratio(own, entries[name].cpu_us())) is not None
    )
    return f"`{entry.name}`: {beside}, at a lag p50 of {_lag(entry)} ms."


def tls_new(result: Json) -> str:
    """Return table (d), handshakes."""
    entries = entries_of(result)

    def per_cpu_second(name: str) -> list[str]:
        cost = entries[name].cpu_us()
        return ["-" if cost is None else f"{1e6 / cost.middle:,.0f}"]

    return _comparison(result, extra=per_cpu_second, names=["handshakes / CPU s"])


def h2(result: Json) -> str:
    """Return table (d), HTTP/2."""
    entries = entries_of(result)

    def per_cpu_second(name: str) -> list[str]:
        cost = entries[name].cpu_us()
        return ["-" if cost is None else f"{1e6 / cost.middle:,.0f}"]

    details = [d for d in entries["soak"].details if d]
    lost = sum(d["missed"] + d["dropped"] for d in details)
    slots = sum(d["scheduled"] for d in details)
    text = _comparison(result, extra=per_cpu_second, names=["requests / CPU s"])
    return f"{text}\n\nsoak left {lost:,} of {slots:,} slots unsent." if details else text


def checks(result: Json) -> str:
    """Return table (f)."""
    entries = entries_of(result)
    full = entries["every check on"].cpu_us()
    rows = []
    for entry in entries.values():
        cost = entry.cpu_us()
        less = "-" if cost is None or full is None else f"{cost.middle - full.middle:+.1f}"
        rows.append([entry.name, us(cost), less, _why_not(entry)])
    return table(["variant", "CPU us/request", "difference", "note"], rows)


def scale(result: Json) -> str:
    """Return table (b)."""
    rows = []
    by_rate: dict[int, list[Json]] = {}
    for found in result["tries"]:
        by_rate.setdefault(found["rate"], []).append(found)
    for rate in sorted(by_rate):
        tries = by_rate[rate]
        best = min(tries, key=lambda t: t["missed"] + t["dropped"])
        rows.append(
            [
                f"{rate:,}",
                f"{sum(t['held'] for t in tries)} of {len(tries)}",
                f"{best['missed'] + best['dropped']:,}",
                f"{best['worker_cpu_share']:.0%}",
                f"{best['server_cpu_share']:.0%}",
                f"{best['cpu_us']:.1f}" if best["held"] else "-",
                f"{best['lag_ms']['p50']:.2f} / {best['lag_ms']['p99']:.2f}",
            ]
        )
    head = [
        "req/s",
        "runs without a lost slot",
        "slots lost in the best",
        "worker's core",
        "server's core",
        "CPU us/request",
        "lag p50 / p99 ms",
    ]
    goal = "met" if result["held"] >= 25_000 else "**missed**"
    return (
        f"{table(head, rows)}\n\nHeld without a lost slot: {result['held']:,} req/s (target 25,000: {goal})."
    )


def lab(result: Json) -> str:
    """Return table (c)."""
    runs = result["runs"]
    if not runs:
        return "No run came to its end."
    rows = [
        [
            str(i),
            r["verdict"],
            f"{r['sent']:,} of {r['scheduled']:,}",
            *(f"{r['lag_ms'][q]:.3f}" for q in ("p50", "p99")),
            *(f"{r['latency_ms'][q]:.2f}" for q in ("p50", "p99")),
        ]
        for i, r in enumerate(runs, 1)
    ]
    head = ["run", "verdict", "sent", "lag p50 ms", "lag p99 ms", "latency p50 ms", "latency p99 ms"]
    goals: list[tuple[str, float | None, float]] = [
        ("lag p50, ms (median of the runs)", median(r["lag_ms"]["p50"] for r in runs), 0.1),
        ("lag p99, ms (median of the runs)", median(r["lag_ms"]["p99"] for r in runs), 0.5),
    ]
    return f"{table(head, rows)}\n\n{targets(goals)}"


def memory(result: Json) -> str:
    """Return table (e)."""
    day, worker = result["day"], result["worker"]
    mib = 2**20
    rss = day["rss_bytes"]
    rows = [
        ["simulated", f"{day['seconds']:,} s x {day['classes']} classes, {day['requests']:,} requests"],
        [
            "daemon's share: RSS after one, twelve, all 24ths",
            ", ".join(f"{rss[i] / mib:.1f} MiB" for i in (0, 11, -1)),
        ],
        ["its slope after the first sixth", f"{day['rss_slope_bytes_per_h'] / mib:+.3f} MiB/h"],
        ["report of the whole", f"{day['report_s']:.2f} s (target 5 s: {verdict(day['report_s'], 5)})"],
        [
            "scrape, median and maximum",
            (
                f"{day['scrape_s_median'] * 1e3:.1f} ms, {day['scrape_s_max'] * 1e3:.1f} ms "
                f"(target 10 ms: {verdict(day['scrape_s_median'], 0.010)})"
            ),
        ],
        ["store", f"{day['store_bytes'] / mib:.0f} MiB"],
        [
            "cost of a second of five classes in ledger, metrics and store",
            f"{day['feed_us_per_second'] / 1e3:.2f} ms",
        ],
        [
            f"load worker, {worker['seconds']} s at {worker['rate']:,} req/s: first, last",
            f"{worker['rss_first_bytes'] / mib:.1f} MiB, {worker['rss_last_bytes'] / mib:.1f} MiB",
        ],
        ["its growth over the last two thirds", f"{worker['rss_growth_bytes'] / 1024:+.0f} KiB"],
    ]
    return table(["what", "measured"], rows)


RENDER: Mapping[str, Callable[[Json], str]] = {
    "http1": http1,
    "checks": checks,
    "scale": scale,
    "lab": lab,
    "tls-new": tls_new,
    "h2": h2,
    "memory": memory,
}


def machine(found: Json) -> str:
    """Say in a paragraph what was measured on."""
    versions = ", ".join(
        f"{name} {version}" for name, version in {**found["versions"], **found["peers"]}.items()
    )
    kind = "a virtual machine" if found["virtual"] else "a machine"
    first = "; servers and generators run before all other programs (SCHED_RR)" if found["realtime"] else ""
    return (
        f"Measured on {kind} with {found['cpus']} CPUs ({found['cpu_model']}), {found['memory_gib']} GiB, Linux "
        f"{found['kernel']} (TCP {found['tcp_congestion_control']}, idle driver {found['idle_driver']}), Python "
        f"{found['python']}; load average before it began: {found['load_average']}{first}. {versions}."
    )


def between(text: str, name: str, new: str) -> str:
    """Return the text with what stands between a section's markers replaced. Raises ``ValueError`` without markers."""
    begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"no {begin} ... {end} in the document")
    return f"{before}{begin}\n{new}\n{end}{after}"


def fill(document: str, results: Json) -> str:
    """Return the document with every table that the results have."""
    for name, result in results["rows"].items():
        document = between(document, name, RENDER[name](result["result"]))
    return between(document, "machine", machine(results["machine"]))
