"""What happened to the lab that no fault asked for, as events of the run tell it, and the checks of it.

A proxy that ended has failed even when whoever supervises it hid that from traffic, and so has one of whose workers one ended and its
master replaced it (``soak.workerwatch`` tells which). A backend that ended is the lab's own
trouble: what fails afterwards excuses the proxy and takes nothing from a pass, as a starved host does. So is a container engine
that goes away and, when it is back, has ended what it ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any

from soak.model import Event, Unwell
from soak.store import StoreReader
from soak.verdict.objectives import NotJudged, Objective, Word, clock, label

if TYPE_CHECKING:
    from chaos.model import FaultRecord
    from soak.verdict.facts import RunFacts

_PROXY_ENDED = ("proxy.died", "proxy.oom", "proxy.removed")
_WORKERS_KNOWN, _WORKER_DIED = "proxy.workers_known", "proxy.worker_died"
_WORKERS_NAMED = 3
_BACKEND_ENDED = ("origin.died", "origin.oom", "origin.removed")
_PROBE_FAILED = "probe.failed"
_PROXY = "proxy"
_AFTER_S = 5.0
"""Looks at the proxy come so far apart."""
_ENGINE_AWAY, _ENGINE_BACK = "engine.away", "engine.back"
_BEFORE_S, _ALONG_S = 15.0, 30.0
"""So long before an engine is seen to be away, and after it is back, what ends is what it took along: one that shuts down ends what it
runs first, one that was killed does so when it is back, and an end is seen by a look every few seconds."""


@dataclass(frozen=True, slots=True)
class Happenings:
    """Events that are judged, in order of time."""

    proxy_ended: Sequence[Event] = ()
    backend_ended: Sequence[Event] = ()
    workers_known: bool = False
    """Whether the workers of the proxy were told apart."""
    workers_ended: Sequence[Event] = ()
    bad_certificates: Sequence[Event] = ()
    """Fresh handshakes in which the prober met a certificate that does not verify."""
    engine_away: Sequence[tuple[float, float]] = ()
    """From when to when the container engine did not answer; infinity: to the end."""

    def taken_along(self, event: Event) -> bool:
        """Whether the engine took it along: it ended while that was away, or just before or after that."""
        return any(a - _BEFORE_S <= event.at_s <= b + _ALONG_S for a, b in self.engine_away)


def happenings_of(reader: StoreReader) -> Happenings:
    """Read them; what happened before hour zero ended the run by itself, or did not matter."""
    return Happenings(
        proxy_ended=_named(reader, _PROXY_ENDED),
        backend_ended=_named(reader, _BACKEND_ENDED),
        workers_known=any(True for _ in reader.events(_WORKERS_KNOWN)),
        workers_ended=_named(reader, (_WORKER_DIED,)),
        bad_certificates=[
            e for e in reader.events(_PROBE_FAILED) if e.data.get("stage") == "certificate" and _at_s(e) >= 0
        ],
        engine_away=_outages(_named(reader, (_ENGINE_AWAY, _ENGINE_BACK))),
    )


def _outages(events: Sequence[Event]) -> list[tuple[float, float]]:
    """Pair what an engine's watch told, once each and in turn."""
    ends = [e.at_s for e in events if e.name == _ENGINE_BACK]
    return [
        (e.at_s, next((at_s for at_s in ends if at_s >= e.at_s), inf))
        for e in events
        if e.name == _ENGINE_AWAY
    ]


def _named(reader: StoreReader, names: Sequence[str]) -> list[Event]:
    return sorted((e for name in names for e in reader.events(name) if e.at_s >= 0), key=lambda e: e.at_s)


def _at_s(event: Event) -> float:
    return float(event.data.get("at_s", event.at_s))


def bereft(happened: Happenings, until_s: float) -> list[Unwell]:
    """Return the stretches that are the lab's own trouble, each to the end of the run: nobody brings back for sure what ended.

    From the first unasked end of a backend, and from an engine's going away when that took the proxy along.
    """
    found: list[Unwell] = []
    if first := next((e for e in happened.backend_ended if e.at_s < until_s), None):
        name = first.data.get("name", "?")
        what = f"backend {name} ended although no fault asked for it ({_how(first.data)})"
        found.append(Unwell(first.at_s, until_s, what))
    if taken := next((e for e in happened.proxy_ended if happened.taken_along(e)), None):
        away_s = min((a for a, _ in happened.engine_away), key=lambda a: abs(a - taken.at_s))
        if (from_s := min(away_s, taken.at_s)) < until_s:
            what = f"the container engine went away at {clock(away_s)} and took the proxy along"
            found.append(Unwell(from_s, until_s, what))
    return found


def _how(data: Any) -> str:
    return str(data.get("how") or "nobody saw how")


def _asked_for(f: RunFacts, at_s: float) -> bool:
    """Whether a fault was taking something from the proxy itself, such as the memory that it then died for want of."""
    return any(
        x.target in ("", _PROXY)
        and not f.is_transition(x.kind)
        and x.injected_s is not None
        and x.injected_s <= at_s <= (at_s if x.reverted_s is None else x.reverted_s + _AFTER_S)
        for x in f.faults
    )


def proxy_alive(f: RunFacts) -> Objective | NotJudged:
    """Judge that the proxy never ended unasked, and that its first process was the same from the first look to the last."""
    measured = "ends of the proxy that nobody asked for"
    seen = [v for v in f.vitals if 0 <= v.at_s <= f.elapsed_s]
    found = [
        (e.at_s, f"{e.data.get('name', 'the proxy')} ended at {clock(e.at_s)}: {_how(e.data)}")
        for e in f.happened.proxy_ended
        if e.at_s <= f.elapsed_s and not f.happened.taken_along(e) and not _asked_for(f, e.at_s)
    ]
    if not found and not seen:
        return NotJudged("proxy_alive", "the proxy was never looked at")
    if not found and not f.happened.proxy_ended:  # an end that was told explains these
        found += [
            (new.at_s, f"its first process was {was} and is {now} since {clock(new.at_s)}")
            for old, new in pairwise(v for v in seen if v.processes)
            if (was := old.detail.get("pid")) != (now := new.detail.get("pid"))
            and not _asked_for(f, new.at_s)
        ]
    if not found:
        return Objective("proxy_alive", measured, 0, 0, "times")
    at_s, words = min(found)
    more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
    return Objective(
        "proxy_alive", measured, len(found), 0, "times", Word.FAIL, words.replace("\n", " ") + more, at_s
    )


def workers_kept(f: RunFacts) -> Objective | NotJudged:
    """Judge that no worker ended unasked, though another one took its place. Hunger and illness of soak's end none."""
    name, measured = "workers_kept", "workers of the proxy that ended although nothing had asked for it"
    ended, limit = f.happened.workers_ended, f.objectives.workers_kept
    if not f.happened.workers_known and not ended:
        return NotJudged(name, "nobody can tell the workers of this proxy apart")
    n = sum(int(e.data["workers"]) for e in ended)
    if n <= limit:
        return Objective(name, measured, n, limit, "processes")
    from_s, to_s = (float(ended[0].data[key]) for key in ("from_s", "to_s"))
    last = _begun_before(f, from_s)
    replaced = sum(int(e.data.get("replaced", 0)) for e in ended)
    named = [words for e in ended[:_WORKERS_NAMED] for words in _ends_of(e.data)][:_WORKERS_NAMED]
    if n > len(named):
        named.append(f"and {n - len(named)} more, the last until {clock(float(ended[-1].data['to_s']))}")
    after = "" if last is None else f"; first {to_s - (last.injected_s or 0.0):.0f} s after {label(last)}"
    reason = f"{n} of the proxy's workers ended unasked ({replaced} replaced, limit {limit}): {'; '.join(named)}{after}"
    fault = None if last is None else last.id
    evidence = () if fault is None else (str(fault),)
    return Objective(name, measured, n, limit, "processes", Word.FAIL, reason, to_s, fault, evidence)


def _ends_of(data: Mapping[str, Any]) -> list[str]:
    """Return words for each worker that one event names."""
    when = f"between {clock(float(data['from_s']))} and {clock(float(data['to_s']))}"
    how = data.get("how", {})
    return [f"pid {pid} {when}" + (f" ({how[str(pid)]})" if str(pid) in how else "") for pid in data["pids"]]


def certificate_valid(f: RunFacts) -> Objective | NotJudged:
    """Judge that every fresh handshake showed a certificate that verifies: hunger and illness of soak's make none expire."""
    name, measured = "certificate_valid", "fresh handshakes whose certificate did not verify"
    bad = f.happened.bad_certificates
    if not bad:
        probed = any(s.via == "probe" for s in f.sightings)
        if not probed:
            return NotJudged(name, "no fresh handshake came to its end")
        return Objective(name, measured, 0, 0, "requests")
    first = bad[0]
    at_s = _at_s(first)
    serial = f" (serial {shown})" if (shown := first.data.get("serial")) else ""
    last = _begun_before(f, at_s)
    after = "" if last is None else f", {at_s - (last.injected_s or 0.0):.1f} s after {label(last)}"
    reason = (
        f"{len(bad)} fresh handshakes showed a certificate that does not verify: "
        f"{first.data.get('reason')}{serial}; first at {clock(at_s)}{after}"
    )
    fault = None if last is None else last.id
    evidence = () if fault is None else (str(fault),)
    return Objective(name, measured, len(bad), 0, "requests", Word.FAIL, reason, at_s, fault, evidence)


def _begun_before(f: RunFacts, at_s: float) -> FaultRecord | None:
    """Return the last fault that had begun by then."""
    began = [x for x in f.faults if x.injected_s is not None and x.injected_s <= at_s]
    return max(began, key=lambda x: x.injected_s or 0.0, default=None)


CHECKS = (
    ("proxy_alive", proxy_alive),
    ("workers_kept", workers_kept),
    ("certificate_valid", certificate_valid),
)
