"""A proxy or a backend that somebody else runs as a process of this host, found by its pid file.

A pid file that names a process which is younger than the file itself is stale: the number was given to a stranger since.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals

from chaos.target import BackendState, Identity, TargetError
from soak.clock import NS, Clock
from soak.lab.attached import Seen, changed
from soak.lab.checking import Checked, run_check
from soak.lab.process import ProcessRow, living, row_of, signal_process
from soak.lab.vitals import Subject, look_at
from soak.model import Vital
from soak.proxies.base import ProxyAdapter, TellsProcesses

_END_TIMEOUT_S = 5.0
_SUSPEND_TIMEOUT_S = 2.0
_POLL_S = 0.01
_SLACK_S = 2.0
"""Start times are counted in ticks and file times by the wall clock, which may be set."""


class AttachedProcess:
    """One process. ``known`` is who it was when it was last seen, and where it worked (``cwd``)."""

    def __init__(
        self,
        name: str,
        pid_file: Path,
        clock: Clock,
        *,
        run_id: str,
        start: Sequence[str] = (),
        log: Path,
        known: Identity | None = None,
    ) -> None:
        self.name = name
        self._pid_file = pid_file
        self._clock = clock
        self._run_id = run_id
        self._start = tuple(start)
        self._log = log
        self._known: Identity = {} if known is None else known

    async def look(self) -> Seen:
        """Look at the process that is known, else at the one that the pid file names. Raises ``TargetError`` for a file that names none."""
        row = living(self._known) or self._named()
        if row is None:
            return Seen(BackendState.STOPPED, {})
        if living(self._known) is None:
            self._known = {**row.identity, "cwd": _cwd(row.pid)}
        return Seen(BackendState.HUNG if row.suspended else BackendState.RUNNING, dict(self._known))

    async def begin(self) -> None:
        """Run the plan's command in the directory in which the process worked; it outlives soak."""
        if living(self._known) is not None:
            return
        directory = str(self._known.get("cwd") or "/")
        try:
            await asyncio.wrap_future(_start_apart(self.name, self._start, directory, self._log))
        except OSError as error:
            raise TargetError(
                f"{self.name} could not be started again with {self._start[0]!r} in {directory}: "
                f"{error.strerror or error}; correct 'start' in the plan"
            ) from error

    async def end(self, identity: Identity, *, force: bool) -> None:
        """Send SIGTERM or SIGKILL; returns once the process is gone (at most 5 s)."""
        await self.signal(identity, SIGKILL if force else SIGTERM)
        row = living(identity)
        if row is not None and row.suspended:
            await self.signal(identity, SIGCONT)  # else it would never act on SIGTERM
        deadline = self._clock.monotonic_ns() + int(_END_TIMEOUT_S * NS)
        while living(identity) is not None:
            if self._clock.monotonic_ns() > deadline:
                raise TargetError(
                    f"{self.name} (pid {identity['pid']}) still lives {_END_TIMEOUT_S:g} s after it was told to end"
                )
            await self._clock.sleep(_POLL_S)

    async def suspend(self, identity: Identity) -> None:
        """Send SIGSTOP; returns once the kernel shows it as stopped."""
        await self.signal(identity, SIGSTOP)
        await self._until(identity, suspended=True)

    async def resume(self, identity: Identity) -> None:
        """Send SIGCONT; returns once the kernel shows it as running."""
        await self.signal(identity, SIGCONT)
        await self._until(identity, suspended=False)

    async def signal(self, identity: Identity, number: Signals) -> None:
        """Send a signal to exactly this process."""
        if living(identity) is None:
            raise changed(self.name, identity, (await self.look()).identity)
        try:
            signal_process(identity, number)
        except PermissionError as error:
            raise TargetError(
                f"no permission to signal {self.name} (pid {identity['pid']}); run soak as the user that runs it, or as root"
            ) from error

    async def run(self, command: Sequence[str], *, timeout_s: float) -> Checked:
        """Run a command on this host."""
        return await run_check(command, directory=self._log.parent, run_id=self._run_id, timeout_s=timeout_s)

    async def vital(self, at_s: float, adapter: ProxyAdapter | None) -> Vital:
        """Look at it; at the proxy with all its processes."""
        roles = adapter.roles if isinstance(adapter, TellsProcesses) else None
        role = None if adapter is None else adapter.role
        subject = Subject(self.name, self._known, tree=adapter is not None, role=role, roles=roles)
        return (await look_at([subject], at_s))[0]

    def binary(self) -> Path:
        """Return what it runs. Raises ``TargetError`` when that cannot be read."""
        try:
            return Path(f"/proc/{self._known['pid']}/exe").readlink()
        except (OSError, KeyError) as error:
            raise TargetError(
                f"what the {self.name} runs cannot be read ({error}); run soak as the user that runs it, or set proxy.binary"
            ) from error

    def _named(self) -> ProcessRow | None:
        """Return the living process that the pid file names; None when there is no file, or a stale one."""
        try:
            text = self._pid_file.read_text().strip()
            written_s = self._pid_file.stat().st_mtime
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TargetError(
                f"the pid file {self._pid_file} of {self.name} cannot be read: {error.strerror}; "
                "run soak as a user who may, or set another pid_file"
            ) from error
        if not text.isdigit():
            raise TargetError(
                f"the pid file {self._pid_file} of {self.name} holds {text[:40]!r}, which is no pid"
            )
        row = row_of(int(text))
        if row is None or not row.alive:
            return None
        began_s = self._clock.wall_s() - _uptime_s() + row.started
        return None if began_s > written_s + _SLACK_S else row

    async def _until(self, identity: Identity, *, suspended: bool) -> None:
        deadline = self._clock.monotonic_ns() + int(_SUSPEND_TIMEOUT_S * NS)
        while True:
            row = living(identity)
            if row is None:
                raise changed(self.name, identity, {})
            if row.suspended is suspended:
                return
            if self._clock.monotonic_ns() > deadline:
                raise TargetError(
                    f"{self.name} (pid {row.pid}) is still in state {row.state} {_SUSPEND_TIMEOUT_S:g} s after the signal"
                )
            await self._clock.sleep(_POLL_S)


def _start_apart(name: str, argv: Sequence[str], directory: str, log: Path) -> Future[None]:
    """Start a process that is to outlive us, from a thread that does nothing but wait for its end, so that none stays a zombie."""
    started: Future[None] = Future()

    def run() -> None:
        try:
            with log.open("ab") as said:
                process = subprocess.Popen(
                    argv,
                    cwd=directory,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    start_new_session=True,
                )
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(None)
        process.wait()

    threading.Thread(target=run, name=f"wait-for-{name}", daemon=True).start()
    return started


def _cwd(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - a link of the kernel, not a path to resolve
    except OSError:
        return "/"


def _uptime_s() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])
