"""The command line of soak. Each file holds the commands of one moment: before, during and after a run.

Commands read their arguments, call one thing and print; they decide nothing. Heavy imports stay inside commands, so
that ``soak --help`` is quick.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from soak.cli.after import heal, report, runs
from soak.cli.before import check, faults, init, plan
from soak.cli.during import inject, status, stop
from soak.cli.group import SoakGroup, complain
from soak.cli.lab import lab
from soak.cli.load import load
from soak.cli.render import render
from soak.cli.start import start
from soak.cli.streams import claim_streams
from soak.errors import EXIT_USAGE

__all__ = ["cli", "main"]


@click.group(
    cls=SoakGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 pass, 1 fail, 2 usage or configuration, 3 invalid, 4 dirty (something was left broken).",
)
@click.version_option(package_name="soakd", prog_name="soak", message="%(prog)s %(version)s")
def cli() -> None:
    """Hold a request rate against a proxy for a day, break things on schedule, and judge what happened.

    Examples:
      soak start                       the 24-hour run: 1,000 req/s, reloads, lost backends, new certificates
      soak start --preset quick        the same job in two minutes
      soak inject backend-down         chaos by hand, from another shell
      soak report                      the verdict and its evidence
    """


for command in (
    start,
    status,
    stop,
    inject,
    heal,
    report,
    runs,
    faults,
    plan,
    check,
    init,
    render,
    load,
    lab,
):
    cli.add_command(command)


def main() -> NoReturn:
    """Run the command line (entry point)."""
    if not claim_streams():
        complain("stdout is closed, so nothing could be shown; leave it open, or send it to /dev/null")
        sys.exit(EXIT_USAGE)
    cli.main(prog_name="soak")
