"""The rules of a plan that need the catalog of faults: names, targets, holds, and how many there may be.

Pure: takes a valid ``Plan``, yields sentences. Wording the place of each is ``soak.planfile``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chaos.fault import Fault, TargetKind, refused_params
from chaos.faults.catalog import CatalogError, registry
from chaos.model import FaultShape
from chaos.timeline import Series, Timeline, plan_timeline
from soak.abilities import lacking, unable, why_not
from soak.errors import PlanError, nearest
from soak.labrules import broken_lab_rules
from soak.plan import FaultSeriesPlan, Plan, format_duration
from soak.proxies.base import Capability, supported_by
from soak.proxies.catalog import adapter_of, adapters
from soak.yamlfile import KeyPath

MIN_PERIOD_S = 1.0
MAX_INSTANCES = 100_000
"""Fault instances of one run: each is a record, a journal entry and a line of the report."""
LARGEST_HOLD_SHARE = 0.5
"""A default hold takes at most this share of the period, so that traffic can recover before the next one."""

PROXY_TARGET = "proxy"


def known_faults() -> Mapping[str, Fault]:
    """Return every fault by name. Raises ``PlanError`` for a file among them that defines none, as whoever adds one may find."""
    try:
        return registry()
    except CatalogError as error:
        raise PlanError(str(error)) from error


def known_targets(fault: Fault, plan: Plan) -> tuple[str, ...]:
    """Return the names that a fault of this plan may be aimed at; empty when it aims at nothing."""
    if fault.target_kind is TargetKind.BACKEND:
        return tuple(f"b{n}" for n in range(1, plan.lab.backends + 1))
    return (PROXY_TARGET,) if fault.target_kind is TargetKind.PROXY else ()


def timeline_of(plan: Plan) -> Timeline:
    """Return the whole timeline of a plan: what the daemon will run and what ``soak plan`` shows."""
    faults = known_faults()
    series = [
        Series(
            one.fault,
            one.every,
            one.hold,
            one.targets or known_targets(faults[one.fault], plan),
            one.first,
            one.jitter,
            one.params,
        )
        for one in plan.chaos.series
    ]
    return plan_timeline(series, length_s=plan.length, seed=plan.seed, gap_s=plan.chaos.gap)


def fill_holds(plan: Plan) -> Plan:
    """Return the plan with a hold for every disturbance that names none: its default, at most half its period."""
    faults = known_faults()
    series = tuple(
        one.model_copy(update={"hold": default_hold(faults[one.fault], one.every)})
        if one.hold == 0 and faults[one.fault].shape is FaultShape.FAULT
        else one
        for one in plan.chaos.series
    )
    return plan.model_copy(update={"chaos": plan.chaos.model_copy(update={"series": series})})


def default_hold(fault: Fault, every_s: float) -> float:
    """Return how long a fault holds in seconds when the plan does not say."""
    return round(min(fault.default_hold_s, every_s * LARGEST_HOLD_SHARE), 3)


def broken_rules(plan: Plan) -> Iterator[tuple[KeyPath, str]]:
    """Yield the key path and a sentence for each rule that the plan breaks."""
    if plan.rate * plan.length < 1:
        yield (
            ("rate",),
            (
                f"rate: {plan.rate:g} a second over {format_duration(plan.length)} is less than one request; "
                "raise the rate or the length"
            ),
        )
    if plan.proxy.kind not in adapters():
        yield (
            ("proxy", "kind"),
            f"proxy.kind: {plan.proxy.kind!r} is not known{nearest(plan.proxy.kind, adapters())}",
        )
        return
    yield from _traffic_rules(plan)
    yield from broken_lab_rules(plan)
    for i, one, needed in unable(plan):
        if needed is Capability.TCP:
            continue  # told by its own rule
        lacks = why_not(plan, frozenset({str(needed)}))
        yield (
            ("traffic", "classes", i),
            f"traffic.classes[{i}]: {one.name} needs {needed}, and {lacks}; remove the class",
        )
    for i, series in enumerate(plan.chaos.series):
        path: KeyPath = ("chaos", "series", i)
        fault = known_faults().get(series.fault)
        if fault is None:
            yield (
                (*path, "fault"),
                f"chaos.series[{i}].fault: there is no fault {series.fault!r}{nearest(series.fault, known_faults())}",
            )
        else:
            yield from _series_rules(plan, fault, series, path)
    instances = sum(plan.length / s.every for s in plan.chaos.series)
    if instances > MAX_INSTANCES:
        yield (
            ("chaos", "series"),
            (
                f"chaos.series: it asks for {instances:,.0f} faults in {format_duration(plan.length)}, at most "
                f"{MAX_INSTANCES:,} can be run and reported; make the periods longer"
            ),
        )


def _traffic_rules(plan: Plan) -> Iterator[tuple[KeyPath, str]]:
    for i, one in enumerate(plan.traffic.classes):
        if one.through == "l4" and Capability.TCP not in adapter_of(plan.proxy).capabilities:
            yield (
                ("traffic", "classes", i, "through"),
                (
                    f"traffic.classes[{i}]: {one.name} goes through l4, a byte pipe, which {plan.proxy.kind} does not have; "
                    "remove the class"
                ),
            )


def _series_rules(
    plan: Plan, fault: Fault, series: FaultSeriesPlan, path: KeyPath
) -> Iterator[tuple[KeyPath, str]]:
    where = f"chaos.series[{path[-1]}]"
    if lacks := lacking(fault, plan):
        needed = ", ".join(sorted(lacks))
        yield (
            (*path, "fault"),
            f"{where}.fault: {fault.name} needs {needed}, and {why_not(plan, lacks)}; remove it",
        )
    elif refusal := refused_params(fault, series.params, supported_by(adapter_of(plan.proxy)).__contains__):
        yield ((*path, "params"), f"{where}.params: {refusal}")
    if series.every < MIN_PERIOD_S:
        yield (
            (*path, "every"),
            f"{where}.every: {format_duration(series.every)} must be at least 1s, or nothing can recover in between",
        )
    if series.hold and fault.shape is FaultShape.TRANSITION:
        yield (
            (*path, "hold"),
            (
                f"{where}.hold: {fault.name} is a change without a way back and cannot hold for "
                f"{format_duration(series.hold)}; remove the hold"
            ),
        )
    if series.jitter and series.hold + 2 * series.jitter >= series.every:
        yield (
            (*path, "jitter"),
            (
                f"{where}.jitter: {format_duration(series.jitter)} either way with a hold of {format_duration(series.hold)} "
                f"lets one {fault.name} run into the next, every {format_duration(series.every)}; make it shorter"
            ),
        )
    if fault.takes_backend_away and plan.lab.backends < 2:
        yield (
            (*path, "fault"),
            (
                f"{where}.fault: {fault.name} takes a backend away and lab.backends is {plan.lab.backends}; "
                "one must remain, so give the lab at least 2"
            ),
        )
    targets = known_targets(fault, plan)
    for j, target in enumerate(series.targets):
        if target not in targets:
            known = nearest(target, targets) if targets else "; it aims at nothing, remove targets"
            yield (
                (*path, "targets", j),
                f"{where}.targets[{j}]: {fault.name} has no target {target!r}{known}",
            )
