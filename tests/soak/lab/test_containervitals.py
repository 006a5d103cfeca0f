"""Vitals of a container: from its control group and /proc where they can be seen, from the engine elsewhere."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import psutil
import pytest

from soak.lab.cgroup import Counters
from soak.lab.containers import Container
from soak.lab.containervitals import look_at_container
from soak.lab.enginewords import ContainerGoneError
from soak.lab.process import row_of
from soak.proxies.base import SeenProcess
from soak.proxies.catalog import adapter

ALIVE = Container("c" * 64, "soak-proxy", "nginx:1", "running", {}, started="t1", pid=7)
TOP = (
    SeenProcess(7, 1, ("nginx:", "master", "process", "nginx")),
    SeenProcess(8, 7, ("nginx:", "worker", "process")),
    SeenProcess(9, 7, ("nginx:", "worker", "process", "is", "shutting", "down")),
)


class FakeEngine:
    """An engine with one container."""

    def __init__(self, seen: Container | None, pids: tuple[int, ...] = ()) -> None:
        self.seen = seen
        self.pids = pids

    async def inspect(self, container: str) -> Container:
        if self.seen is None:
            raise ContainerGoneError(f"{container} is gone")
        return self.seen

    async def counters(self, container: Container) -> Counters:
        return Counters(1.5, 4096, 2, 0.5, self.pids)

    async def top(self, container: str) -> tuple[SeenProcess, ...]:
        return TOP


async def look(engine: Any, **more: Any) -> Any:
    return await look_at_container(engine, "c", "proxy", 3.0, **more)


async def test_processes_come_from_the_engine_where_they_cannot_be_seen():
    """With their roles; open files are then not counted."""
    vital = await look(FakeEngine(ALIVE), adapter=adapter("nginx"))
    assert (3.0, "proxy", 4096, 1.5) == (vital.at_s, vital.subject, vital.rss_bytes, vital.cpu_s)
    assert (3, 1, 0) == (vital.processes, vital.old_processes, vital.fds)
    assert {"master": 1, "worker": 1, "old_worker": 1} == vital.detail["roles"]
    assert 2 == vital.detail["oom_kills"]
    assert [] == list(vital.members)  # nobody knows when they were started


async def test_processes_that_can_be_seen_are_read_from_here():
    """Their open files, too; one that has ended meanwhile does not count."""
    vital = await look(FakeEngine(ALIVE, pids=(os.getpid(), 2**22 + 1)))
    assert 1 == vital.processes
    assert vital.fds > 0
    (me,) = vital.members
    assert (os.getpid(), row_of(os.getpid()).started, "other") == (me.pid, me.started, me.role)  # type: ignore[union-attr] # it lives
    assert {"other": 1} == vital.detail["roles"]


async def test_open_files_that_may_not_be_read_are_said_to_be_so(monkeypatch: pytest.MonkeyPatch):
    """Zero would look like a proxy without any."""

    def denied(_process: psutil.Process) -> int:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "num_fds", denied)
    vital = await look(FakeEngine(ALIVE, pids=(os.getpid(),)))
    assert (0, "not readable") == (vital.fds, vital.detail["fds"])


async def test_roles_that_need_all_processes_are_asked_of_the_adapter():
    """As HAProxy's, whose processes look alike."""
    vital = await look(FakeEngine(ALIVE), adapter=adapter("haproxy"))
    assert {"other": 3} == vital.detail["roles"]


@pytest.mark.parametrize("seen", [None, replace(ALIVE, state="exited")])
async def test_what_does_not_run_is_all_zeroes(seen: Container | None):
    """Removed or ended: a look does not fail."""
    vital = await look(FakeEngine(seen))
    assert (0, 0.0, 0, 0) == (vital.rss_bytes, vital.cpu_s, vital.fds, vital.processes)
