"""The report as Markdown, for a ticket or a pull request. Renders the same dict as the text, and every objective."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from soak.report.numbers import count, instant, measure, millis
from soak.report.tables import FAULT_HEAD, drift, failures, fault_rows, headline, itself, origins, summary


def render_markdown(report: Mapping[str, Any]) -> str:
    """Return the report as Markdown, ending in a newline."""
    lines = [f"# {report['verdict'].upper()}: {escape(headline(report))}", ""]
    if report["dirty"]:
        lines += ["**Dirty:** a fault could not be undone; the target is not as it was before.", ""]
    if report["reasons"]:
        lines += [*(f"- {escape(r)}" for r in report["reasons"]), ""]
    lines += _table(
        ("", "", ""), [tuple(cell for cell in (f"**{name}**", a, b)) for name, a, b in summary(report)]
    )
    lines += ["", "## Objectives", "", *_objectives(report)]
    lines += ["", "## Traffic", "", *_classes(report["load"])]
    rows = fault_rows(report)
    if rows:
        lines += ["", "## Faults", "", *_table(FAULT_HEAD, rows)]
    if report["certificates"]:
        lines += ["", "## Certificates", "", *_certificates(report["certificates"])]
    for name, words in origins(report):
        lines += ["", f"**{name.capitalize()}:** {escape(words)}"]
    lines += ["", f"**Drift:** {escape(drift(report))}", "", f"**soak itself:** {escape(itself(report))}"]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Keep text from being read as Markdown where it matters: table cells, emphasis, raw HTML."""
    for mark in "\\|*_`<":
        text = text.replace(mark, "\\" + mark)
    return text.replace("\n", " ")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(c if c.startswith("**") else escape(c) for c in cells) + " |"

    return [line(head), "|" + " --- |" * len(head), *(line(r) for r in rows)]


def _objectives(report: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            o["name"],
            "holds" if o["ok"] else f"**{o['verdict']}**",
            measure(o["value"], o["unit"]),
            measure(o["limit"], o["unit"]),
            o["measured"] if o["ok"] else o["reason"],
        )
        for o in report["objectives"]
    ]
    rows += [(n["name"], "not judged", "-", "-", n["reason"]) for n in report["not_judged"]]
    return _table(("objective", "", "value", "limit", "measured"), rows)


def _classes(load: Mapping[str, Any]) -> list[str]:
    head = (
        "class",
        "scheduled",
        "sent",
        "dropped",
        "missed",
        "failed",
        "p50",
        "p99",
        "p99.9",
        "max",
        "lag p99",
    )
    rows = [
        (
            name,
            *(count(c[k]) for k in ("scheduled", "sent", "dropped", "missed")),
            failures(c),
            *(millis(c["latency_ms"][k]) for k in ("p50", "p99", "p999", "max")),
            millis(c["lag_ms"]["p99"]),
        )
        for name, c in [*load["classes"].items(), ("all", load)]
    ]
    return _table(head, rows)


def _certificates(certificates: Iterable[Mapping[str, Any]]) -> list[str]:
    rows = [
        (c["serial"], instant(c["installed_s"]), instant(c["first_seen_s"]), instant(c["old_last_seen_s"]))
        for c in certificates
    ]
    return _table(("serial", "installed", "first seen", "old one last seen"), rows)
