"""What the proxy and the lab of a plan can do, and why not what they cannot: said to people before hour zero.

Adapters declare, the plan declares for a proxy of its own, and nothing is tried here. Faults and traffic classes that need more
are refused by ``soak.planrules``; what a preset asks for in vain is left out by ``soak.planfile``, never in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from chaos.fault import Fault
from soak.plan import Plan, TrafficClassPlan, format_duration
from soak.proxies.base import Capability, ProxyAdapter, SaysLimits, supported_by
from soak.proxies.catalog import adapter_of

MEANINGS: Mapping[str, str] = {
    "reload": "takes a new configuration while it serves",
    "cert_rotate": "takes a new certificate while it serves",
    "marker": "names its configuration on every answer, by which a reload is proven",
    "metrics": "counts for itself, on an endpoint of its own",
    "h2": "speaks HTTP/2 with clients",
    "websocket": "passes websockets on",
    "tcp": "passes bytes on unread",
    "backend_stop": "backends can be stopped, killed and started",
    "backend_pause": "backends can be suspended",
    "backend_partition": "backends can be taken off the network",
    "proxy_throttle": "the proxy's limits of CPU and memory can be changed",
}
"""What each ability is, as a clause after 'it'. One that is not here is shown by its name alone."""

_EVERYWHERE = frozenset({"backend_stop", "backend_pause"})
OF_LABS: Mapping[str, frozenset[str]] = {
    "local": _EVERYWHERE,
    "docker": _EVERYWHERE | {"backend_partition", "proxy_throttle"},
    "attach": _EVERYWHERE,
}
"""What each lab can do to its parts, whatever the proxy, by ``lab.kind``."""
EVERY_LAB_ABILITY = frozenset[str]().union(*OF_LABS.values())


@dataclass(frozen=True, slots=True)
class Ability:
    """One thing that a proxy or a lab can or cannot do."""

    name: str
    who: str
    """``proxy`` or ``lab``."""
    able: bool
    meaning: str
    note: str = ""
    """Why not; or, for what it can, in which way only in part."""


def abilities(plan: Plan, declared: frozenset[Capability] | None = None) -> list[Ability]:
    """Return all abilities, those of the proxy first. ``declared`` is what this very binary can, when it was asked."""
    adapter = adapter_of(plan.proxy)
    able = adapter.capabilities if declared is None else declared
    notes = adapter.limits if isinstance(adapter, SaysLimits) else {}
    of_proxy = [
        Ability(
            str(one),
            "proxy",
            one in able,
            MEANINGS[one],
            notes.get(one, "" if one in able else _undeclared(adapter, one)),
        )
        for one in Capability
    ]
    in_lab = _of_lab(plan)
    of_lab = [
        Ability(
            name,
            "lab",
            name in in_lab,
            MEANINGS.get(name, ""),
            "" if name in in_lab else _not_in(plan),
        )
        for name in sorted(EVERY_LAB_ABILITY | in_lab)
    ]
    return of_proxy + of_lab


def _not_in(plan: Plan) -> str:
    return (
        "it is a process of this host, and only containers can"
        if plan.lab.attach is not None
        else f"no {plan.lab.kind} lab can"
    )


def lacking(fault: Fault, plan: Plan) -> frozenset[str]:
    """Return what a fault needs and the proxy and lab of this plan cannot do."""
    return fault.needs - supported_by(adapter_of(plan.proxy)) - _of_lab(plan)


def needed_by(one: TrafficClassPlan) -> Capability | None:
    """Return what a traffic class needs of the proxy beside answering over HTTP/1.1."""
    if getattr(one, "through", "http") == "l4":
        return Capability.TCP
    return {"h2": Capability.H2, "websocket": Capability.WEBSOCKET}.get(one.protocol)


def unable(plan: Plan) -> Iterator[tuple[int, TrafficClassPlan, Capability]]:
    """Yield the traffic classes that the proxy cannot carry, with what each needs."""
    able = adapter_of(plan.proxy).capabilities
    for i, one in enumerate(plan.traffic.classes):
        needed = needed_by(one)
        if needed is not None and needed not in able:
            yield i, one, needed


def in_words(plan: Plan, found: Iterable[Ability]) -> Iterator[str]:
    """Yield lines for people: what each can, in one; then what it can only in part, and what it cannot, with the reason."""
    known = list(found)
    for who, name in (("proxy", plan.proxy.label), ("lab", f"the {plan.lab.kind} lab")):
        own = [one for one in known if one.who == who]
        able = ", ".join(sorted(one.name for one in own if one.able))
        yield f"{name} can {able or 'answer requests, and no more'}"
        yield from (f"{name} can {one.name}, but {one.note}" for one in own if one.able and one.note)
        yield from (f"{name} cannot {one.name}: {one.note}" for one in own if not one.able)


def warnings_of(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield what people must know of a plan before they start it: that nobody ran it, and what was left out of a preset."""
    if plan.proxy.command is not None and plan.proxy.command.untried:
        yield "untried", f"nobody has run this plan yet: {plan.proxy.command.untried}"
    yield from (("left out", one) for one in plan.left_out)


def why_not(plan: Plan, names: frozenset[str]) -> str:
    """Return who cannot do these, and why: ``bouine cannot reload (it reads its file once)``."""
    notes = {one.name: one.note for one in abilities(plan) if not one.able}
    told = [f"{name} ({notes[name]})" if notes.get(name) else name for name in sorted(names)]
    who = plan.proxy.label if names & set(Capability) else f"the {plan.lab.kind} lab"
    return f"{who} cannot {' and '.join(told)}"


@dataclass(frozen=True, slots=True)
class Misfits:
    """What of a plan its proxy and lab cannot do, by its place in the plan: a sentence each."""

    series: Mapping[int, str]
    classes: Mapping[int, str]


def misfits(plan: Plan, faults: Mapping[str, Fault]) -> Misfits:
    """Return the series and the traffic classes that this proxy and lab cannot do. Not all classes: then nothing is left."""
    series = {
        i: f"{one.fault} every {format_duration(one.every)} is left out: {why_not(plan, lacks)}"
        for i, one in enumerate(plan.chaos.series)
        if one.fault in faults and (lacks := lacking(faults[one.fault], plan))
    }
    classes = {
        i: f"traffic class {one.name} is left out: {why_not(plan, frozenset({str(needed)}))}"
        for i, one, needed in unable(plan)
    }
    return Misfits(series, {} if len(classes) == len(plan.traffic.classes) else classes)


def _undeclared(adapter: ProxyAdapter, one: Capability) -> str:
    return f"{adapter.name} has none that soak knows" if one is Capability.METRICS else "not declared"


def _of_lab(plan: Plan) -> frozenset[str]:
    if plan.lab.attach is not None:
        return plan.lab.attach.abilities
    return OF_LABS.get(plan.lab.kind, EVERY_LAB_ABILITY)
