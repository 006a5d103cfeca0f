"""What both readable reports say, as plain cells: the summary lines and the table of faults. Pure, from the report's dict."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from soak.report.numbers import count, instant, length, mebibytes, millis, percent, seconds

Report = Mapping[str, Any]
FAULT_HEAD = ("fault", "n", "verified", "lost", "effect or recovery, p50 / max", "worst")
_OWN_JUDGED_S = 300.0
_FLAT_BYTES = 1024 * 1024
_HOUR_S = 3600.0
_OURS = ("ok", "client_resource")
_BUDGETED = ("stale_reuse", "tls_not_resumed")
"""Outcomes that have objectives of their own, so that they are not counted as steady failures."""


def headline(report: Report) -> str:
    """Return ``nginx 1.31.3 · local lab · 1,000 req/s for 24 h · seed 7 · run ID``."""
    run = report["run"]
    proxy = " ".join(str(run[k]) for k in ("proxy", "proxy_version") if run.get(k))
    ran = length(run["seconds"])
    if run["seconds"] < run["length_s"] - 1:
        ran += f" of {length(run['length_s'])}"
    parts = [
        proxy or "unknown proxy",
        f"{run['lab']} lab" if run.get("lab") else "",
        f"{count(run.get('rate'))} req/s for {ran}",
        f"seed {run['seed']}" if run.get("seed") is not None else "",
        f"run {run['id']}" if run.get("id") else "",
    ]
    return " · ".join(p for p in parts if p)


def summary(report: Report) -> list[tuple[str, str, str]]:
    """Return (name, figure, words) for rate, failures, steady state and latency."""
    load, phases = report["load"], report["phases"]
    ended = load["ok"] + load["failed"]
    held = load["sent"] / load["scheduled"] if load["scheduled"] else None
    steady = phases["steady"]
    budgeted = {o: n for o in _BUDGETED if (n := steady["outcomes"].get(o, 0))}
    lost = steady["failed"] - sum(budgeted.values())
    beside = "".join(f" · {count(n)} {o}" for o, n in budgeted.items())
    q, lag = load["latency_ms"], load["lag_ms"]
    sent = f"{count(load['sent'])} of {count(load['scheduled'])} sent"
    return [
        (
            "rate held",
            percent(held),
            f"{sent} · {count(load['dropped'])} dropped · {count(load['missed'])} missed",
        ),
        ("failures", percent(load["failed"] / ended if ended else None), failures(load)),
        ("steady state", f"{count(lost)} failures in {count(steady['sent'])} requests{beside}", ""),
        (
            "latency",
            f"p50 {millis(q['p50'])} · p99 {millis(q['p99'])} · p99.9 {millis(q['p999'])} · max {millis(q['max'])}",
            f"lag p99 {millis(lag['p99'])}",
        ),
    ]


def failures(load: Report) -> str:
    """Return ``181: 176 stale_reuse, 5 status_5xx``."""
    words = ", ".join(
        f"{count(n)} {o}" for o, n in sorted(load["outcomes"].items(), key=lambda x: -x[1]) if o != "ok"
    )
    return f"{count(load['failed'])}: {words}" if words else count(load["failed"])


def fault_rows(report: Report) -> list[tuple[str, ...]]:
    """Return a row for each kind of fault, in order of appearance; heads in ``FAULT_HEAD``."""
    kinds: dict[str, list[Report]] = {}
    for fault in report["faults"]:
        kinds.setdefault(_named(fault), []).append(fault)
    return [_fault_row(kind, faults) for kind, faults in kinds.items()]


def _named(fault: Report) -> str:
    """Return the kind of a fault; of a reload that was not a full one, how much was reloaded."""
    partly = fault.get("reload") not in (None, "full")
    return f"{fault['kind']} ({fault['reload']})" if partly else fault["kind"]


def _fault_row(kind: str, faults: Sequence[Report]) -> tuple[str, ...]:
    ran = [f for f in faults if f["outcome"] != "skipped"]
    skipped = len(faults) - len(ran)
    times = [t for f in ran if (t := _took(f)) is not None]
    figures = f"{seconds(statistics.median(times))} / {seconds(max(times))}" if times else "-"
    return (
        kind,
        count(len(ran)) + (f" (+{skipped} skipped)" if skipped else ""),
        count(sum(f["outcome"] == "verified" for f in ran)),
        count(sum(_lost(f) for f in ran)),
        figures,
        _worst(ran),
    )


def _took(fault: Report) -> float | None:
    took = fault["effect_s"] if fault["shape"] == "transition" else fault["recovery_s"]
    return None if took is None else float(took)


def _lost(fault: Report) -> int:
    return sum(n for o, n in fault["outcomes"].items() if o not in _OURS)


def _worst(faults: Sequence[Report]) -> str:
    """Name the fault that was not verified, else the one that lost most; ``-`` when none lost anything."""
    wrong = [f for f in faults if f["outcome"] not in ("verified", None)]
    if wrong:
        return f"{_name(wrong[0])}: {wrong[0]['outcome']}"
    worst = max(faults, key=_lost, default=None)
    if worst is None or not _lost(worst):
        return "-"
    lost = {o: n for o, n in worst["outcomes"].items() if o not in _OURS}
    words = ", ".join(f"{count(n)} {o}" for o, n in sorted(lost.items(), key=lambda x: -x[1])[:2])
    return f"{_name(worst)}: {words}"


def _name(fault: Report) -> str:
    at_s = fault["planned_s"] if fault["injected_s"] is None else fault["injected_s"]
    return f"#{fault['id']} at {instant(at_s)}"


CLASS_HEAD = ("class", "sent", "failed", "p50", "p99", "p99.9", "max")


def class_rows(report: Report) -> list[tuple[str, ...]]:
    """Return a row for each traffic class; heads in ``CLASS_HEAD``."""
    return [
        (
            name,
            count(c["sent"]),
            failures(c),
            *(millis(c["latency_ms"][key]) for key in ("p50", "p99", "p999", "max")),
        )
        for name, c in report["load"]["classes"].items()
    ]


def origins(report: Report) -> list[tuple[str, str]]:
    """Return (name, words) for what only the backends know: their shares, and what a cache let through."""
    lines = []
    counted = {n: o for n, o in report["origins"].items() if o["requests"] is not None}
    if counted:
        shares = " · ".join(f"{name} {percent(o['share'])}" for name, o in counted.items())
        lines.append(
            ("backends", f"{shares} of {count(sum(o['requests'] for o in counted.values()))} requests")
        )
    if (cache := report["cache"]) is not None:
        words = (
            f"hit ratio {percent(cache['hit_ratio'])}: {count(cache['origin_answers'])} of "
            f"{count(cache['requests'])} requests reached a backend, {count(cache['revalidated'])} to revalidate"
        )
        lines.append(("cache", words))
    return lines


def drift(report: Report) -> str:
    """Return one line on p99, memory, files and old workers."""
    parts = []
    if (ratio := report["drift"]["p99_ratio"]) is not None:
        parts.append(f"p99 last quarter / first {ratio:.2f}")
    long = report["run"]["seconds"] >= _HOUR_S
    for key, name in (("rss_bytes", "RSS"), ("fds", "files"), ("processes", "processes")):
        vital = report["vitals"][key]
        if vital["slope_per_h"] is not None:
            parts.append(f"{name} {_slope(key, vital, long=long)}")
    if (old := report["drift"]["old_processes"]) is not None:
        parts.append(f"old workers {old}")
    return " · ".join(parts) or "not observed"


def _slope(key: str, vital: Report, *, long: bool) -> str:
    """Return growth per hour with its significance; of a run too short for a slope, where it began and ended."""
    first, last = vital["first"], vital["last"]
    if round(last - first, 1) == 0 and (not vital["significant"] or vital["slope_per_h"] == 0):
        return "flat"
    if not long:
        return (
            f"{mebibytes(first)} to {mebibytes(last)}" if key == "rss_bytes" else f"{first:.0f} to {last:.0f}"
        )
    slope = vital["slope_per_h"]
    grows = f"{slope / 1024**2:+.1f} MiB/h" if key == "rss_bytes" else f"{slope:+.1f}/h"
    return grows if vital["significant"] else f"{grows}, not significant"


def itself(report: Report) -> str:
    """Return one line on the load workers, and on the seconds in which soak was unwell."""
    me, unwell = report["self"], report["unwell"]
    parts = []
    if me["cores"] is not None:
        parts.append(f"{percent(me['cores'])} of a core")
    parts.append(f"{mebibytes(me['rss_bytes'])}{_own_growth(me['processes'], report['run']['seconds'])}")
    if me["cpu_us_per_request"] is not None:
        parts.append(f"{me['cpu_us_per_request']:.0f} µs CPU a request")
    if unwell.get("starved_seconds"):
        parts.append(f"host starved the lab for {count(unwell['starved_seconds'])} s")
    if me.get("realtime") is False:
        parts.append("no real-time priority")
    if unwell["seconds"]:
        set_apart = f"; {count(unwell['failed'])} failures in them set apart" if unwell["failed"] else ""
        parts.append(f"unwell in {count(unwell['seconds'])} s ({percent(unwell['share'])}){set_apart}")
    parts.append(f"store {mebibytes(me['store_bytes'])}")
    return " · ".join(parts)


def _own_growth(processes: Report, seconds: float) -> str:
    """Say whether soak's own memory stayed flat: within 1 MiB from the first minute to the end; else what grew."""
    if seconds < _OWN_JUDGED_S:
        return ""
    grown = {
        name: p["rss_bytes"]["last"] - p["rss_bytes"]["first"]
        for name, p in processes.items()
        if p is not None
    }
    grown = {name: by for name, by in grown.items() if by >= _FLAT_BYTES}
    return f" ({', '.join(f'{n} +{mebibytes(by)}' for n, by in grown.items())})" if grown else ", flat"
