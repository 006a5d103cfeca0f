"""The matrix as a table: for people, in a terminal and between two markers of a document."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.matrix.entry import Entry, FaultRow

KINDS = ("reload", "backend-down", "cert-rotate")
BEGIN, END = "<!-- matrix -->", "<!-- /matrix -->"

_HEAD = (
    "proxy",
    "verdict",
    "rate held",
    "reload: lost",
    "seen after",
    "backend-down: lost",
    "recovered in",
    "cert-rotate: lost",
    "seen after",
    "p99",
    "CPU",
    "memory",
    "cannot",
)
_ALL = ("reload", "cert_rotate", "marker", "metrics", "h2", "websocket", "tcp")


def table(entries: Sequence[Entry]) -> str:
    """Return one row a proxy."""
    rows = [_HEAD, tuple("---" for _ in _HEAD), *(_cells(one) for one in entries)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def notes(entries: Sequence[Entry]) -> list[str]:
    """Return a sentence for each row that is no plain pass, and for what a preset left out."""
    out = [f"{_name(one)}: **{one.verdict}**, {one.reason}" for one in entries if one.reason]
    return out + [f"{_name(one)}: left out {text}" for one in entries for text in one.left_out]


def block(summary: Mapping[str, Any]) -> str:
    """Return what stands in a document: how it was measured, the table, the notes. No date, no host, no path."""
    entries = [Entry.from_json(value) for value in summary["entries"]]
    machine = summary["machine"]
    lag = [one.lag_p99_ms for one in entries if one.lag_p99_ms is not None]
    about = (
        f"{summary['rate']:,.0f} req/s for {summary['minutes']:g} min each, one after the other, on {machine['cpus']} "
        f"{machine['cpu_model']} cores{' of a virtual machine' if machine['virtual'] else ''} that load, proxy and backends share; "
        f"soak {machine['versions']['soakd']}, Linux {machine['kernel']}, Python {machine['python']}. "
        + (f"Soak's own lag, p99: {min(lag):.1f} to {max(lag):.1f} ms. " if lag else "")
        + "Compare within this one run only: another machine, or this one at another hour, gives other numbers. "
        "*Lost* counts requests that ended otherwise than promised, by outcome; `stale_reuse` is a kept connection that the "
        "proxy closed just as a request was sent, which real clients repeat. Times are p50 / max."
    )
    said = notes(entries)
    return "\n\n".join([about, table(entries), *(["\n".join(f"- {note}" for note in said)] if said else [])])


def fill(document: str, text: str) -> str:
    """Return the document with the text between its markers. Raises ``ValueError`` when it has none."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(document):
        raise ValueError(f"the document has no {BEGIN} and {END}; put them where the table is to stand")
    return pattern.sub(lambda _: f"{BEGIN}\n{text}\n{END}", document, count=1)


def _name(one: Entry) -> str:
    return f"{one.proxy} {one.version}".strip()


def _cells(one: Entry) -> tuple[str, ...]:
    reload, down, rotate = (one.faults.get(kind) for kind in KINDS)
    return (
        _name(one),
        one.verdict,
        "-" if one.rate_held is None else f"{one.rate_held:.2%}".replace("%", " %"),
        _lost(reload),
        _took(reload),
        _lost(down),
        _took(down),
        _lost(rotate),
        _took(rotate),
        "-" if one.p99_ms is None else f"{one.p99_ms:.1f} ms",
        "-" if one.cpu_us_per_request is None else f"{one.cpu_us_per_request:.0f} µs/req",
        "-" if one.rss_mib is None else f"{one.rss_mib:.0f} MiB",
        ", ".join(name for name in _ALL if name not in one.can) or "-",
    )


def _lost(row: FaultRow | None) -> str:
    if row is None:
        return "-"
    text = ", ".join(f"{n} {outcome}" for outcome, n in row.lost.items()) or "0"
    unseen = row.n - row.verified
    return f"{text} in {row.n}" + (f" ({unseen} not verified)" if unseen else "")


def _took(row: FaultRow | None) -> str:
    if row is None or row.p50_s is None or row.max_s is None:
        return "-"
    return f"{row.p50_s:.2f} / {row.max_s:.2f} s"
