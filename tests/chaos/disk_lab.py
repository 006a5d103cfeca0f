"""A small lab of real processes whose state is a file, so that a stranger process can open and heal it.

Backends are ``sleep`` processes; identity is pid and start time, as in the real lab.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos.model import Evidence
from chaos.target import BackendState, BackendStatus, Healable, Identity, IdentityChangedError, Target

NAMES = ("b1", "b2")
CHILDREN: set[subprocess.Popen[bytes]] = set()
"""What this process started and must reap."""


def look(pid: int) -> tuple[str, int] | None:
    """State letter and start time of a process; None when there is none (or only a zombie)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else (fields[0], int(fields[19]))


class DiskLab:
    """The target, for the doomed daemon and for its healer alike."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.disposable = (run / "disposable").exists()

    @property
    def recorded(self) -> dict[str, dict[str, int]]:
        path = self.run / "lab.json"
        value: dict[str, dict[str, int]] = json.loads(path.read_text()) if path.exists() else {}
        return value

    def _record(self, name: str, identity: dict[str, int]) -> None:
        new = self.run / "lab.json.new"
        new.write_text(json.dumps({**self.recorded, name: identity}))
        new.replace(self.run / "lab.json")

    def supports(self, capability: str) -> bool:
        return capability.startswith("backend")

    def backend_names(self) -> Sequence[str]:
        return NAMES

    async def backend_status(self, name: str) -> BackendStatus:
        identity = self.recorded.get(name, {})
        seen = look(identity.get("pid", -1))
        if seen is None or seen[1] != identity["started"]:
            return BackendStatus(name, BackendState.STOPPED, {})
        return BackendStatus(name, BackendState.HUNG if seen[0] == "T" else BackendState.RUNNING, identity)

    def _kill(self, identity: Mapping[str, Any], number: signal.Signals) -> None:
        seen = look(identity["pid"])
        if seen is None or seen[1] != identity["started"]:
            raise IdentityChangedError(f"{dict(identity)} is gone")
        os.kill(identity["pid"], number)

    async def _until(self, name: str, state: BackendState) -> None:
        while (await self.backend_status(name)).state is not state:
            await asyncio.sleep(0.01)

    async def backend_stop(self, name: str, identity: Identity, *, force: bool) -> None:
        self._kill(identity, signal.SIGKILL if force else signal.SIGTERM)
        await self._until(name, BackendState.STOPPED)

    async def backend_start(self, name: str) -> Identity:
        if (status := await self.backend_status(name)).state is BackendState.STOPPED:
            child = subprocess.Popen(["sleep", "600"], start_new_session=True)
            CHILDREN.add(child)
            seen = look(child.pid)
            assert seen is not None
            self._record(name, {"pid": child.pid, "started": seen[1]})
            return self.recorded[name]
        return status.identity

    async def backend_pause(self, name: str, identity: Identity) -> None:
        self._kill(identity, signal.SIGSTOP)
        await self._until(name, BackendState.HUNG)

    async def backend_resume(self, name: str, identity: Identity) -> None:
        self._kill(identity, signal.SIGCONT)
        await self._until(name, BackendState.RUNNING)

    async def proxy_identity(self) -> Identity:
        return {"pid": 1}

    def generation(self) -> int:
        return 1

    async def apply_generation(self, generation: int, *, kind: str = "") -> Evidence:
        raise NotImplementedError

    async def apply_broken_config(self) -> Evidence:
        raise NotImplementedError

    async def install_certificate(self, generation: int) -> Mapping[str, Any]:
        raise NotImplementedError

    async def restore_proxy(self) -> Evidence:
        raise NotImplementedError

    async def release(self) -> Evidence:
        if not self.disposable:
            return Evidence(ok=True)
        ended = []
        for name in NAMES:
            status = await self.backend_status(name)
            if status.state is not BackendState.STOPPED:
                self._kill(status.identity, signal.SIGKILL)
                await self._until(name, BackendState.STOPPED)
                ended.append(status.identity["pid"])
        return Evidence(ok=True, detail={"ended": ended})

    def target(self) -> Target | None:
        return None if self.disposable else self


async def open_lab(run: str) -> Healable:
    """The ``HealableFactory`` of the tests."""
    return DiskLab(Path(run))


async def open_broken(run: str) -> Healable:
    """A lab that cannot be opened at first: its state is half written."""
    marker = Path(run) / "opened"
    if not marker.exists():
        marker.touch()
        raise ValueError("lab.json is half written")
    return DiskLab(Path(run))
