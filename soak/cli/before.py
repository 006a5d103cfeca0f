"""Commands before a run: ``faults``, ``plan``, ``check``, ``init``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from soak.cli.group import SoakCommand, complain, note, stdout_console
from soak.cli.options import plan_options
from soak.errors import EXIT_PASS, EXIT_USAGE, PlanError
from soak.plan import Plan, TrafficClassPlan, format_duration

if TYPE_CHECKING:
    from chaos.timeline import Timeline
    from soak.check import Finding


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


@click.command(cls=SoakCommand)
@click.option(
    "--proxy", default="nginx", metavar="NAME", help="Say what this proxy supports; default: nginx."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def faults(*, proxy: str, as_json: bool) -> int:
    """List the faults: what each does, how long it holds, what it is aimed at, whether the lab supports it.

    Examples:
      soak faults
      soak faults --json
    """
    from soak.plan import ProxyPlan  # noqa: PLC0415 - keeps --help quick
    from soak.planrules import known_faults, known_targets, unsupported  # noqa: PLC0415
    from soak.proxies.catalog import adapter  # noqa: PLC0415

    capabilities = ", ".join(sorted(adapter(proxy).capabilities))
    plan = Plan(proxy=ProxyPlan(kind=proxy))
    rows: list[dict[str, Any]] = []
    for name, fault in known_faults().items():
        lacking = sorted(unsupported(fault, plan))
        rows.append(
            {
                "name": name,
                "shape": str(fault.shape),
                "targets": list(known_targets(fault, plan)),
                "default_hold_s": fault.default_hold_s,
                "needs": sorted(fault.needs),
                "supported": not lacking,
                "lacking": lacking,
                "summary": fault.summary,
            }
        )
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return EXIT_PASS
    table = _table("fault", "shape", "targets", "holds", f"with {proxy}", "what it does")
    for row in rows:
        holds = format_duration(row["default_hold_s"]) if row["default_hold_s"] else "-"
        able = "yes" if row["supported"] else f"no: lacks {', '.join(row['lacking'])}"
        table.add_row(
            row["name"], row["shape"], ", ".join(row["targets"]) or "-", holds, able, row["summary"]
        )
    stdout_console().print(table)
    click.echo(f"{proxy} can {capabilities}")
    return EXIT_PASS


@click.command(cls=SoakCommand)
@plan_options
@click.option("--json", "as_json", is_flag=True, help="Print the plan and its timeline as JSON.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of a plan, for completion in editors.")
def plan(*, load: Callable[[], Plan], as_json: bool, schema: bool) -> int:
    """Show what a plan would do, all of it, before anything runs.

    The same plan and seed give the same timeline. Faults that would collide are moved to the nearest free moment; what
    finds none is listed as skipped, with the reason.

    Examples:
      soak plan
      soak plan my.yaml --minutes 30
      soak plan --schema > soak.schema.json
    """
    from soak.planfile import plan_schema  # noqa: PLC0415 - keeps --help quick
    from soak.planrules import timeline_of  # noqa: PLC0415

    if schema:
        click.echo(json.dumps(plan_schema(), indent=2))
        return EXIT_PASS
    wanted = load()
    timeline = timeline_of(wanted)
    if as_json:
        click.echo(json.dumps(_timeline_json(wanted, timeline), indent=2))
        return EXIT_PASS
    _print_plan(stdout_console(), wanted, timeline)
    return EXIT_PASS


def _timeline_json(wanted: Plan, timeline: Timeline) -> dict[str, Any]:
    def row(request: Any) -> dict[str, Any]:
        return {
            "at_s": request.planned_s,
            "fault": request.kind,
            "target": request.target,
            "hold_s": request.hold_s,
            "params": dict(request.params),
        }

    return {
        "plan": wanted.model_dump(mode="json", by_alias=True),
        "timeline": [row(p.request) | {"moved_from_s": p.moved_from_s} for p in timeline.planned],
        "skipped": [row(s.request) | {"reason": s.reason} for s in timeline.skipped],
    }


def _request(c: TrafficClassPlan) -> str:
    """Say what is asked for."""
    hosts = f" of {c.hosts:,} hosts" if c.hosts else ""
    return f"{c.method} {c.path}{hosts}" + (f", {c.cache_keys:,} objects" if c.cache_keys else "")


def _connection(c: TrafficClassPlan) -> str:
    """Say over what it travels."""
    over = {"h2": f"h2, {c.connections} x {c.streams}", "websocket": f"{c.connections} websockets"}
    return ("TLS, " if c.tls else "") + over.get(c.protocol, c.connection)


def _print_plan(console: Console, wanted: Plan, timeline: Timeline) -> None:
    console.print(
        f"{wanted.name or 'plan'}: {wanted.rate:,.10g} req/s for {format_duration(wanted.length)} "
        f"({wanted.rate * wanted.length:,.0f} requests) · {wanted.proxy.kind} · {wanted.lab.kind} lab with "
        f"{wanted.lab.backends} backends · seed {wanted.seed}"
    )
    classes = _table("class", "share", "req/s", "request", "connection")
    for c in wanted.traffic.classes:
        classes.add_row(
            c.name,
            f"{c.share:.0%}",
            f"{c.share * wanted.rate:,.10g}",
            _request(c),
            _connection(c),
        )
    console.print(classes)
    rows = _table("at", "fault", "target", "holds", "moved from")
    for p in timeline.planned:
        moved = "" if p.moved_from_s is None else _instant(p.moved_from_s)
        hold = format_duration(p.request.hold_s) if p.request.hold_s else "-"
        rows.add_row(_instant(p.planned_s), p.request.kind, p.request.target or "in turn", hold, moved)
    if timeline.planned:
        console.print(rows)
    counts = Counter(p.request.kind for p in timeline.planned)
    total = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())) or "no faults"
    console.print(f"{total} · {len(timeline.skipped)} skipped")
    for s in timeline.skipped:
        console.print(f"  skipped {s.request.kind} due at {_instant(s.request.planned_s)}: {s.reason}")


def _instant(at_s: float) -> str:
    """Return ``1h05m20s``; tenths where there are any."""
    tenths = round(at_s * 10)
    hours, rest = divmod(tenths, 36_000)
    minutes, seconds = divmod(rest, 600)
    text = f"{seconds / 10:g}"
    return f"{hours:02d}:{minutes:02d}:{text.zfill(2) if '.' not in text else text.zfill(4)}"


@click.command(cls=SoakCommand)
@plan_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(*, load: Callable[[], Plan], as_json: bool) -> int:
    """Look whether this host can carry a plan: binaries, open files, ports, disk, clock, leftovers of dead runs.

    Exits with 2 when something is in the way; warnings alone are 0.

    Examples:
      soak check
      soak check my.yaml
    """
    from soak.check import Level, preflight  # noqa: PLC0415 - keeps --help quick

    findings = preflight(load())
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print_findings(findings)
    blocked = [f for f in findings if f.level is Level.BLOCK]
    if blocked and not as_json:
        complain(f"{len(blocked)} of {len(findings)} looks found something in the way of this plan")
    return EXIT_USAGE if blocked else EXIT_PASS


def _print_findings(findings: Sequence[Finding]) -> None:
    table = _table("", "look", "found")
    styles = {"ok": "green", "warn": "yellow", "block": "bold red"}
    for finding in findings:
        level = str(finding.level)
        table.add_row(f"[{styles[level]}]{level}[/]", finding.name, finding.text)
    stdout_console().print(table)


@click.command(cls=SoakCommand)
@click.argument("path", metavar="[FILE]", default="soak.yaml", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def init(*, path: Path, force: bool) -> int:
    """Write a commented plan to start from.

    Examples:
      soak init
      soak init nightly.yaml
    """
    from soak.planfile import template  # noqa: PLC0415 - keeps --help quick

    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(template())
    except FileExistsError as error:
        raise PlanError(f"{path} exists already; choose another name, or --force to overwrite it") from error
    except OSError as error:
        raise PlanError(f"cannot write {path}: {error.strerror}") from error
    note(f"wrote {path}; 'soak plan {path}' shows its timeline, 'soak start {path}' runs it")
    return EXIT_PASS
