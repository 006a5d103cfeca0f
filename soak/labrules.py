"""What a plan asks of its lab that this lab would never carry out, with this proxy: refused, for the alternative is to ignore it.

Pure: takes a valid ``Plan``, yields sentences; ``soak.planrules`` asks it with all its other rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from soak.commandplan import CommandPlan, StopPlan
from soak.errors import nearest
from soak.labplan import AttachLabPlan, DockerLabPlan
from soak.plan import Plan
from soak.proxies.base import (
    METRICS_PORT,
    Capability,
    NeedsPorts,
    ProxyAdapter,
    RunsInContainer,
)
from soak.proxies.catalog import adapter_of
from soak.proxies.companion import HasCompanions
from soak.yamlfile import KeyPath

_KIND: KeyPath = ("proxy", "kind")
_COMMAND: KeyPath = ("proxy", "command")
_ATTACHED: KeyPath = ("lab", "attach", "proxy")


def broken_lab_rules(plan: Plan) -> Iterator[tuple[KeyPath, str]]:
    """Yield the key path and a sentence for each thing that the lab of this plan would leave undone."""
    adapter = adapter_of(plan.proxy)
    if plan.lab.kind == "docker" and not isinstance(adapter, RunsInContainer):
        text = (
            f"proxy.kind: {adapter.name} has no image that soak knows, which lab docker needs; "
            "run it in lab local, or in containers of your own (lab attach)"
        )
        yield _KIND, text
    if plan.lab.docker is not None:
        yield from _companions(
            adapter, plan.lab.docker.companion_images, ("lab", "docker", "companion_images")
        )
    if plan.lab.docker is not None and plan.proxy.command is not None:
        yield from _in_image(plan, plan.lab.docker, plan.proxy.command)
    if (where := plan.lab.attach) is not None:
        yield from _taken_over(adapter)
        yield from _companions(adapter, where.proxy.companions, (*_ATTACHED, "companions"))
        yield from _lacking(adapter, where)
        yield from _ports(adapter, where)
        yield from _pipe(plan, adapter, where)
        if (command := plan.proxy.command) is not None:
            yield from _of_command(command, contained=where.proxy.pid_file is None)


def _in_image(plan: Plan, where: DockerLabPlan, command: CommandPlan) -> Iterator[tuple[KeyPath, str]]:
    """Yield what a proxy that only the plan knows must be told before it can be run from an image."""
    if where.proxy_image is None:
        text = (
            f"lab.docker.proxy_image is missing: soak knows no image of {plan.proxy.label}; name the one that has it "
            "(or --proxy-image)"
        )
        yield ("lab", "docker"), text
    yield from _version(command, "lab docker has the proxy in one")


def _version(command: CommandPlan, why: str) -> Iterator[tuple[KeyPath, str]]:
    """Yield a question for the version that would be asked on the wrong side."""
    version = None if command.version is None else command.version.command
    if version is not None and version[0] != "@{binary}":
        text = (
            f"proxy.command.version: {version[0]!r} would be asked on this host and not in the container, and {why}; "
            "begin the command with '@{binary}', which is run inside"
        )
        yield (*_COMMAND, "version"), text


def _taken_over(adapter: ProxyAdapter) -> Iterator[tuple[KeyPath, str]]:
    """Yield why a proxy of somebody else cannot be made to serve what soak renders."""
    if Capability.RELOAD not in adapter.capabilities:
        text = (
            f"proxy.kind: {adapter.name} cannot reload, and lab attach takes a proxy over by a reload, for it starts none; "
            "use lab local"
        )
        yield _KIND, text


def _companions(adapter: ProxyAdapter, given: Collection[str], at: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield each name that is none of the proxy's companions."""
    known = _names(adapter)
    for name in given:
        if name not in known:
            end = nearest(name, known) if known else f"; it has none, remove {at[-1]}"
            yield (*at, name), f"{'.'.join(map(str, at))}: {adapter.name} has no companion {name!r}{end}"


def _lacking(adapter: ProxyAdapter, where: AttachLabPlan) -> Iterator[tuple[KeyPath, str]]:
    """Yield the companions without which the proxy is not whole and of which nobody said where they run."""
    if lacking := sorted({*_names(adapter)} - {*where.proxy.companions}):
        text = (
            f"lab.attach.proxy.companions: {adapter.name} is not whole without {', '.join(lacking)}; say where that runs: "
            f"{{{lacking[0]}: {{pid_file: /run/{lacking[0]}.pid}}}}, or {{{lacking[0]}: {{}}}} for the container with the labels "
            f"soak.role=companion and soak.name={lacking[0]}"
        )
        yield (*_ATTACHED, "companions"), text


def _names(adapter: ProxyAdapter) -> tuple[str, ...]:
    return tuple(adapter.companion_names) if isinstance(adapter, HasCompanions) else ()


def _ports(adapter: ProxyAdapter, where: AttachLabPlan) -> Iterator[tuple[KeyPath, str]]:
    """Yield each named port that the proxy does not listen on, and those that it needs and nobody named."""
    wanted = tuple(adapter.extra_ports) if isinstance(adapter, NeedsPorts) else ()
    for name in where.proxy.ports:
        if name not in wanted:
            known = nearest(name, wanted) if wanted else "; it has none, remove ports"
            yield (
                (*_ATTACHED, "ports", name),
                f"lab.attach.proxy.ports: {adapter.name} listens on no port {name!r}{known}",
            )
    if lacking := sorted({*wanted} - {*where.proxy.ports, METRICS_PORT}):
        text = f"lab.attach.proxy.ports: {adapter.name} listens on more ports, which must stand there: {', '.join(lacking)}"
        yield (*_ATTACHED, "ports"), text


def _pipe(plan: Plan, adapter: ProxyAdapter, where: AttachLabPlan) -> Iterator[tuple[KeyPath, str]]:
    """Yield what lacks for a byte pipe, and a pipe that the proxy cannot have."""
    port, able = where.proxy.tcp_port, Capability.TCP in adapter.capabilities
    if port is not None and not able:
        text = f"lab.attach.proxy.tcp_port: {adapter.name} has no byte pipe to listen on {port}; remove it"
        yield (*_ATTACHED, "tcp_port"), text
    for i, one in enumerate(plan.traffic.classes):
        if one.through == "l4" and port is None and able:
            text = (
                f"traffic.classes[{i}]: {one.name} goes through l4, and lab.attach does not say where that is; "
                "set proxy.tcp_port, and tls_port of every backend"
            )
            yield ("traffic", "classes", i, "through"), text


def _of_command(command: CommandPlan, *, contained: bool) -> Iterator[tuple[KeyPath, str]]:
    """Yield what a plan says of a proxy that it starts itself, and that is nothing to one that somebody else runs."""
    if contained:
        yield from _version(command, "the attached proxy is one")
    if command.pid_file is not None:
        text = (
            f"proxy.command.pid_file: lab attach signals who lab.attach.proxy names (its pid_file, or its labels), not "
            f"{command.pid_file!r}; remove it"
        )
        yield (*_COMMAND, "pid_file"), text
    if command.stop != StopPlan():
        text = f"proxy.command.stop: lab attach never ends a proxy, so {command.stop.signal} would never be sent; remove it"
        yield (*_COMMAND, "stop"), text
