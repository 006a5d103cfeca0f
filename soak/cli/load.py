"""``soak load``: the load engine alone, against any URL, or with the named shapes against a proxy before soak's origins."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from soak.cli.arguments import FILE
from soak.cli.group import DurationType, SoakCommand
from soak.errors import EXIT_FAIL, EXIT_INVALID, EXIT_PASS
from soak.report.tables import CLASS_HEAD, class_rows
from soak.report.text import grid
from soak.shapes import SHAPES, SUMMARIES, Fields

if TYPE_CHECKING:
    from soak.measure.ledger import Ledger

LOST_SHARE = 0.001
"""Share of slots that may go unsent before the measurement is invalid."""
_BAR = 40
_WAIT_SHOWN_S = 1.0
_MOST_URLS = 3


def _needs(fields: Fields) -> str:
    """Return the scheme of the URL that a shape needs."""
    if fields.get("through") == "l4":
        return "tls"
    return "https" if fields.get("tls", True) else "http"


def shape_lines() -> list[str]:
    """Return a line for each shape: its name, how it travels, what it is."""
    rows = [(name, _needs(fields), SUMMARIES[name]) for name, fields in SHAPES.items()]
    return grid(("shape", "needs", "what it is"), rows)


class LoadCommand(SoakCommand):
    """The command, whose help ends in the table of shapes."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the shapes."""
        del ctx
        with formatter.section("Shapes"):
            formatter.write_dl([(name, SUMMARIES[name]) for name in SHAPES])


def _list_shapes(ctx: click.Context, _: click.Parameter, value: Sequence[str]) -> Sequence[str]:
    if "list" in value:
        click.echo("\n".join(shape_lines()))
        ctx.exit()
    return value


@click.command(cls=LoadCommand)
@click.argument("urls", nargs=-1, required=True, metavar="URL [URL [URL]]")
@click.option("--rate", type=float, required=True, metavar="R", help="Requests per second.")
@click.option("--seconds", type=float, required=True, metavar="S", help="How long.")
@click.option(
    "--traffic",
    multiple=True,
    is_eager=True,
    callback=_list_shapes,
    metavar="NAME[=SHARE]",
    help="A named shape, against 'soak lab' or the proxy of a run; several share the rate. 'list' lists them.",
)
@click.option(
    "--connections", type=int, metavar="N", help="Most requests in flight; default: rate x timeout."
)
@click.option("--workers", type=int, default=1, metavar="N", help="Load worker processes; default: 1.")
@click.option(
    "--arrivals",
    type=click.Choice(["uniform", "poisson"]),
    default="uniform",
    help="Equal gaps (the default), or random ones.",
)
@click.option(
    "--coalesce",
    "coalesce_s",
    type=DurationType(zero=True),
    metavar="1ms",
    help="Let a due request wait so long for those behind it: less CPU, that much lag, small bursts. 0: never. "
    "Default: from 10,000 a second and worker on, until ten are due (1 ms at 10,000).",
)
@click.option("--seed", type=click.IntRange(0), default=1, metavar="N", help="Of all randomness; default: 1.")
@click.option("--new-connections", is_flag=True, help="Open a connection for each request.")
@click.option("--host", metavar="NAME", help="Host to ask for; default: the URL's, with --traffic soak.test.")
@click.option(
    "--ca", "ca_file", type=FILE, metavar="FILE", help="Authority to trust instead of the system's."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def load(
    *,
    urls: Sequence[str],
    rate: float,
    seconds: float,
    traffic: Sequence[str],
    as_json: bool,
    **more: Any,
) -> int:
    """Send requests to URL at a fixed rate, whatever the server does, and show what came back.

    Without --traffic these are GET requests for the URL, and every 200 is a success. With it they are those of a shape; the
    server must be a proxy before soak's origins, and identity, length and checksum of each answer are checked. Give its http and
    its https URL when the shapes need both, and tls://HOST:PORT of its byte pipe for l4.

    Latency counts from the instant at which a request was due, so a slow server cannot hide its queue. Exits with 0 when
    every answer was as promised, 1 when some request failed, 3 when the rate was not held.

    Examples:
      soak load http://127.0.0.1:8080/ --rate 1000 --seconds 10
      soak load https://127.0.0.1:8443/ --rate 500 --seconds 60 --ca ca.pem --json
      soak load https://127.0.0.1:8443 --traffic h2=0.9 --traffic post=0.1 --rate 500 --seconds 60 --ca ca.pem
    """
    from soak.load.orders import LoadOrder, parse_traffic  # noqa: PLC0415 - keeps --help quick
    from soak.load.standalone import run_load  # noqa: PLC0415

    if len(urls) > _MOST_URLS:
        raise click.UsageError(
            f"{len(urls)} URLs were given; one, or the http, the https and the tls URL of a proxy"
        )
    for url in urls:
        if (
            not url.isprintable()
        ):  # line ends and tabs are taken out of a URL in silence by the standard library
            raise click.UsageError(
                f"{url!r} is not a URL to load: it holds a control character; leave it out"
            )
    order = LoadOrder(
        url=urls[0],
        other_url=urls[1] if len(urls) > 1 else None,
        third_url=urls[2] if len(urls) > 2 else None,
        rate=rate,
        seconds=seconds,
        traffic=parse_traffic(traffic),
        **more,
    )
    progress = Progress(seconds, terminal=sys.stderr.isatty())
    result = run_load(order, on_second=progress.second)
    progress.close()
    click.echo(json.dumps(result, indent=2) if as_json else render_load(result))
    return exit_code(result)


def exit_code(result: Mapping[str, Any]) -> int:
    """Return 1 when some request failed or was delivered twice, 3 when the rate was not held, else 0."""
    counts = result["load"]
    if result["workers_died"] or result["violations"] or not counts["scheduled"]:
        return EXIT_INVALID
    if counts["failed"] or result["duplicates"]:
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
        """Show the totals so far; after the last slot, what is still waited for."""
        if not self._terminal:
            return
        total = ledger.total()
        second = ledger.newest_second + 1
        flying = ledger.in_flight()
        text = (
            f"{min(second, math.ceil(self._seconds))} of {self._seconds:g} s · {total.sent:,} sent · "
            f"{total.dropped:,} dropped · {total.missed:,} missed"
        )
        if second > self._seconds and flying:
            text += f" · waiting for the end of {flying:,}"
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
    shapes = ", ".join(f"{name} {share:.3g}" for name, share in result["traffic"].items())
    lines = [
        f"{result['url']}  {result['rate']:,.10g} req/s for {result['seconds']:g} s"
        + (f" · {shapes}" if shapes else ""),
        (
            f"  rate held    {sent / scheduled if scheduled else 0:.3%}   {sent:,} of {scheduled:,} sent · "
            f"{counts['dropped']:,} dropped · {counts['missed']:,} missed"
        ),
        f"  outcomes     {outcomes}",
        f"  latency      {_quantiles(counts['latency_ms'])}   (from due)",
        f"  service      {_quantiles(counts['service_ms'])}   (from sent)",
        f"  handshake    {_quantiles(counts['handshake_ms'])}   (connect to usable, each connection opened)",
        f"  lag          {_quantiles(counts['lag_ms'])}   (soak's own)",
        (
            f"  connections  {links['opened']:,} opened · {links['reused']:,} requests on kept ones · "
            f"{links['closed_by_peer']:,} closed by the server"
            + (
                f" · TLS {links['tls_full']:,} full, {links['tls_resumed']:,} resumed"
                if links["tls_full"]
                else ""
            )
        ),
        (
            f"  cost         {'-' if cost is None else f'{cost:g} us'} of CPU per request · "
            f"{own['rss_bytes'] / 1024 / 1024:,.0f} MiB"
        ),
        *_also(result),
    ]
    lines += [f"  broken       {text}" for text in map(str, [*result["violations"], *result["workers_died"]])]
    return "\n".join([*lines, *_classes(counts["classes"]), *histogram(counts["histogram"])])


def _also(result: Mapping[str, Any]) -> list[str]:
    """Return the lines that only some results have: who answered, what was waited for, what went wrong."""
    lines = []
    if origins := result["origins"]:
        shares = " · ".join(f"{name} {o['share']:.1%}" for name, o in origins.items())
        lines.append(f"  backends     {shares}   (of answers that name one)")
    if (waited_s := result["waited_s"]) >= _WAIT_SHOWN_S:
        lines.append(f"  waited       {waited_s:.1f} s after the last slot, for what was in flight")
    if flying := result["load"]["in_flight"]:
        lines.append(f"  in flight    {flying:,}, not waited for")
    if twice := result["duplicates"]:
        lines.append(f"  duplicates   {twice:,} requests that are not idempotent were delivered twice")
    lines += [
        f"  failed       {e['traffic']} {e['outcome']}: {e['error'] or 'no more is known'}"
        for e in result["load"]["examples"]
    ]
    return lines


def _classes(classes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a row for each class, when there are several."""
    if len(classes) < 2:
        return []
    rows = class_rows({"load": {"classes": classes}})
    return ["", *(f"  {line}" for line in grid(CLASS_HEAD, rows, right=CLASS_HEAD[1:]))]


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
