"""The report for a terminal: plain text, aligned, the verdict first. Renders the report's dict and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from soak.report.numbers import instant
from soak.report.tables import (
    CLASS_HEAD,
    FAULT_HEAD,
    class_rows,
    drift,
    fault_rows,
    headline,
    itself,
    origins,
    summary,
)

_RIGHT = frozenset({"n", "verified", "lost"})


def render_text(report: Mapping[str, Any]) -> str:
    """Return the report as text, ending in a newline. What failed comes before any figure."""
    lines = [f"{report['verdict'].upper()}  {headline(report)}", ""]
    if report["dirty"]:
        lines += ["  DIRTY    a fault could not be undone: the target is not as it was before", ""]
    missed = [o for o in report["objectives"] if not o["ok"]]
    if missed:
        missed.sort(key=lambda o: o["verdict"] != "fail")
        lines += [line for o in missed for line in _missed(o)] + [""]
    lines += _aligned(summary(report))
    rows = fault_rows(report)
    if rows:
        lines += ["", *(f"  {line}" for line in grid(FAULT_HEAD, rows, right=_RIGHT))]
    classes = class_rows(report)
    if len(classes) > 1:
        lines += ["", *(f"  {line}" for line in grid(CLASS_HEAD, classes, right=CLASS_HEAD[1:]))]
    lines += ["", *(f"  {name:<14} {words}" for name, words in origins(report))]
    lines += [f"  drift          {drift(report)}", f"  soak itself    {itself(report)}"]
    if report["not_judged"]:
        lines += ["", "  not judged"]
        lines += [f"    {n['name']}: {n['reason']}" for n in report["not_judged"]]
    return "\n".join(lines) + "\n"


def _missed(objective: Mapping[str, Any]) -> list[str]:
    word = "FAILED " if objective["verdict"] == "fail" else "INVALID"
    when = "" if objective["at_s"] is None else f" at {instant(objective['at_s'])}"
    lines = [f"  {word}  {objective['name']}{when}: {objective['reason']}"]
    if objective["evidence"]:
        look = " or ".join(f"soak report --evidence {e}" for e in objective["evidence"][:2])
        lines.append(f"           where to look: {look}")
    return lines


def _aligned(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    rows = list(rows)
    figure = max(len(f) for name, f, _ in rows if name in ("rate held", "failures"))
    out = []
    for name, value, words in rows:
        wide = value.ljust(figure) if words and len(value) <= figure else value
        out.append(f"  {name:<14} {wide}    {words}".rstrip())
    return out


def grid(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Iterable[str] = ()) -> list[str]:
    """Return an aligned table; columns named in ``right`` are aligned to the right."""
    to_right = set(right)
    widths = [max(len(str(line[i])) for line in (head, *rows)) for i in range(len(head))]
    return [
        "  ".join(
            cell.rjust(w) if name in to_right else cell.ljust(w)
            for name, cell, w in zip(head, line, widths, strict=True)
        ).rstrip()
        for line in (head, *rows)
    ]
