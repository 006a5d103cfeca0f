"""Finds what a plan wants to attach to: the proxy and each backend, by pid file or by label, with the engine where one is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.target import BackendState, Identity, TargetError
from soak.clock import NS, Clock
from soak.errors import LabError
from soak.lab.attached import Role, Thing
from soak.lab.attachedcontainer import AttachedContainer, labels_of
from soak.lab.attachedprocess import AttachedProcess
from soak.lab.attachedtls import origin_tls_of, tls_missing
from soak.lab.backends import answers
from soak.lab.companions import listens, part_of
from soak.lab.engine import Engine
from soak.lab.topology import ProxyAddress, Topology, backend_names
from soak.labplan import AttachLabPlan
from soak.proxies.base import BackendAddress
from soak.rundir import RunDir

PROXY = "proxy"
_POLL_S = 0.2


@dataclass(slots=True)
class Attachments:
    """Everything that one run is attached to."""

    plan: AttachLabPlan
    topology: Topology
    proxy: Thing
    backends: Mapping[str, Thing]
    companions: Mapping[str, Thing]
    """What stands beside the proxy, by the name of the part."""
    engine: Engine | None

    def close(self) -> None:
        """Let go of the engine. Idempotent."""
        if self.engine is not None:
            self.engine.close()


def topology_of(plan: AttachLabPlan) -> Topology:
    """Return where everything listens, as the plan says."""
    where = plan.proxy
    names = backend_names(len(plan.backends))
    return Topology(
        ProxyAddress(where.host, where.http_port, where.https_port, where.tcp_port or 0),
        tuple(
            BackendAddress(name, b.host, b.port, b.tls_port or 0)
            for name, b in zip(names, plan.backends, strict=True)
        ),
        dict(where.ports),
    )


async def attachments_of(
    run: RunDir, plan: AttachLabPlan, clock: Clock, known: Mapping[str, Identity] | None = None
) -> Attachments:
    """Make the things of a plan, and reach the engine when one of them is a container. Raises ``LabError``."""
    engine = await Engine.connect() if plan.needs_engine else None
    seen = known or {}

    def thing(
        name: str, role: Role, pid_file: str | None, start: tuple[str, ...] = (), label: str = ""
    ) -> Thing:
        if pid_file is None:
            assert engine is not None
            labels = labels_of(plan.run, role, label or name)
            return AttachedContainer(name, labels, engine, known=seen.get(name))
        return AttachedProcess(
            name,
            Path(pid_file),
            clock,
            run_id=run.id,
            start=start,
            log=run.lab / f"{name}.log",
            known=seen.get(name),
        )

    names = backend_names(len(plan.backends))
    return Attachments(
        plan,
        topology_of(plan),
        thing(PROXY, Role.PROXY, plan.proxy.pid_file),
        {
            name: thing(name, Role.BACKEND, one.pid_file, one.start)
            for name, one in zip(names, plan.backends, strict=True)
        },
        {
            part_of(name): thing(part_of(name), Role.COMPANION, one.pid_file, label=name)
            for name, one in plan.proxy.companions.items()
        },
        engine,
    )


async def until_all_run(attachments: Attachments, clock: Clock, timeout_s: float) -> Mapping[str, Identity]:
    """Wait until the proxy and every backend run; returns who they are. Raises ``LabError`` naming each that does not."""
    deadline = clock.monotonic_ns() + int(timeout_s * NS)
    while True:
        known, missing = await _look(attachments)
        if not missing:
            return known
        if clock.monotonic_ns() > deadline:
            raise LabError("\n".join(missing))
        await clock.sleep(_POLL_S)


async def missing_now(plan: AttachLabPlan, clock: Clock) -> list[str]:
    """Return a sentence for each that does not run at present. Raises ``LabError`` when the engine cannot be reached."""
    attachments = await attachments_of(RunDir(Path("/nowhere")), plan, clock)
    try:
        return (await _look(attachments))[1]
    finally:
        attachments.close()


async def _look(attachments: Attachments) -> tuple[dict[str, Identity], list[str]]:
    known: dict[str, Identity] = {}
    missing: list[str] = []
    addresses = {address.name: address for address in attachments.topology.backends}
    tls = origin_tls_of(attachments.plan.proxy)
    things = {PROXY: attachments.proxy, **attachments.companions, **attachments.backends}
    for name, thing in things.items():
        try:
            seen = await thing.look()
        except TargetError as error:
            missing.append(str(error))
            continue
        known[name] = seen.identity
        if seen.state is BackendState.STOPPED:
            missing.append(f"{name} does not run: {_how(attachments.plan, name)}")
        elif seen.state is BackendState.HUNG:
            missing.append(f"{name} is suspended; let it go on before a run begins")
        elif name == PROXY and not await listens(
            attachments.plan.proxy.host, attachments.plan.proxy.http_port
        ):
            # Told of a reload before that, it might not know the signal yet, which would end it.
            missing.append(
                f"the proxy runs and does not listen on {attachments.plan.proxy.host}:{attachments.plan.proxy.http_port}; "
                "was it started with what 'soak render' wrote, and is that its address?"
            )
        elif name in addresses and not await answers(addresses[name]):
            address = addresses[name]
            missing.append(
                f"nothing answers as {name} on {address.host}:{address.port}; "
                f"is it 'python -m soak.lab.origin --name {name}', and is that its address?"
            )
        elif name in addresses and (why := await tls_missing(addresses[name], tls)) is not None:
            missing.append(why)
    return known, missing


def _how(plan: AttachLabPlan, name: str) -> str:
    """Say what would make it found."""
    beside = {part_of(one): one for one in plan.proxy.companions}
    label = name
    if name == PROXY:
        role, pid_file, where = Role.PROXY, plan.proxy.pid_file, "lab.attach.proxy.pid_file"
    elif name in beside:
        role, label = Role.COMPANION, beside[name]
        pid_file, where = (
            plan.proxy.companions[label].pid_file,
            f"lab.attach.proxy.companions.{label}.pid_file",
        )
    else:
        index = int(name[1:]) - 1
        role = Role.BACKEND
        pid_file, where = plan.backends[index].pid_file, f"lab.attach.backends[{index}].pid_file"
    if pid_file is not None:
        return f"the pid file {pid_file} names no living process that is older than itself; start it, or set {where}"
    labels = " ".join(f"--label {key}={value}" for key, value in labels_of(plan.run, role, label).items())
    return f"no running container carries its labels; start it with {labels}, or set {where}"
