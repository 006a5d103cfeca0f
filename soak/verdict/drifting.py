"""Checks of slow change: memory, open files and processes of the proxy, and its p99 late against early."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import pairwise

from chaos.model import FaultOutcome
from soak.measure.histogram import Histogram
from soak.model import Vital
from soak.plan import format_duration
from soak.verdict.drift import Trend, trend_of
from soak.verdict.facts import RunFacts
from soak.verdict.objectives import NotJudged, Objective, Word

_WARM_UP_S = 600.0
_OWN_WARM_UP_S = 60.0
_MIB = 1024 * 1024
_LEAST_OF_CLASS = 1000
_LEAST_RELOADS = 12
_LEAST_CORES = 0.05

VITALS: dict[str, Callable[[Vital], float]] = {
    "rss_bytes": lambda v: v.rss_bytes,
    "fds": lambda v: v.fds,
    "processes": lambda v: v.processes,
}
"""What is looked at in a proxy's vitals, by its key in the report."""


def trends(f: RunFacts) -> dict[str, Trend | None]:
    """Return the trend of each vital of the proxy, its warm-up (10 min, at most a tenth of the run) left out.

    A look that found no process measured nothing: the dead hold no memory.
    """
    reloads_s = sorted(
        x.active_s
        for x in f.faults
        if f.is_transition(x.kind) and x.outcome is FaultOutcome.VERIFIED and x.active_s is not None
    )
    warm_up_s = min(_WARM_UP_S, f.elapsed_s / 10)
    return {
        key: trend_of(
            [(v.at_s, read(v)) for v in f.vitals if v.processes and not f.stretches.covers(int(v.at_s))],
            reloads_s=reloads_s,
            warm_up_s=warm_up_s,
        )
        for key, read in VITALS.items()
    }


def own_trends(f: RunFacts) -> dict[str, Trend | None]:
    """Return the trend of resident memory of the daemon and of each load worker, its first minute left out."""
    warm_up_s = min(_OWN_WARM_UP_S, f.elapsed_s / 4)
    return {
        subject: trend_of([(v.at_s, float(v.rss_bytes)) for v in vitals if v.processes], warm_up_s=warm_up_s)
        for subject, vitals in sorted(f.own_vitals.items())
    }


def p99_ratio(f: RunFacts) -> float | None:
    """Return p99 of the last quarter over that of the first; None when either is empty or the run was too short."""
    if f.quarters is None:
        return None
    first, last = f.quarters.whole()
    return last.quantile_ns(0.99) / early if (early := first.quantile_ns(0.99)) and last.count else None


def _too_short(f: RunFacts, name: str) -> NotJudged | None:
    after_s = f.objectives.drift_after
    if f.elapsed_s >= after_s:
        return None
    ran = format_duration(float(int(f.elapsed_s)))
    return NotJudged(name, f"the run lasted {ran}; drift is judged from {format_duration(after_s)} on")


def p99_drift(f: RunFacts) -> Objective | NotJudged:
    """Judge that requests are not slower at the end than at the beginning."""
    if short := _too_short(f, "p99_drift"):
        return short
    ratio, limit = p99_ratio(f), f.objectives.p99_drift
    if ratio is None or f.quarters is None:
        return NotJudged("p99_drift", "a quarter of the run has no requests")
    measured = "p99 of the last quarter / first quarter"
    slower = max(_slower_classes(f), default=(0.0, ""))
    whole = ratio > limit and f.quarters.slower()
    if ratio > limit and not whole:
        measured += f" ({ratio:.2f}, for a few bad seconds alone: such as the first quarter had, too)"
    if not whole and slower[0] <= limit:
        return Objective("p99_drift", measured, min(ratio, limit), limit, "ratio")
    if whole:
        what = f"p99 rose{_rise(*f.quarters.whole(), 0.99)}"
    else:  # a class that is slower as a whole, behind one whose p99 is larger anyway
        ratio, name = slower
        both = f.quarters.first[name], f.quarters.last[name]
        what = f"class {name} got slower: p50 rose{_rise(*both, 0.5)}, p99{_rise(*both, 0.99)}"
    reason = f"{what} (x {ratio:.2f}, limit {limit:g})"
    return Objective("p99_drift", measured, ratio, limit, "ratio", Word.FAIL, reason, f.elapsed_s * 0.75)


def _rise(first: Histogram, last: Histogram, q: float) -> str:
    return f" from {first.quantile_ns(q) / 1e6:.2f} ms in the first quarter to {last.quantile_ns(q) / 1e6:.2f} ms in the last"


def _slower_classes(f: RunFacts) -> list[tuple[float, str]]:
    """Return by how much each class got slower: p50 and p99 alike, so that its few slowest requests alone decide nothing."""
    return [
        (min(last.quantile_ns(q) / first.quantile_ns(q) for q in (0.5, 0.99)), name)
        for name, first, last in (f.quarters.classes() if f.quarters else ())
        if min(first.count, last.count) >= _LEAST_OF_CLASS and first.quantile_ns(0.5)
    ]


def cpu_drift(f: RunFacts) -> Objective | NotJudged:
    """Judge that the proxy needs no more processor time at the end for the same rate: a worker that spins answers all the same."""
    if short := _too_short(f, "cpu_drift"):
        return short
    cores = [
        (new.at_s, max(0.0, new.cpu_s - old.cpu_s) / (new.at_s - old.at_s))
        for old, new in pairwise(v for v in f.vitals if v.processes)
        if new.at_s > old.at_s and not f.stretches.overlap_s(old.at_s, new.at_s)
    ]
    first = [c for at_s, c in cores if at_s <= f.elapsed_s / 4]
    last = [c for at_s, c in cores if at_s > f.elapsed_s * 0.75]
    if not first or not last:
        return NotJudged("cpu_drift", "in a quarter of the run nobody looked at the proxy")
    early, late, limit = statistics.median(first), statistics.median(last), f.objectives.cpu_drift
    ratio = late / early if early > 0 else 1.0
    measured = "median processor time of the proxy, last quarter / first quarter"
    if ratio <= limit or late - early < _LEAST_CORES:
        return Objective("cpu_drift", measured, min(ratio, limit), limit, "ratio")
    reason = (
        f"the proxy used {early:.2f} cores in the first quarter and {late:.2f} in the last, at the same rate of requests "
        f"(x {ratio:.2f}, limit {limit:g})"
    )
    return Objective("cpu_drift", measured, ratio, limit, "ratio", Word.FAIL, reason, f.elapsed_s * 0.75)


def _growth(
    f: RunFacts, key: str, name: str, limit: float, measure: Callable[[Trend], tuple[float, str]]
) -> Objective | NotJudged:
    if short := _too_short(f, name):
        return short
    trend = trends(f)[key]
    if trend is None:
        return NotJudged(name, "the proxy was never looked at")
    value, words = measure(trend)
    measured = f"growth per hour ({'significant' if trend.significant else 'not significant'}, p = {trend.p_value:.2g})"
    if not trend.grows or value <= limit:
        return Objective(name, measured, value, limit, "per_h")
    per = "" if trend.slope_per_reload is None else f", {_number(key, trend.slope_per_reload)} per reload"
    reason = f"{words} (limit {limit:g}){per}; from {_number(key, trend.first)} to {_number(key, trend.last)}"
    return Objective(name, measured, value, limit, "per_h", Word.FAIL, reason)


def _number(key: str, value: float) -> str:
    return f"{value / _MIB:.2f} MiB" if key == "rss_bytes" else f"{value:.1f}"


def rss_growth(f: RunFacts) -> Objective | NotJudged:
    """Judge that the proxy's memory does not grow."""

    def measure(t: Trend) -> tuple[float, str]:
        share = t.lasting_per_h / t.first if t.first else 0.0
        return (
            share,
            f"the proxy's memory grew by {share:.1%} ({_number('rss_bytes', t.lasting_per_h)}) per hour",
        )

    return _growth(f, "rss_bytes", "rss_growth", f.objectives.rss_growth_per_h, measure)


def fds_growth(f: RunFacts) -> Objective | NotJudged:
    """Judge that the proxy's open files do not grow."""
    hourly = _growth(
        *(f, "fds", "fds_growth", f.objectives.fds_growth_per_h),
        measure=lambda t: (t.lasting_per_h, f"the proxy's open files grew by {t.lasting_per_h:.1f} per hour"),
    )
    if isinstance(hourly, NotJudged) or not hourly.ok:
        return hourly
    trend, limit = trends(f)["fds"], f.objectives.fds_growth_per_reload
    reloads = sum(x.outcome is FaultOutcome.VERIFIED and f.is_transition(x.kind) for x in f.faults)
    each = None if trend is None else trend.slope_per_reload
    if trend is None or each is None or reloads < _LEAST_RELOADS or not trend.grows or each <= limit:
        return hourly
    reason = (
        f"the proxy's open files grew by {each:.1f} per reload or rotation (limit {limit:g}), "
        f"{trend.lasting_per_h:.1f} per hour; from {trend.first:.0f} to {trend.last:.0f}"
    )
    return Objective(
        "fds_growth", "growth per reload or rotation", each, limit, "per_reload", Word.FAIL, reason
    )


def processes_growth(f: RunFacts) -> Objective | NotJudged:
    """Judge that the proxy's processes do not pile up."""
    return _growth(
        *(f, "processes", "processes_growth", f.objectives.processes_growth_per_h),
        measure=lambda t: (t.lasting_per_h, f"the proxy's processes grew by {t.lasting_per_h:.1f} per hour"),
    )


CHECKS: tuple[tuple[str, Callable[[RunFacts], Objective | NotJudged]], ...] = (
    ("p99_drift", p99_drift),
    ("cpu_drift", cpu_drift),
    ("rss_growth", rss_growth),
    ("fds_growth", fds_growth),
    ("processes_growth", processes_growth),
)
