"""Companions as real processes on a run's directory, for tests: what they say, what they told, and nothing of them left."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from soak.clock import SystemClock
from soak.lab.companionprocesses import CompanionProcesses
from soak.lab.reloading import Said
from soak.lab.state import LabState
from soak.lab.sweep import release
from soak.lab.topology import free_ports
from soak.proxies.companion import Companion, companion_output_of
from soak.rundir import RunDir

LISTENS = """
import signal, socket, sys
port, path = int(sys.argv[1]), sys.argv[2]
def read(*_):
    text = open(path).read()
    print("refused " + text if "bad" in text else "took " + text, flush=True)
signal.signal(signal.SIGHUP, read)
server = socket.create_server(("127.0.0.1", port))
while True:
    signal.pause()
"""
Events = list[tuple[str, Mapping[str, Any]]]


class Bench:
    """Companions on a run's directory, and what they told."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.events: Events = []
        self.file = run.lab / "file"
        self.file.write_text("one")
        (run.lab / "proxy").mkdir()
        (run.lab / "proxy.stdin").touch()
        self.companions = self.new()

    def new(self, *, start_timeout_s: float = 10) -> CompanionProcesses:
        return CompanionProcesses(
            self.run,
            LabState(self.run),
            SystemClock(),
            host="127.0.0.1",
            on_event=lambda name, data: self.events.append((name, data)),
            start_timeout_s=start_timeout_s,
        )

    def wanted(self, name: str = "tls", **fields: Any) -> Companion:
        (port,) = free_ports(1)
        words = {"accepted": "^took", "refused": "^refused", **fields}
        command = [sys.executable, "-ISc", LISTENS, str(port), str(self.file)]
        return Companion(name, command, port, **{"reads": [self.file], **words})

    def said(self, name: str = "tls") -> str:
        return companion_output_of(self.run.lab / "proxy", name).read_text()


@pytest.fixture
async def bench(run: RunDir) -> AsyncIterator[Bench]:
    """Nothing is left of it, whatever a test did."""
    one = Bench(run)
    yield one
    for child in one.companions.members():
        child.expected_to_end = True
    assert (await release(run)).ok


async def accepts() -> Said:
    return Said("accepted", (), (), {"own": "word"})
