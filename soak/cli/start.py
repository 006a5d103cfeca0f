"""``soak start``: the whole job, in the foreground or detached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from soak.cli.arguments import PLACE
from soak.cli.detached import start_detached
from soak.cli.group import SoakCommand, note
from soak.cli.options import plan_options
from soak.errors import LabError
from soak.plan import Plan, format_duration
from soak.rundir import RunDir
from soak.runs import create_run


@click.command(cls=SoakCommand)
@plan_options
@click.option("--detach", is_flag=True, help="Return as soon as the run is up and holds its rate.")
@click.option("--json", "as_json", is_flag=True, help="Print the final report as JSON on stdout.")
@click.option(
    "--dir",
    "directory",
    type=PLACE,
    metavar="DIR",
    help="Put the run here (a new or empty directory) instead of under $SOAK_HOME.",
)
def start(*, load: Callable[[], Plan], detach: bool, as_json: bool, directory: Path | None) -> int:
    """Run a plan: hold the rate, run the timeline of faults, heal, judge.

    Without a plan it is the 24-hour run. Ctrl-C stops gracefully: everything is healed and the report is printed; a
    second one skips the waiting, never the healing. The exit code is the verdict: 0 pass, 1 fail, 3 invalid, 4 dirty.

    Examples:
      soak start
      soak start --preset quick --json > report.json
      soak start my.yaml --minutes 30 --rate 500 --every backend-down=5m:20s
      soak start --hours 24 --detach
    """
    if detach and as_json:
        raise click.UsageError(
            "--detach returns before there is a report; use 'soak report --format json' later",
            click.get_current_context(),
        )
    from soak.check import Level, preflight, refuse_blockers  # noqa: PLC0415 - keeps --help quick
    from soak.planfile import dump_plan  # noqa: PLC0415

    plan = load()
    findings = preflight(plan, directory=directory)
    refuse_blockers(findings)
    run = create_run(plan, dump_plan(plan), directory=directory)
    for finding in findings:
        if finding.level is Level.WARN:
            note(f"warning: {finding.text}")
    return start_detached(plan, run) if detach else _foreground(plan, run, as_json=as_json)


def _foreground(plan: Plan, run: RunDir, *, as_json: bool) -> int:
    from soak.cli.show import print_report  # noqa: PLC0415 - keeps --help quick
    from soak.daemon import run_foreground  # noqa: PLC0415
    from soak.liveview import open_view  # noqa: PLC0415

    note(f"run {run.id}: {plan.rate:,.0f} req/s for {format_duration(plan.length)}, files in {run.path}")
    view = open_view()
    try:
        code = run_foreground(plan, run, view)
    except LabError as error:
        raise LabError(f"{error}\nits files are in {run.path}") from error
    finally:
        view.close()
    print_report(run, "json" if as_json else "text")
    return code
