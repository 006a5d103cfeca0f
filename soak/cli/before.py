"""Commands before a run: ``faults``, ``plan``, ``check``, ``init``."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
        table.add_column(column, overflow="fold", no_wrap=column == columns[0])  # a name is for copying
    return table


@click.command(cls=SoakCommand)
@click.argument(
    "plan_file", metavar="[PLAN.yaml]", required=False, type=click.Path(readable=False, path_type=Path)
)
@click.option("--preset", metavar="NAME", help="Of the proxy and lab of this built-in plan.")
@click.option("--proxy", metavar="NAME", help="Of this proxy; default: nginx.")
@click.option("--lab", metavar="KIND", help="In this lab; default: local.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def faults(
    *, plan_file: Path | None, preset: str | None, proxy: str | None, lab: str | None, as_json: bool
) -> int:
    """List the faults: what each does, how long it holds, what it is aimed at, and what this proxy and lab cannot do.

    Examples:
      soak faults
      soak faults --proxy caddy --json
      soak faults --preset bouine
    """
    from chaos.fault import TakesParams  # noqa: PLC0415 - keeps --help quick
    from soak.abilities import abilities, in_words, lacking  # noqa: PLC0415
    from soak.planfile import Overrides, load_plan  # noqa: PLC0415
    from soak.planrules import known_faults, known_targets  # noqa: PLC0415
    from soak.proxies.base import reload_kinds_of  # noqa: PLC0415
    from soak.proxies.catalog import adapter_of  # noqa: PLC0415

    plan = load_plan(plan_file, preset, Overrides(proxy=proxy, lab=lab))
    found = abilities(plan)
    rows: list[dict[str, Any]] = []
    for name, fault in known_faults().items():
        lacks = sorted(lacking(fault, plan))
        rows.append(
            {
                "name": name,
                "shape": str(fault.shape),
                "targets": list(known_targets(fault, plan)),
                "default_hold_s": fault.default_hold_s,
                "needs": sorted(fault.needs),
                "supported": not lacks,
                "lacking": lacks,
                "summary": fault.summary,
                "params": dict(fault.params) if isinstance(fault, TakesParams) else {},
            }
        )
    kinds = reload_kinds_of(adapter_of(plan.proxy))
    if as_json:
        who = {"proxy": plan.proxy.label, "lab": plan.lab.kind, "reload_kinds": kinds}
        click.echo(json.dumps({**who, "abilities": [asdict(one) for one in found], "faults": rows}, indent=2))
        return EXIT_PASS
    table = _table("fault", "shape", "targets", "holds", f"with {plan.proxy.label}", "what it does")
    for row in rows:
        holds = format_duration(row["default_hold_s"]) if row["default_hold_s"] else "-"
        supported = "yes" if row["supported"] else f"no: lacks {', '.join(row['lacking'])}"
        table.add_row(
            row["name"], row["shape"], ", ".join(row["targets"]) or "-", holds, supported, row["summary"]
        )
    stdout_console().print(table)
    for line in (*in_words(plan, found), *_kinds_in_words(plan.proxy.label, kinds)):
        click.echo(line)
    return EXIT_PASS


def _kinds_in_words(proxy: str, kinds: Sequence[str]) -> list[str]:
    """Say how a proxy with more than one kind of reload is usually reloaded, and how to ask for another."""
    if len(kinds) < 2:
        return []
    others = " or ".join(f"kind={kind}" for kind in kinds[1:])
    return [f"a reload of {proxy} is of kind {kinds[0]}, unless params or --param say {others}"]


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
    from soak.abilities import abilities, warnings_of  # noqa: PLC0415 - keeps --help quick

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
        "abilities": [asdict(one) for one in abilities(wanted)],
        "warnings": [text for _name, text in warnings_of(wanted)],
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
    from soak.abilities import abilities, in_words, warnings_of  # noqa: PLC0415 - keeps --help quick

    console.print(
        f"{wanted.name or 'plan'}: {wanted.rate:,.10g} req/s for {format_duration(wanted.length)} "
        f"({wanted.rate * wanted.length:,.0f} requests) · {wanted.proxy.label} · {wanted.lab.kind} lab with "
        f"{wanted.lab.backends} backends · seed {wanted.seed}"
    )
    for _name, text in warnings_of(wanted):
        console.print(text, style="yellow", markup=False)
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
    for line in (*_never(wanted), *in_words(wanted, abilities(wanted))):
        console.print(line, markup=False)


def _never(wanted: Plan) -> Iterator[str]:
    """Name each series whose first instant lies past the end of the run: it would be missed in silence."""
    for one in wanted.chaos.series:
        due_s = one.every if one.first is None else one.first
        if due_s >= wanted.length:
            yield (
                f"  never {one.fault}: it is first due at {format_duration(due_s)}, and the run ends at "
                f"{format_duration(wanted.length)}"
            )


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
@click.option("--preset", metavar="NAME", help="Write this built-in plan; default: the day, with every key.")
def init(*, path: Path, force: bool, preset: str | None) -> int:
    """Write a commented plan to start from.

    Examples:
      soak init
      soak init gateway.yaml --preset command
    """
    from soak.planfile import preset_text, template  # noqa: PLC0415 - keeps --help quick

    text = template() if preset is None else preset_text(preset)
    try:
        _write_whole(path, text, force=force)
    except FileExistsError as error:
        raise PlanError(
            f"{str(path)!r} exists already; choose another name, or --force to overwrite it"
        ) from error
    except OSError as error:
        raise PlanError(
            f"cannot write {str(path)!r}: {error.strerror}; choose a file in a directory that exists and can be written"
        ) from error
    note(f"wrote {path}; 'soak plan {path}' shows its timeline, 'soak start {path}' runs it")
    return EXIT_PASS


def _write_whole(path: Path, text: str, *, force: bool) -> None:
    """Write a file whole or not at all: a full disk neither leaves half of a new one nor takes the old one away."""
    if not force:
        with path.open("x", encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                path.unlink(missing_ok=True)
                raise
        return
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        place.write_text(text, encoding="utf-8")  # a device, which cannot be replaced; a directory refuses
        return
    scratch = place.with_name(f".{place.name[:200]}.{os.getpid()}")
    try:
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(place)
    finally:
        scratch.unlink(missing_ok=True)
