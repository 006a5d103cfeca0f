"""The failed requests behind a verdict, whole: those of one fault, of phase ``steady``, or one row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from soak.errors import SoakError
from soak.model import Phase
from soak.report.build import build_report
from soak.report.numbers import instant
from soak.report.text import grid
from soak.store import StoreReader

_MOST_ROWS = 200
_SELECTOR = re.compile(r"#?(\d+)|e(\d+)|(steady|recovery|fault)")
_HEAD = (
    *("row", "request", "class", "outcome", "due", "sent", "first byte", "done", "took", "connection", "age"),
    *("reused", "idempotent", "status", "origin", "generation", "serial", "error"),
)


def build_evidence(reader: StoreReader, selector: str, limit: int = _MOST_ROWS) -> dict[str, Any]:
    """Return the evidence of ``112`` (a fault), ``e17`` (one row) or ``steady`` (a phase) as a JSON value.

    Raises ``SoakError`` when the run has nothing under that name.
    """
    match = _SELECTOR.fullmatch(selector.strip())
    if match is None:
        raise SoakError(
            f"{selector!r} is no evidence; give a fault id like 3, a row like e17, or a phase like steady"
        )
    number, row, phase = match.groups()
    fault = None
    with reader.snapshot():
        if number:
            fault = _fault(reader, int(number))
            rows = list(reader.evidence(fault=int(number), limit=limit + 1))
        elif row:
            rows = list(reader.evidence(row=int(row)))
            if not rows:
                raise SoakError(f"there is no evidence row {selector!r} in this run")
        else:
            rows = list(reader.evidence_in(Phase(phase), limit + 1))
        dropped = reader.counters().get("evidence_dropped", 0)
    return {
        "selector": selector,
        "fault": fault,
        "rows": [{"row": r.id, "worker": r.worker, **asdict(r.request)} for r in rows[:limit]],
        "more": len(rows) > limit,
        "dropped": dropped,
    }


def _fault(reader: StoreReader, wanted: int) -> dict[str, Any]:
    faults = {f["id"]: f for f in build_report(reader)["faults"]}
    if wanted not in faults:
        known = f"this run has faults {min(faults)} to {max(faults)}" if faults else "this run has no faults"
        raise SoakError(f"there is no fault {wanted} in this run; {known}")
    fault: dict[str, Any] = faults[wanted]
    return fault


def render_evidence(evidence: Mapping[str, Any]) -> str:
    """Return the evidence as text: what is known of the fault, then its failed requests as a table."""
    lines: list[str] = []
    if (fault := evidence["fault"]) is not None:
        lines += _about(fault)
    rows = evidence["rows"]
    if not rows:
        lines.append(f"no failed request is kept for {evidence['selector']}")
    else:
        lines += grid(_HEAD, [_cells(r) for r in rows])
    if evidence["more"]:
        lines.append(f"only the first {len(rows)} rows are shown; the store holds more")
    if evidence["dropped"]:
        lines.append(f"{evidence['dropped']:,} failed requests of this run were counted but not kept")
    return "\n".join(lines) + "\n"


def _about(fault: Mapping[str, Any]) -> list[str]:
    lines = [f"{fault['kind']} #{fault['id']} on {fault['target']}: {fault['outcome'] or 'under way'}"]
    if fault["reason"]:
        lines.append(f"  {fault['reason']}")
    steps = [
        (k.removesuffix("_s"), fault[k])
        for k in ("planned_s", "injected_s", "active_s", "reverted_s", "recovered_s")
    ]
    lines.append("  " + " · ".join(f"{name} {instant(at_s)}" for name, at_s in steps if at_s is not None))
    for name, key in (("effect after", "effect_s"), ("recovery", "recovery_s")):
        if fault[key] is not None:
            lines.append(f"  {name} {fault[key]:.3f} s")
    words = ", ".join(f"{n:,} {o}" for o, n in fault["outcomes"].items() if o != "ok")
    lines.append(
        f"  {fault['requests']:,} requests, {fault['failed']:,} failed{': ' + words if words else ''}"
    )
    lines += [f"  evidence {step}: {seen}" for step, seen in fault["evidence"].items()]
    return [*lines, ""]


def _cells(r: Mapping[str, Any]) -> tuple[str, ...]:
    def at(value: float | None) -> str:
        return "-" if value is None else f"{value:.6f}"

    return (
        *(f"e{r['row']}", r["id"], r["traffic"], str(r["outcome"])),
        *(at(r["due_s"]), at(r["sent_s"]), at(r["first_byte_s"]), at(r["done_s"])),
        f"{(r['done_s'] - r['due_s']) * 1000:.1f} ms",
        str(r["connection"]),
        "-" if r["connection_age_s"] is None else f"{r['connection_age_s']:.3f} s",
        "yes" if r["reused"] else "no",
        "yes" if r["idempotent"] else "no",
        *("-" if r["status"] is None else str(r["status"]), r["origin"] or "-", r["generation"] or "-"),
        *(r["serial"] or "-", r["error"] or "-"),
    )
