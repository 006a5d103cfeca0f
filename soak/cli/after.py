"""Commands for a run that is over, or should be: ``report``, ``runs``, ``heal``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from soak.cli.arguments import RUN_NAME
from soak.cli.group import SoakCommand, note, stdout_console
from soak.errors import EXIT_DIRTY, EXIT_PASS, RunStateError, SoakError
from soak.rundir import RunDir
from soak.runs import all_runs, find_run, leftovers, lock_holder, runs_home


@click.command(cls=SoakCommand)
@click.argument("run_name", metavar="[RUN]", required=False, type=RUN_NAME)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    help="How to print it; default: text.",
)
@click.option(
    "--evidence",
    metavar="ID",
    help="Show the failed requests of a fault (112), of one row (e17), or of phase 'steady'.",
)
@click.option(
    "--objectives",
    "objectives_file",
    type=click.Path(readable=False, path_type=Path),
    metavar="FILE",
    help="Judge by the limits of this YAML file instead of the plan's.",
)
@click.option("--exit-code", is_flag=True, help="Exit with the verdict's code instead of 0.")
def report(
    *, run_name: str | None, form: str, evidence: str | None, objectives_file: Path | None, exit_code: bool
) -> int:
    """Show the verdict of a run and its evidence; also while it runs, and after it was killed.

    Without RUN: the live one, else the newest.

    Examples:
      soak report
      soak report --format markdown > report.md
      soak report --evidence 112
      soak report 2026-12-01T08-00-00-nginx --objectives strict.yaml --exit-code
    """
    from soak.cli.show import open_store, print_report  # noqa: PLC0415 - keeps --help quick
    from soak.planfile import load_objectives  # noqa: PLC0415
    from soak.report import build_evidence, render_evidence  # noqa: PLC0415

    objectives = load_objectives(objectives_file) if objectives_file is not None else None
    run = find_run(run_name)
    if evidence is not None:
        with open_store(run) as reader:
            found = build_evidence(reader, evidence)
        click.echo(json.dumps(found, indent=2) + "\n" if form == "json" else render_evidence(found), nl=False)
        return EXIT_PASS
    shown = print_report(run, form, objectives)
    return int(shown["exit_code"]) if exit_code else EXIT_PASS


@click.command(cls=SoakCommand)
@click.option("--verdict", is_flag=True, help="Judge each finished run too (reads every store).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def runs(*, verdict: bool, as_json: bool) -> int:
    """List the runs, oldest first: live, ended, killed, or with a store that is damaged.

    Examples:
      soak runs
      soak runs --verdict
      soak runs --json | jq -r '.[] | select(.state == "live") | .id'
    """
    rows = [_row(run, verdict=verdict) for run in all_runs()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return EXIT_PASS
    if not rows:
        note(f"there is no run in {runs_home()}; 'soak start' begins one")
        return EXIT_PASS
    table = Table(box=None, pad_edge=False)
    for column in ("run", "state", "proxy", "rate", "started", "verdict" if verdict else "", "directory"):
        if column:
            table.add_column(column, overflow="fold", no_wrap=column == "run")  # an id is for copying
    for row in rows:
        cells = [row["id"], row["words"], row["proxy"], row["rate"], row["started_at"]]
        table.add_row(*map(_cell, [*cells, *([row["verdict"]] if verdict else []), row["directory"]]))
    stdout_console().print(table)
    return EXIT_PASS


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}/s" if isinstance(value, float) else str(value)


def _row(run: RunDir, *, verdict: bool) -> dict[str, Any]:
    """Return what is known of a run without judging it, unless asked to."""
    holder = lock_holder(run)
    meta, ended, damage = _meta(run)
    left = leftovers(run)
    if holder is not None:
        state, words = "live", f"live, pid {holder.pid}"
    elif damage:
        state, words = "damaged", "its store is damaged"
    elif ended is not None:
        state, words = "ended", "ended"
    else:
        state, words = "killed", "killed" if meta else "never began"
    if left:
        words += f", left {' and '.join(left)}"
    return {
        "id": run.id,
        "state": state,
        "words": words,
        "pid": holder.pid if holder else None,
        "proxy": " ".join(str(meta[k]) for k in ("proxy", "proxy_version") if meta.get(k)) or None,
        "rate": meta.get("rate"),
        "started_at": meta.get("started_at"),
        "leftovers": left,
        "verdict": _verdict(run) if verdict and meta else None,
        "directory": str(run.path),
    }


def _meta(run: RunDir) -> tuple[dict[str, Any], Any, bool]:
    """Return what the store says of the run and of its end, and whether it is there and cannot be read."""
    from soak.cli.show import open_store  # noqa: PLC0415 - keeps --help quick

    try:
        with open_store(run) as reader:
            return reader.meta("run") or {}, reader.meta("ended"), False
    except SoakError:  # a run without a readable store is still a run; its state says what is known
        return {}, None, run.db.exists() and not (run.db.is_file() and run.db.stat().st_size == 0)


def _verdict(run: RunDir) -> str:
    from soak.cli.show import read_report  # noqa: PLC0415 - keeps --help quick

    try:
        return str(read_report(run)["verdict"])
    except SoakError as error:
        return f"unreadable: {error}"


@click.command(cls=SoakCommand)
@click.argument("run_name", metavar="[RUN]", required=False, type=RUN_NAME)
def heal(*, run_name: str | None) -> int:
    """Clean up after a run whose daemon was killed: end its processes, undo what it had broken.

    Needs no daemon, and never touches a live run. Without RUN: every dead run that left something behind. Exits with 0
    when all is clean, 4 when something could not be healed.

    Examples:
      soak heal
      soak heal 2026-12-01T08-00-00-nginx
    """
    if run_name is not None:
        run = find_run(run_name)
        if holder := lock_holder(run):
            raise RunStateError(
                f"the run {run.id} is live (pid {holder.pid}) and heals itself; 'soak stop {run.id}' ends it"
            )
        dead = [run]
    else:
        dead = [run for run in all_runs() if _needs_healing(run)]
        if not dead:
            click.echo("nothing to heal: no dead run left anything behind")
            return EXIT_PASS
    clean = [_heal(run) for run in dead]
    return EXIT_PASS if all(clean) else EXIT_DIRTY


def _needs_healing(run: RunDir) -> bool:
    from chaos.journal import open_undos  # noqa: PLC0415 - keeps --help quick

    if lock_holder(run) is not None:
        return False
    try:
        unfinished = run.journal.exists() and bool(open_undos(run.journal))
    except OSError:  # unreadable: healing says so with its words
        unfinished = True
    return unfinished or bool(leftovers(run))


def _heal(run: RunDir) -> bool:
    """Heal one dead run, print what was done, and remove what a live run alone has. Returns whether it is clean."""
    from chaos.faults.catalog import registry  # noqa: PLC0415 - keeps --help quick
    from chaos.heal import heal as heal_journal  # noqa: PLC0415
    from soak.lab import open_for_healing  # noqa: PLC0415

    async def healing() -> Any:
        return await heal_journal(run.journal, await open_for_healing(str(run.path)), registry())

    try:
        result = asyncio.run(healing())
    except (OSError, RunStateError) as error:
        click.echo(f"{run.id}: cannot be healed: {_words(error)}")
        return False
    ok = bool(result.ok)
    lines = result.sentences()
    stale = [path for path in (run.socket, run.live) if path.is_socket() or path.is_file()]
    if ok and stale:
        for path in stale:
            path.unlink(missing_ok=True)
        lines = (
            ["the stale socket is removed"]
            if result.nothing_to_do
            else [*lines, "the stale socket is removed"]
        )
    for line in lines:
        click.echo(f"{run.id}: {line}")
    return ok


def _words(error: OSError | RunStateError) -> str:
    """Return what a person reads of it: of the system's errors the file and why, and no number."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
