"""Looks at the host before hour zero: can it carry this plan? Each look is a finding: fine, a warning, or a blocker.

Owns the looks and their words. Changes nothing but this process's own open-file limit, which it raises to the hard one as
the run will. ``soak check`` prints the findings, ``soak start`` refuses on blockers.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import CLOCK_MONOTONIC, clock_getres

import psutil

from soak.abilities import abilities, in_words, needed_by, warnings_of
from soak.clock import Clock, SystemClock, iso_utc
from soak.errors import PlanError, SoakError
from soak.labplan import AttachLabPlan
from soak.plan import Plan, format_duration
from soak.proxies.base import abilities_of
from soak.proxies.catalog import adapter_of
from soak.rundir import RunDir
from soak.runs import (
    MIB,
    all_runs,
    check_space,
    check_writable,
    existing_parent,
    leftovers,
    runs_home,
    space_needed,
)

BASE_FILES = 256
"""Open files apart from requests: the store, logs, idle connections, pipes."""
SECONDS_IN_FLIGHT = 1.0
"""How long every request may hang (a backend that is lost, a reload) without running out of open files."""
STREAM_S = 30
"""How long an answer of a streaming class takes."""
MIN_MEMORY = 400 * MIB
OLDEST_WALL_S = 1_735_689_600.0
"""2025-01-01: a wall clock before it makes every new certificate invalid somewhere."""
TIME_WAIT_S = 60
"""How long Linux keeps a closed connection's port."""

OpenFiles = Callable[[], tuple[int, int]]


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARN = "warn"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look showed. ``text`` is a sentence; for a blocker it names the value and the fix."""

    name: str
    level: Level
    text: str


def preflight(plan: Plan, *, home: Path | None = None, directory: Path | None = None) -> list[Finding]:
    """Return what every look at this host showed, in a fixed order."""
    place = directory if directory is not None else runs_home(home)
    return [
        platform(),
        *subject(plan),
        *able(plan),
        open_files(plan),
        *ports(plan),
        disk(plan, place),
        memory(),
        processors(plan),
        *clocks(),
        *dead_runs(home),
    ]


def refuse_blockers(findings: list[Finding]) -> None:
    """Raise ``PlanError`` with one line for each blocker, if there is any."""
    if blockers := [finding.text for finding in findings if finding.level is Level.BLOCK]:
        raise PlanError("\n".join(blockers))


def platform(name: str = sys.platform) -> Finding:
    """Linux is needed: timerfd, /proc, abstract process facts."""
    if name != "linux":
        return Finding(
            "platform", Level.BLOCK, f"soak runs on Linux and this is {name}: it needs timerfd and /proc"
        )
    return Finding("platform", Level.OK, f"Linux {os.uname().release}, Python {sys.version.split()[0]}")


def subject(plan: Plan) -> Iterator[Finding]:
    """Look for what is to be soaked, where the plan's lab has it."""
    if plan.lab.attach is not None:
        yield from attached(plan, plan.lab.attach)
    elif plan.lab.kind == "docker":
        yield from contained(plan)
    else:
        yield proxy(plan)


def proxy(plan: Plan) -> Finding:
    """Look for the proxy's binary and ask it for its version."""
    try:
        known = adapter_of(plan.proxy)
        binary = known.find_binary(plan.proxy.binary)
        version = known.version(binary)
    except SoakError as error:
        return Finding(plan.proxy.label, Level.BLOCK, str(error))
    return Finding(plan.proxy.label, Level.OK, f"{version} at {binary}")


def attached(plan: Plan, where: AttachLabPlan) -> Iterator[Finding]:
    """Look for the proxy and the backends that somebody else runs; a run waits a while for one that does not run yet."""
    from soak.lab.attachments import missing_now  # noqa: PLC0415 - its libraries are for those who attach

    try:
        missing = asyncio.run(missing_now(where, SystemClock()))
    except SoakError as error:
        yield Finding("attach", Level.BLOCK, str(error))
        return
    for text in missing:
        yield Finding(
            "attach", Level.WARN, f"{text}; a run waits {format_duration(plan.lab.start_timeout)} for it"
        )
    if not missing:
        count = len(where.backends)
        text = f"{plan.proxy.label} and {count} backend{'s' if count > 1 else ''} of somebody else run"
        yield Finding("attach", Level.OK, text)


def contained(plan: Plan) -> Iterator[Finding]:
    """Look whether the container engine answers and has the images of the proxy and of the origins."""
    from soak.lab.dockercheck import look_at_engine  # noqa: PLC0415 - its libraries are for those who use containers

    try:
        look = asyncio.run(look_at_engine(plan))
    except SoakError as error:
        yield Finding("engine", Level.BLOCK, str(error))
        return
    yield Finding("engine", Level.OK, look.engine)
    yield from (Finding("images", Level.BLOCK, text) for text in look.missing)
    if not look.missing:
        yield Finding("images", Level.OK, f"{' and '.join(look.images)} are there")


def able(plan: Plan) -> Iterator[Finding]:
    """Say what the proxy and the lab can and cannot do, that nobody has tried a plan, and what was left out of a preset."""
    declared = None
    with suppress(SoakError):  # what is wrong with the binary is the word of the look before
        known = adapter_of(plan.proxy)
        if plan.lab.kind == "local":  # that of a container may not be on this host
            declared = abilities_of(known, known.find_binary(plan.proxy.binary))
    found = abilities(plan, declared)
    yield Finding("abilities", Level.OK, "; ".join(in_words(plan, found)))
    yield from (Finding(name, Level.WARN, text) for name, text in warnings_of(plan))
    for one in plan.traffic.classes:
        if declared is not None and (needed := needed_by(one)) is not None and needed not in declared:
            text = f"{one.name} needs {needed}, without which this {plan.proxy.label} was built; use another binary"
            yield Finding(plan.proxy.label, Level.BLOCK, text)


def raise_open_files() -> tuple[int, int]:
    """Raise the soft limit of open files to the hard one; return both as they are now."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # a sandbox may forbid even that: what counts is what holds afterwards
        return resource.getrlimit(resource.RLIMIT_NOFILE)
    return hard, hard


def files_needed(plan: Plan) -> int:
    """Return the open files that a process of the run may need: a connection in and one out for each request."""
    in_flight = plan.traffic.max_in_flight or plan.rate * min(
        SECONDS_IN_FLIGHT, plan.traffic.response_timeout
    )
    lasting = sum(
        c.connections if c.protocol == "websocket" else plan.rate * c.share * STREAM_S
        for c in plan.traffic.classes
        if c.protocol == "websocket" or c.streaming
    )
    return BASE_FILES + 2 * int(in_flight + lasting)


def open_files(plan: Plan, limits: OpenFiles = raise_open_files) -> Finding:
    """Compare the limit of open files with what the plan needs."""
    soft, _ = limits()
    needed = files_needed(plan)
    if soft != resource.RLIM_INFINITY and soft < needed:
        return Finding(
            "open files",
            Level.BLOCK,
            f"the limit of open files is {soft:,} and this plan needs {needed:,}; raise it ('ulimit -Hn {needed}' as root), "
            "or lower the rate or traffic.max_in_flight",
        )
    shown = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    return Finding("open files", Level.OK, f"limit {shown}, the plan needs {needed:,}")


def ports(plan: Plan, proc: Path = Path("/proc/sys/net/ipv4")) -> Iterator[Finding]:
    """Bind loopback, the fixed port if there is one, and compare new connections with the ports there are."""
    try:
        _bind("127.0.0.1", 0)
    except OSError as error:
        yield Finding(
            "ports", Level.BLOCK, f"cannot listen on 127.0.0.1: {error.strerror}; is loopback up ('ip link')?"
        )
        return
    try:
        _bind(plan.http_host, plan.http_port)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no name of a host"
        fix = (
            "use another one, or 0 for any" if plan.http_port else "let http_host be an address of this host"
        )
        yield Finding(
            "ports",
            Level.BLOCK,
            f"cannot listen on {plan.http_host}, http_port {plan.http_port}: {why}; {fix}",
        )
        return
    low, high = map(int, (proc / "ip_local_port_range").read_text().split())
    count = high - low + 1
    new = sum(plan.rate * c.share for c in plan.traffic.classes if c.connection == "new")
    new += plan.rate / plan.traffic.max_age
    reuse = int((proc / "tcp_tw_reuse").read_text())
    needed = int(new * (1 if reuse else TIME_WAIT_S))
    if needed > count:
        yield Finding(
            "ports",
            Level.BLOCK,
            f"{new:,.0f} new connections a second need {needed:,} ports and net.ipv4.ip_local_port_range has {count:,}; "
            "widen it, set net.ipv4.tcp_tw_reuse, or lower the share of classes with 'connection: new'",
        )
        return
    yield Finding("ports", Level.OK, f"{count:,} local ports, {new:,.0f} new connections a second")


def _bind(host: str, port: int) -> None:
    family, kind, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen()


def disk(plan: Plan, place: Path) -> Finding:
    """Write a real file where the run is to live, and compare free space with an estimate."""
    needed = space_needed(plan)
    try:
        check_writable(place)
        free = check_space(place, needed)
    except SoakError as error:
        return Finding("disk", Level.BLOCK, str(error))
    return Finding(
        "disk",
        Level.OK,
        f"{free / MIB:,.0f} MiB free under {existing_parent(place)}, the run writes at most {needed / MIB:,.0f} MiB",
    )


def memory(available: Callable[[], int] = lambda: int(psutil.virtual_memory().available)) -> Finding:
    """Compare free memory with what daemon, worker, origins and proxy take together."""
    free = available()
    text = f"{free / MIB:,.0f} MiB available"
    if free < MIN_MEMORY:
        return Finding(
            "memory",
            Level.WARN,
            f"{text}, a run takes about {MIN_MEMORY / MIB:,.0f} MiB; the kernel may end it",
        )
    return Finding("memory", Level.OK, text)


def processors(
    plan: Plan,
    cores: Callable[[], int] = lambda: len(os.sched_getaffinity(0)),
    load: Callable[[], float] = lambda: os.getloadavg()[0],
) -> Finding:
    """Say when other work on this host would show up as latency."""
    count, busy = cores(), load()
    text = f"{count} cores, load {busy:.1f}"
    if count < 2:
        return Finding(
            "processors",
            Level.WARN,
            f"{text}: load engine and {plan.proxy.label} share a core and disturb each other",
        )
    if busy > count:
        return Finding(
            "processors",
            Level.WARN,
            f"{text}: this host is busy, soak may be late and the verdict 'invalid'",
        )
    return Finding("processors", Level.OK, text)


def clocks(
    clock: Clock | None = None, resolution: Callable[[int], float] = clock_getres
) -> Iterator[Finding]:
    """Look at the resolution of the monotonic clock and at the date."""
    tick_s = resolution(CLOCK_MONOTONIC)
    wall_s = (clock or SystemClock()).wall_s()
    if tick_s > 0.001:
        yield Finding(
            "clock",
            Level.BLOCK,
            f"the monotonic clock ticks every {tick_s * 1000:g} ms; pacing needs 1 ms or finer, use another kernel clock source",
        )
    elif wall_s < OLDEST_WALL_S:
        yield Finding(
            "clock",
            Level.BLOCK,
            f"the wall clock says {iso_utc(wall_s)}; set it, certificates are issued by it",
        )
    else:
        yield Finding("clock", Level.OK, f"{iso_utc(wall_s)}, ticks of {tick_s * 1e9:.0f} ns")


def dead_runs(home: Path | None = None) -> Iterator[Finding]:
    """Name the runs that were killed and left something behind."""
    try:
        found = [(run, left) for run in all_runs(home) if (left := leftovers(run))]
    except SoakError as error:
        yield Finding("leftovers", Level.WARN, str(error))
        return
    for run, left in found:
        yield Finding("leftovers", Level.WARN, _leftover(run, left))
    if not found:
        yield Finding("leftovers", Level.OK, "none")


def _leftover(run: RunDir, left: list[str]) -> str:
    return f"the killed run {run.id} left {' and '.join(left)}; 'soak heal {run.id}' cleans up"
