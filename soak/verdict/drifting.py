"""Checks of slow change: memory, open files and processes of the proxy, and its p99 late against early."""

from __future__ import annotations

from collections.abc import Callable

from chaos.model import FaultOutcome
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
    whose, both = "p99", f.quarters.whole()
    slower = max(_slower_classes(f), default=(0.0, ""))
    if ratio <= limit and slower[0] <= limit:
        return Objective("p99_drift", measured, ratio, limit, "ratio")
    if ratio <= limit:  # a class that is slower as a whole, behind one whose p99 is larger anyway
        ratio, name = slower
        whose, both = f"p99 of class {name}", (f.quarters.first[name], f.quarters.last[name])
    first, last = (h.quantile_ns(0.99) / 1e6 for h in both)
    reason = f"{whose} rose from {first:.2f} ms in the first quarter to {last:.2f} ms in the last (x {ratio:.2f}, limit {limit:g})"
    return Objective("p99_drift", measured, ratio, limit, "ratio", Word.FAIL, reason, f.elapsed_s * 0.75)


def _slower_classes(f: RunFacts) -> list[tuple[float, str]]:
    """Return by how much each class got slower: p50 and p99 alike, so that its few slowest requests alone decide nothing."""
    return [
        (min(last.quantile_ns(q) / first.quantile_ns(q) for q in (0.5, 0.99)), name)
        for name, first, last in (f.quarters.classes() if f.quarters else ())
        if min(first.count, last.count) >= _LEAST_OF_CLASS and first.quantile_ns(0.5)
    ]


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
    ("rss_growth", rss_growth),
    ("fds_growth", fds_growth),
    ("processes_growth", processes_growth),
)
