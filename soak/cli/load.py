"""``soak load``: the load engine alone, against any URL."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from soak.cli.group import SoakCommand
from soak.errors import EXIT_FAIL, EXIT_INVALID, EXIT_PASS

if TYPE_CHECKING:
    from soak.measure.ledger import Ledger

LOST_SHARE = 0.001
"""Share of slots that may go unsent before the measurement is invalid."""
_BAR = 40


@click.command(cls=SoakCommand)
@click.argument("url")
@click.option("--rate", type=float, required=True, metavar="R", help="Requests per second.")
@click.option("--seconds", type=float, required=True, metavar="S", help="How long.")
@click.option(
    "--connections", type=int, metavar="N", help="Most requests in flight; default: rate x timeout."
)
@click.option("--workers", type=int, default=1, metavar="N", help="Load worker processes; default: 1.")
@click.option("--new-connections", is_flag=True, help="Open a connection for each request.")
@click.option("--ca", "ca_file", metavar="FILE", help="Authority to trust instead of the system's.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def load(
    *,
    url: str,
    rate: float,
    seconds: float,
    connections: int | None,
    workers: int,
    new_connections: bool,
    ca_file: str | None,
    as_json: bool,
) -> int:
    """Send GET requests to URL at a fixed rate, whatever the server does, and show what came back.

    Latency counts from the instant at which a request was due, so a slow server cannot hide its queue. Exits with 0 when
    every answer was 200, 1 when some request failed, 3 when the rate was not held.

    Examples:
      soak load http://127.0.0.1:8080/ --rate 1000 --seconds 10
      soak load https://127.0.0.1:8443/ --rate 500 --seconds 60 --ca ca.pem --json
    """
    from soak.load.standalone import LoadOrder, run_load  # noqa: PLC0415 - keeps --help quick

    order = LoadOrder(
        url=url,
        rate=rate,
        seconds=seconds,
        connections=connections,
        workers=workers,
        new_connections=new_connections,
        ca_file=ca_file,
    )
    progress = Progress(seconds, terminal=sys.stderr.isatty())
    result = run_load(order, on_second=progress.second)
    progress.close()
    click.echo(json.dumps(result, indent=2) if as_json else render_load(result))
    return exit_code(result)


def exit_code(result: Mapping[str, Any]) -> int:
    """Return 1 when some request failed, 3 when the rate was not held, else 0."""
    counts = result["load"]
    if result["workers_died"] or result["violations"] or not counts["scheduled"]:
        return EXIT_INVALID
    if counts["failed"]:
        return EXIT_FAIL
    lost = counts["dropped"] + counts["missed"]
    return EXIT_INVALID if lost > LOST_SHARE * counts["scheduled"] else EXIT_PASS


class Progress:
    """One line on stderr, rewritten each second on a terminal; silent elsewhere."""

    def __init__(self, seconds: float, *, terminal: bool) -> None:
        self._seconds = seconds
        self._terminal = terminal
        self._shown = False

    def second(self, ledger: Ledger) -> None:
        """Show the totals so far."""
        if not self._terminal:
            return
        total = ledger.total()
        text = (
            f"{min(ledger.newest_second + 1, math.ceil(self._seconds))} of {self._seconds:g} s · {total.sent:,} sent · "
            f"{total.dropped:,} dropped · {total.missed:,} missed"
        )
        click.echo(f"\r\x1b[K{text}", err=True, nl=False, color=True)
        self._shown = True

    def close(self) -> None:
        """Clear the line."""
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False, color=True)


def render_load(result: Mapping[str, Any]) -> str:
    """Return the result as text for a person."""
    counts, links, own = result["load"], result["connections"], result["self"]
    sent, scheduled = counts["sent"], counts["scheduled"]
    outcomes = ", ".join(f"{n:,} {name}" for name, n in counts["outcomes"].items()) or "none"
    cost = own["cpu_us_per_request"]
    lines = [
        f"{result['url']}  {result['rate']:,.10g} req/s for {result['seconds']:g} s",
        (
            f"  rate held    {sent / scheduled if scheduled else 0:.3%}   {sent:,} of {scheduled:,} sent · "
            f"{counts['dropped']:,} dropped · {counts['missed']:,} missed"
        ),
        f"  outcomes     {outcomes}",
        f"  latency      {_quantiles(counts['latency_ms'])}   (from due)",
        f"  service      {_quantiles(counts['service_ms'])}   (from sent)",
        f"  lag          {_quantiles(counts['lag_ms'])}   (soak's own)",
        (
            f"  connections  {links['opened']:,} opened · {links['reused']:,} requests on kept ones · "
            f"{links['closed_by_peer']:,} closed by the server"
        ),
        (
            f"  cost         {'-' if cost is None else f'{cost:g} us'} of CPU per request · "
            f"{own['rss_bytes'] / 1024 / 1024:,.0f} MiB"
        ),
    ]
    lines += [f"  broken       {text}" for text in map(str, [*result["violations"], *result["workers_died"]])]
    return "\n".join([*lines, *histogram(counts["histogram"])])


def _quantiles(ms: Mapping[str, float]) -> str:
    return f"p50 {ms['p50']:.2f} ms · p99 {ms['p99']:.2f} ms · p99.9 {ms['p999']:.2f} ms · max {ms['max']:.2f} ms"


def histogram(rows: Sequence[Sequence[float]]) -> list[str]:
    """Return a bar a row for ``[lower end in ms, count]``, scaled to the largest."""
    if not rows:
        return []
    most = max(n for _, n in rows)
    lines = ["", "  latency, ms"]
    for low, n in rows:
        bar = "█" * max(1, round(_BAR * n / most)) if n else ""
        lines.append(f"  {low:>10.3f}  {int(n):>10,}  {bar}")
    return lines
