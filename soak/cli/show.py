"""Printing what a run's store says: the report in a format, the verdict in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from soak.errors import StoreError
from soak.plan import ObjectivesPlan
from soak.report import build_report, render_json, render_markdown, render_text
from soak.report.tables import headline
from soak.rundir import RunDir
from soak.runs import lock_holder
from soak.store import StoreReader

FORMATS = ("text", "json", "markdown")
_RENDER = {"text": render_text, "json": render_json, "markdown": render_markdown}


def read_report(run: RunDir, objectives: ObjectivesPlan | None = None) -> dict[str, Any]:
    """Return the report of a live, finished or killed run. Raises ``StoreError`` when it has measured nothing."""
    with open_store(run) as reader:
        return build_report(reader, objectives, live=lock_holder(run) is not None)


def open_store(run: RunDir) -> StoreReader:
    """Open a run's store for reading. Raises ``StoreError`` with the run's name."""
    if not run.db.exists():
        raise StoreError(
            f"the run {run.id} has no store: it ended before it began; its log, if any, is {run.log}"
        )
    return StoreReader(run.db)


def print_report(run: RunDir, form: str, objectives: ObjectivesPlan | None = None) -> Mapping[str, Any]:
    """Print the report of a run on stdout and return it."""
    report = read_report(run, objectives)
    click.echo(_RENDER[form](report), nl=False)
    return report


def verdict_line(run: RunDir) -> tuple[str, int]:
    """Return ``PASS  nginx 1.31.3 · ...`` with the first reason, if any, and the verdict's exit code."""
    report = read_report(run)
    line = f"{report['verdict'].upper()}  {headline(report)}"
    if report["reasons"]:
        line += f"\n  {report['reasons'][0]}"
    if report["dirty"]:
        line += f"\n  dirty: something could not be put back as it was; see 'soak report {run.id}', then 'soak heal {run.id}'"
    return line, int(report["exit_code"])
