"""What happened to the lab that no fault asked for, as events of the run tell it, and the checks of it.

A proxy that ended has failed even when whoever supervises it hid that from traffic. A backend that ended is the lab's own
trouble: what fails afterwards excuses the proxy and takes nothing from a pass, as a starved host does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from soak.model import Event, Unwell
from soak.store import StoreReader
from soak.verdict.objectives import NotJudged, Objective, Word, clock, label

if TYPE_CHECKING:
    from soak.verdict.facts import RunFacts

_PROXY_ENDED = ("proxy.died", "proxy.oom", "proxy.removed")
_BACKEND_ENDED = ("origin.died", "origin.oom", "origin.removed")
_PROBE_FAILED = "probe.failed"


@dataclass(frozen=True, slots=True)
class Happenings:
    """Events that are judged, in order of time."""

    proxy_ended: Sequence[Event] = ()
    backend_ended: Sequence[Event] = ()
    bad_certificates: Sequence[Event] = ()
    """Fresh handshakes in which the prober met a certificate that does not verify."""


def happenings_of(reader: StoreReader) -> Happenings:
    """Read them; what happened before hour zero ended the run by itself, or did not matter."""
    return Happenings(
        proxy_ended=_named(reader, _PROXY_ENDED),
        backend_ended=_named(reader, _BACKEND_ENDED),
        bad_certificates=[
            e for e in reader.events(_PROBE_FAILED) if e.data.get("stage") == "certificate" and _at_s(e) >= 0
        ],
    )


def _named(reader: StoreReader, names: Sequence[str]) -> list[Event]:
    return sorted((e for name in names for e in reader.events(name) if e.at_s >= 0), key=lambda e: e.at_s)


def _at_s(event: Event) -> float:
    return float(event.data.get("at_s", event.at_s))


def bereft(happened: Happenings, until_s: float) -> list[Unwell]:
    """Return the stretch, if any, from the first unasked end of a backend to the end: nobody brings it back for sure."""
    first = next((e for e in happened.backend_ended if e.at_s < until_s), None)
    if first is None:
        return []
    what = f"backend {first.data.get('name', '?')} ended although no fault asked for it ({_how(first.data)})"
    return [Unwell(first.at_s, until_s, what)]


def _how(data: Any) -> str:
    return str(data.get("how") or "nobody saw how")


def proxy_alive(f: RunFacts) -> Objective | NotJudged:
    """Judge that the proxy never ended unasked, and that its first process was the same from the first look to the last."""
    measured = "ends of the proxy that nobody asked for"
    seen = [v for v in f.vitals if 0 <= v.at_s <= f.elapsed_s]
    found = [
        (e.at_s, f"{e.data.get('name', 'the proxy')} ended at {clock(e.at_s)}: {_how(e.data)}")
        for e in f.happened.proxy_ended
        if e.at_s <= f.elapsed_s
    ]
    if not found and not seen:
        return NotJudged("proxy_alive", "the proxy was never looked at")
    if not found:  # an end that was told explains these
        found += [
            (new.at_s, f"its first process was {was} and is {now} since {clock(new.at_s)}")
            for old, new in pairwise(v for v in seen if v.processes)
            if (was := old.detail.get("pid")) != (now := new.detail.get("pid"))
        ]
    if not found:
        return Objective("proxy_alive", measured, 0, 0, "times")
    at_s, words = min(found)
    more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
    return Objective(
        "proxy_alive", measured, len(found), 0, "times", Word.FAIL, words.replace("\n", " ") + more, at_s
    )


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
    began = [x for x in f.faults if x.injected_s is not None and x.injected_s <= at_s]
    last = max(began, key=lambda x: x.injected_s or 0.0, default=None)
    after = "" if last is None else f", {at_s - (last.injected_s or 0.0):.1f} s after {label(last)}"
    reason = (
        f"{len(bad)} fresh handshakes showed a certificate that does not verify: "
        f"{first.data.get('reason')}{serial}; first at {clock(at_s)}{after}"
    )
    fault = None if last is None else last.id
    evidence = () if fault is None else (str(fault),)
    return Objective(name, measured, len(bad), 0, "requests", Word.FAIL, reason, at_s, fault, evidence)


CHECKS = (("proxy_alive", proxy_alive), ("certificate_valid", certificate_valid))
