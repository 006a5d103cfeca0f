"""Any proxy, known by the plan alone (``proxy.command``): ReverseDock, Raddex, bouine, a company's own gateway.

Adds nothing to what the plan says: its files are filled with the model of each generation, its commands with paths. What a
reload does and where it shows is the plan's business too, so evidence comes from traffic alone, as for every proxy: the
generation if the plan declares ``marker``, the serial of the certificate if it declares ``cert_rotate``.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGHUP, SIGKILL, Signals
from typing import Any

from soak.commandplan import CommandPlan
from soak.errors import LabError
from soak.proxies._asking import ask_version, find_binary
from soak.proxies.base import (
    Capability,
    ContainerFacts,
    ProcessRole,
    ProxyAdapter,
    ProxyModel,
    ReloadContext,
    Reloaded,
    input_of,
    output_of,
    route_names,
)
from soak.proxyplan import COMMAND, ProxyPlan
from soak.template import fill, fill_all

UNVERSIONED = "unknown"
"""The version of a proxy whose plan does not say how to ask for it."""
_HOW_TO_GET = "install it, or set proxy.binary to its path"
_WORDS = 2000
"""So many characters of what a reload command said are kept."""
_MOST_BYTES = 256 * 1024
_SAY_TIMEOUT_S = 2.0
"""How long the log may take to say what came of a reload command; traffic judges, so silence is no refusal."""
_POLL_S = 0.02
_INSIDE = "/etc/soak/proxy"
"""Where its files are in a container: what they and the commands say of paths is a placeholder anyway."""
_PLACE = CommandPlan.model_validate(
    {"start": ["@{binary}"], "files": {"none": "@{https_port} @{certificate}"}}
)
"""Stands where no plan has spoken yet: it can nothing."""


class CommandAdapter:
    """A proxy by its plan. Reloaded by a signal, or not at all."""

    def __init__(self, plan: CommandPlan, name: str = COMMAND, binary: str = "") -> None:
        self.plan = plan
        self.name = name
        self.capabilities = frozenset(Capability(ability) for ability in plan.can)
        self.limits: Mapping[str, str] = plan.limits
        self.extra_ports: Sequence[str] = plan.ports
        self.stop_grace_s = plan.stop.grace
        self._binary = binary
        """As the plan names it, then as it was found."""
        self.container = ContainerFacts("", _INSIDE, binary)
        """The plan has the image, too: ``lab.docker.proxy_image``."""

    def configured(self, plan: ProxyPlan) -> ProxyAdapter:
        """Return the adapter of the proxy that this plan describes."""
        command = plan.command
        if command is None:
            raise LabError(
                "a proxy of kind 'command' is known by the plan alone; give the plan the key proxy.command"
            )
        called = command.reload is not None and command.reload.signal is None
        return (CallingCommandAdapter if called else CommandAdapter)(command, plan.label, plan.binary or "")

    def find_binary(self, configured: str | None) -> Path:
        """Return the plan's binary; a bare name is looked up on PATH, then beside this Python."""
        configured = configured or self._binary
        if not configured:
            raise LabError(
                f"proxy.binary is not set, and a proxy of kind 'command' is found by it alone; {_HOW_TO_GET}"
            )
        if os.sep not in configured:
            beside = Path(sys.executable).parent / configured
            found = find_binary(configured, None, (configured, beside), _HOW_TO_GET)
        else:
            found = find_binary(self.name, configured, (), _HOW_TO_GET)
        self._binary = str(found)
        return found

    def version(self, binary: Path) -> str:
        """Ask the way the plan says; ``unknown`` when it does not say."""
        asked = self.plan.version
        if asked is None:
            return UNVERSIONED
        here = {"binary": str(binary), "directory": str(Path.cwd()), "config": os.devnull}
        return ask_version(fill_all(asked.command, here), asked.pattern, _HOW_TO_GET)

    def render(self, model: ProxyModel) -> Mapping[str, str]:
        """Return the plan's files, filled; the broken one has the plan's broken text at its end."""
        main = next(iter(self.plan.files))
        values, loops = self._paths(self._binary, model.directory) | _values(model), _loops(model)
        files = {name: fill(text, values, loops) for name, text in self.plan.files.items()}
        if model.broken:
            files[main] = f"{files[main].rstrip()}\n{self.plan.broken}\n"
        return files

    def validate_command(self, binary: Path, directory: Path) -> Sequence[str] | None:
        """Return the plan's, if it has one."""
        command = self.plan.check_command
        return None if command is None else fill_all(command, self._paths(str(binary), directory))

    def start_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return the plan's."""
        return fill_all(self.plan.start, self._paths(str(binary), directory))

    def reload_signal(self) -> Signals:
        """Return the plan's. Not asked for when the plan reloads by a command or not at all."""
        reload = self.plan.reload
        return SIGHUP if reload is None or reload.signal is None else Signals[reload.signal]

    def stop_signal(self) -> Signals:
        """Return the plan's."""
        return Signals[self.plan.stop.signal]

    def main_pid(self, directory: Path) -> int | None:
        """Return the pid in the plan's pid file, None when signals go to what was started. Raises ``LabError``."""
        if self.plan.pid_file is None:
            return None
        path = directory / self.plan.pid_file
        try:
            return int(path.read_text().split()[0])
        except (OSError, ValueError, IndexError) as error:
            raise LabError(
                f"proxy.command.pid_file {str(path)!r} does not hold a pid ({error}); is it where the proxy writes it?"
            ) from error

    def error_log(self, directory: Path) -> Path:
        """Return the plan's log, or the file of the proxy's output."""
        return output_of(directory) if self.plan.log is None else directory / self.plan.log

    def refusals(self, log_text: str) -> Sequence[str]:
        """Return the lines that the plan's ``refused`` finds."""
        return _found(self.plan.refused, log_text)

    def acceptances(self, log_text: str) -> Sequence[str] | None:
        """Return the lines that the plan's ``accepted`` finds; None when it has none."""
        return None if self.plan.accepted is None else _found(self.plan.accepted, log_text)

    def role(self, cmdline: str) -> ProcessRole:
        """Tell by the plan's patterns, old workers first: their titles often hold those of the others."""
        known = self.plan.processes
        for pattern, role in (
            (known.old_worker, ProcessRole.OLD_WORKER),
            (known.worker, ProcessRole.WORKER),
            (known.master, ProcessRole.MASTER),
        ):
            if pattern is not None and re.search(pattern, cmdline):
                return role
        return ProcessRole.OTHER

    def _config(self, directory: Path) -> Path:
        return directory / next(iter(self.plan.files))

    def _paths(self, binary: str, directory: Path) -> dict[str, str]:
        return {
            "binary": binary,
            "directory": str(directory),
            "config": str(self._config(directory)),
        }


class CallingCommandAdapter(CommandAdapter):
    """One that is reloaded by a command, or that watches its files. What came of it is then read in the log, if it says."""

    async def reload(self, context: ReloadContext) -> Reloaded:
        """Run the plan's command; a status other than 0 is a refusal in the words of its output.

        Then the log may still refuse. Cancelled, it kills the command and what that started in its session.
        """
        log = self.error_log(context.directory)
        mark = _size(log)
        detail: dict[str, Any] = {}
        if (command := self._reload_command(context)) is not None:
            run = context.run or (lambda argv: _run(argv, context.directory))
            status, said = await run(command)
            detail = {"status": status, "output": said[-_WORDS:]}
            if status != 0:
                words = said or f"'{' '.join(command)}' ended with status {status} and said nothing"
                return Reloaded(accepted=False, reason=words.splitlines()[-1], detail=detail)
        refusals, accepted = await self._heard(log, mark)
        detail |= {"said": "refused" if refusals else "accepted" if accepted else "nothing"}
        return Reloaded(accepted=not refusals, reason=refusals[-1] if refusals else "", detail=detail)

    def _reload_command(self, context: ReloadContext) -> list[str] | None:
        wanted = self.plan.reload
        if wanted is None or wanted.command is None:
            return None
        values = self._paths(self._binary, context.directory) | _port_values(context.ports)
        pid = self.main_pid(context.directory) or context.pid
        return fill_all(wanted.command, values | {"pid": str(pid)})

    async def _heard(self, log: Path, mark: int) -> tuple[Sequence[str], bool]:
        """Read the log on until it says what came of the reload: at most 2 s, and not at all when the plan has no patterns."""
        if self.plan.refused is None and self.plan.accepted is None:
            return (), False
        clock = asyncio.get_running_loop()
        deadline = clock.time() + _SAY_TIMEOUT_S
        while True:
            text = _since(log, mark)
            if refusals := self.refusals(text):
                return refusals, False
            if self.acceptances(text) or clock.time() > deadline:
                return (), bool(self.acceptances(text))
            await asyncio.sleep(_POLL_S)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _since(path: Path, mark: int) -> str:
    """Return what a log says from a mark on; all of it when it was cut meanwhile."""
    try:
        with path.open("rb") as file:
            file.seek(mark if mark <= path.stat().st_size else 0)
            return file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""


async def _run(command: Sequence[str], directory: Path) -> tuple[int | None, str]:
    """Run a command where the proxy runs, marked as the lab's by its input; returns its status and what it said."""
    with _input(directory) as marker:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=directory.parent,
            stdin=marker,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, SIGKILL)
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace").strip()


@contextmanager
def _input(directory: Path) -> Iterator[int]:
    """Give the file that the proxy got as its input: by it a command of a run that died is found, and ended."""
    path = input_of(directory)
    descriptor = os.open(path if path.exists() else os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _found(pattern: str | None, text: str) -> list[str]:
    return [] if pattern is None else [line for line in text.splitlines() if re.search(pattern, line)]


def _port_values(ports: Mapping[str, int]) -> dict[str, str]:
    return {f"port.{name}": str(number) for name, number in ports.items()}


def _values(model: ProxyModel) -> dict[str, str]:
    return {
        "generation": str(model.generation),
        "host": model.listen_host,
        "http_port": str(model.http_port),
        "https_port": str(model.https_port),
        "tcp_port": str(model.tcp_port),
        "server_name": model.server_name,
        "workers": str(model.workers),
        "routes": str(model.routes),
        "extra": model.extra,
        "certificate": str(model.certificate),
        "key": str(model.key),
        "bundle": str(model.bundle),
        "version": model.version,
        "first.name": model.backends[0].name,
        "first.host": model.backends[0].host,
        "first.port": str(model.backends[0].port),
        **_port_values(model.ports),
    }


def _loops(model: ProxyModel) -> dict[str, list[dict[str, str]]]:
    backends = [
        {
            "backend.name": backend.name,
            "backend.host": backend.host,
            "backend.port": str(backend.port),
            "backend.tls_port": str(backend.tls_port),
        }
        for backend in model.backends
    ]
    routes = [
        {"route.name": name, "route.host": f"{name}.{model.server_name}"}
        for name in route_names(model.routes)
    ]
    return {"backend": _with_commas("backend", backends), "route": _with_commas("route", routes)}


def _with_commas(what: str, items: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{**item, f"{what}.comma": "," if i < len(items) else ""} for i, item in enumerate(items, 1)]


ADAPTER = CommandAdapter(_PLACE)
