"""What belongs to a docker lab, how it is recognised, and how it is removed: by the live daemon, the guardian or ``soak heal``.

Everything that the lab makes carries two labels, the run's id and the run's directory; by them alone it is found, so a torn
``lab.json`` loses nothing. Nothing without both is ever touched.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certs.install import write_atomically
from chaos.model import Evidence
from chaos.regular import read_regular
from chaos.target import Target
from soak.clock import NS, Clock, SystemClock
from soak.errors import LabError
from soak.lab.containers import Container, Network
from soak.rundir import RunDir

KIND = "docker"
RUN_LABEL = "soak.run"
DIRECTORY_LABEL = "soak.directory"
ROLE_LABEL = "soak.role"
NAME_LABEL = "soak.name"
_LIMIT_S = 20.0
_LOOK_S = 0.1
_LOOKS_TO_BE_SURE = 2


@dataclass(frozen=True, slots=True)
class DockerRecord:
    """What ``lab.json`` says."""

    host: str
    """Where the engine is."""
    released: bool = False


def labels_of(run: RunDir, role: str = "", name: str = "") -> Mapping[str, str]:
    """Return the labels of all that a run makes, or of one part of it."""
    labels = {RUN_LABEL: run.id, DIRECTORY_LABEL: str(run.path.absolute())}
    return {**labels, **({ROLE_LABEL: role} if role else {}), **({NAME_LABEL: name} if name else {})}


def name_of(run: RunDir, part: str) -> str:
    """Return the name of a container or network, which an engine takes: letters, digits, dots, dashes, underscores."""
    known = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in run.id)
    return f"soak-{known}-{part}"


def write_record(run: RunDir, host: str, *, released: bool = False) -> None:
    """Write ``lab.json``: before the first container is made, and again when the last is gone. Raises ``OSError``."""
    value = {
        "schema": 1,
        "kind": KIND,
        "run": run.id,
        "engine": host,
        "labels": dict(labels_of(run)),
        "released": released,
    }
    write_atomically(_second(run), host.encode(), mode=0o644)
    write_atomically(run.lab_state, json.dumps(value, indent=1).encode(), mode=0o644)


def _second(run: RunDir) -> Path:
    """Return the file that says where the engine is, if ``lab.json`` should be torn."""
    return run.lab / "engine"


def read_record(run: RunDir) -> DockerRecord | None:
    """Read ``lab.json``, or the file beside it when that is torn; None when this is no docker lab's."""
    with suppress(OSError, ValueError):
        value: Any = json.loads(read_regular(run.lab_state))
        if not isinstance(value, dict) or value.get("kind") != KIND:
            return None
        return DockerRecord(str(value["engine"]), bool(value["released"]))
    with suppress(OSError, ValueError):
        return DockerRecord(read_regular(_second(run)).decode())
    return None


def still_there(run: RunDir) -> list[str]:
    """Return in words what of a dead run may still be with the engine. Asks no engine."""
    record = read_record(run)
    return [] if record is None or record.released else ["containers and a network"]


async def release(run: RunDir, host: str, clock: Clock | None = None) -> Evidence:
    """Remove every container and network of the run. Idempotent; ``ok`` means that two looks in a row found nothing."""
    from soak.lab.engine import Engine  # noqa: PLC0415 - 'soak runs' reads records and must stay quick

    clock = clock or SystemClock()
    try:
        engine = await Engine.connect(host)
    except LabError as error:
        return Evidence(ok=False, reason=f"the containers of the run cannot be removed: {error}")
    ended: dict[str, str] = {}
    try:
        evidence = await _remove_all(engine, run, clock, ended)
    except LabError as error:
        return Evidence(ok=False, detail={"ended": sorted(ended)}, reason=str(error))
    finally:
        engine.close()
    if evidence.ok and run.lab_state.exists():
        await asyncio.to_thread(write_record, run, engine.host, released=True)
    return evidence


async def _remove_all(engine: Any, run: RunDir, clock: Clock, ended: dict[str, str]) -> Evidence:
    labels = labels_of(run)
    deadline = clock.monotonic_ns() + int(_LIMIT_S * NS)
    empty_looks = 0
    containers: Sequence[Container] = ()
    networks: Sequence[Network] = ()
    while empty_looks < _LOOKS_TO_BE_SURE:
        containers, networks = await engine.list(labels), await engine.networks(labels)
        empty_looks = 0 if containers or networks else empty_looks + 1
        if clock.monotonic_ns() > deadline:
            break
        for one in containers:
            ended[one.name] = one.state
        await asyncio.gather(*(engine.remove(one.id) for one in containers))
        for network in networks:
            ended[network.name] = "network"
            await engine.remove_network(network.id)
        if empty_looks < _LOOKS_TO_BE_SURE:
            await clock.sleep(_LOOK_S)
    left = [one.name for one in containers] + [one.name for one in networks]
    return Evidence(
        ok=not left,
        detail={"ended": [{"name": name, "was": was} for name, was in sorted(ended.items())], "left": left},
        reason=f"{', '.join(left)} are still there after {_LIMIT_S:g} s" if left else "",
    )


class DockerHealable:
    """A docker lab opened from its files. It belongs to the run alone, so healing is removing it."""

    disposable = True

    def __init__(self, run: RunDir, host: str) -> None:
        self._run = run
        self._host = host

    async def release(self) -> Evidence:
        """Remove every container and network of the run, by label."""
        return await release(self._run, self._host)

    def target(self) -> Target | None:
        """Return None: there is nothing to play undos against."""
        return None


def open_docker(path: Path) -> DockerHealable | None:
    """Open the docker lab of a run's directory; None when it has none."""
    run = RunDir(path.absolute())
    record = read_record(run)
    return None if record is None else DockerHealable(run, record.host)
