"""``soak lab``: the local lab alone, for people: something real to point ``soak load`` and a browser at."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from soak.cli.arguments import ProxyOption
from soak.cli.group import SoakCommand, note
from soak.errors import LabError, PlanError

if TYPE_CHECKING:
    from soak.lab.local import LocalLab
    from soak.plan import Plan
    from soak.rundir import RunDir

_OPEN_LAB = "soak.lab:open_throwaway"
_LONGEST_S = 366 * 86_400
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(cls=SoakCommand)
@click.option("--backends", type=click.IntRange(1, 64), default=3, metavar="N", help="Origins; default: 3.")
@click.option(
    "--routes",
    type=click.IntRange(0, 10_000),
    default=0,
    metavar="N",
    help="Hosts with a route each: r1.soak.test, ...; default: 0.",
)
@click.option(
    "--proxy", cls=ProxyOption, default="nginx", metavar="NAME", help="The proxy; default: nginx. One of"
)
@click.option("--json", "as_json", is_flag=True, help="Print the addresses as one line of JSON.")
def lab(*, backends: int, routes: int, proxy: str, as_json: bool) -> int:
    """Bring up the local lab alone, a proxy with its origins on loopback, and wait.

    It serves every traffic shape. Ctrl-C removes all of it; when it is killed, its guardian does.

    Examples:
      soak lab
      soak lab --backends 5 --routes 1000
      soak lab --json | jq -r .https_url
    """
    from soak.lab.throwaway import create_throwaway, remove_throwaway  # noqa: PLC0415 - keeps --help quick
    from soak.plan import Plan  # noqa: PLC0415
    from soak.proxies.catalog import adapter  # noqa: PLC0415
    from soak.proxyplan import COMMAND  # noqa: PLC0415
    from soak.rundir import soak_home  # noqa: PLC0415

    adapter(proxy)  # or the nearest known name
    if proxy == COMMAND:
        raise PlanError(
            f"--proxy: {proxy!r} is a proxy that only a plan knows, and 'soak lab' takes none; "
            "'soak start PLAN' runs one, or name another proxy"
        )
    plan = Plan.model_validate({"lab": {"backends": backends}, "proxy": {"kind": proxy}})
    run = create_throwaway(soak_home())
    try:
        asyncio.run(_serve(plan, run, routes, as_json=as_json))
    finally:
        remove_throwaway(run)
    return 0


async def _serve(plan: Plan, run: RunDir, routes: int, *, as_json: bool) -> None:
    """Bring it up, say where it is, wait for a signal, take it down. Raises ``LabError``."""
    from soak.clock import NS, SystemClock  # noqa: PLC0415 - keeps --help quick
    from soak.lab.local import LocalLab  # noqa: PLC0415
    from soak.watchman import Watchman  # noqa: PLC0415

    ended = asyncio.Event()
    lost: list[str] = []

    def give_up(reason: str) -> None:
        lost.append(reason)
        ended.set()

    subject = LocalLab(run, plan, on_event=tell, routes=routes)
    deadline_ns = SystemClock().monotonic_ns() + _LONGEST_S * NS
    watchman = Watchman(run, deadline_ns, on_event=tell, on_lost=give_up, open_lab=_OPEN_LAB)
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, ended.set)
    await watchman.start()
    try:
        await subject.start()
        facts = facts_of(subject, plan, run, routes)
        click.echo(json.dumps(facts) if as_json else in_words(facts))
        await ended.wait()
    finally:
        left = await subject.stop()
        await watchman.dismiss()
    if lost or not left.ok:
        raise LabError("; ".join([*lost, left.reason] if left.reason else lost))


def tell(name: str, data: Mapping[str, Any]) -> None:
    """Say on stderr what happened to a process of the lab."""
    words = " ".join(str(data[key]) for key in ("name", "how", "pid", "exit") if key in data)
    note(f"{name} {words}")


def facts_of(subject: LocalLab, plan: Plan, run: RunDir, routes: int) -> dict[str, Any]:
    """Return where everything is, as JSON."""
    address = subject.proxy_address
    return {
        "http_url": f"http://{address.host}:{address.http_port}",
        "https_url": f"https://{address.host}:{address.https_port}",
        "tls_url": f"tls://{address.host}:{address.tcp_port}" if address.tcp_port else None,
        "metrics_url": address.metrics_url or None,
        "ca_file": str(subject.ca_file),
        "server_name": subject.server_name,
        "routes": routes,
        "proxy": plan.proxy.kind,
        "proxy_version": subject.proxy_version,
        "backends": [{"name": b.name, "host": b.host, "port": b.port} for b in subject.backend_addresses],
        "directory": str(run.path),
        "pid": os.getpid(),
    }


_SHAPES = (
    ("/bytes/N", "N known bytes; by all origins in turn"),
    ("/single/bytes/N", "the same, always by b1"),
    ("/echo", "the body of a POST; one that is delivered twice is answered with X-Soak-Duplicate"),
    ("/delay/MS/bytes/N", "MS milliseconds late"),
    ("/drip/MS/bytes/N", "evenly over MS milliseconds"),
    ("/cache/KEY/bytes/N", "from the proxy's cache: ?ttl=S&etag&vary&no-store"),
    ("/ws", "a websocket that echoes"),
)


def in_words(facts: Mapping[str, Any]) -> str:
    """Return the same for a person, with something to try."""
    names = ", ".join(f"{b['name']} {b['host']}:{b['port']}" for b in facts["backends"])
    url, trust = facts["https_url"], f"--ca {facts['ca_file']}"
    lines = [
        f"{facts['proxy']} {facts['proxy_version']} before {names}",
        f"  http   {facts['http_url']}",
        f"  https  {url}   (HTTP/2, too)",
        *(
            [f"  tls    {facts['tls_url']}   (a byte pipe to the origins' own TLS)"]
            if facts["tls_url"]
            else []
        ),
        *([f"  counts {facts['metrics_url']}   (the proxy's own metrics)"] if facts["metrics_url"] else []),
        f"  ca     {facts['ca_file']}",
        f"  files  {facts['directory']}",
        "",
        "it serves",
        *(f"  {path:<20} {meaning}" for path, meaning in _SHAPES),
    ]
    if facts["routes"]:
        last = f"r{facts['routes']}.{facts['server_name']}"
        lines.append(
            f"  {'hosts':<20} r1.{facts['server_name']} to {last}: a route each, named in X-Soak-Route"
        )
    lines += [
        "",
        "try",
        f"  soak load {facts['http_url']}/bytes/1024 --rate 1000 --seconds 10",
        f"  soak load {url}/bytes/102400 --rate 200 --seconds 10 {trust}",
        f"  soak load {url}/bytes/1024 --rate 100 --seconds 10 --new-connections {trust}",
        "",
        "Ctrl-C ends it and removes its files",
    ]
    return "\n".join(lines)
