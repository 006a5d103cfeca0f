"""``soak render``: what a proxy needs to be started by somebody else, before a run attaches to it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from soak.cli.group import SoakCommand
from soak.cli.options import plan_options
from soak.errors import EXIT_PASS
from soak.plan import Plan
from soak.proxies.companion import companion_output_of

if TYPE_CHECKING:
    from soak.lab.rendering import Rendered


@click.command(cls=SoakCommand)
@plan_options
@click.option("--force", is_flag=True, help="Overwrite configuration that soak did not render.")
@click.option("--json", "as_json", is_flag=True, help="Print the files and commands as one line of JSON.")
def render(*, load: Callable[[], Plan], force: bool, as_json: bool) -> int:
    """Write the first configuration of a proxy that you start yourself, for a plan whose lab is 'attach'.

    Writes configuration, a certificate and its CA into lab.attach.proxy.directory, for a proxy with a tcp_port also a certificate of
    the origins, and the origins' shared table, and says how to start the proxy and the origins with them. A run renders into the same
    directory, and puts this back at its end.

    Examples:
      soak render mine.yaml
      soak render mine.yaml --proxy haproxy
    """
    from soak.lab.rendering import render_first  # noqa: PLC0415 - keeps --help quick

    rendered = render_first(load(), force=force)
    click.echo(json.dumps(_facts(rendered)) if as_json else _words(rendered))
    return EXIT_PASS


def _to(output: Path) -> str:
    return f" >>{shlex.quote(str(output))} 2>&1"


def _facts(rendered: Rendered) -> dict[str, object]:
    return {
        "directory": str(rendered.directory),
        "files": list(rendered.files),
        "proxy": list(rendered.proxy),
        "working_directory": str(rendered.directory.parent),
        "output": None if rendered.output is None else str(rendered.output),
        "origins": [list(origin) for origin in rendered.origins],
        "companions": {
            name: {"command": list(command), "output": str(companion_output_of(rendered.directory, name))}
            for name, command in rendered.companions.items()
        },
    }


def _words(rendered: Rendered) -> str:
    output = "" if rendered.output is None else _to(rendered.output)
    beside = {
        name: f"  {shlex.join(command)}{_to(companion_output_of(rendered.directory, name))}"
        for name, command in rendered.companions.items()
    }
    return "\n".join(
        [
            f"rendered {', '.join(rendered.files)} into {rendered.directory}",
            f"start the proxy in {rendered.directory.parent} with",
            f"  {shlex.join(rendered.proxy)}{output}",
            *(line for name, command in beside.items() for line in (f"and {name} beside it with", command)),
            "and the origins, if they do not run yet, with",
            *(f"  {shlex.join(origin)}" for origin in rendered.origins),
        ]
    )
