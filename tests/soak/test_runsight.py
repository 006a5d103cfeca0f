"""The eyes of a run: everything is looked at, what is seen is told, and a last look costs no verdict."""

from __future__ import annotations

import asyncio
import os
from typing import Any, cast

import pytest

from chaos.model import FaultRecord, Source
from soak.clock import RunClock, SystemClock
from soak.lab.base import Lab
from soak.lab.topology import free_ports
from soak.model import Member, Sighting, SightKind, SightVia, WorkerEnd
from soak.plan import Plan
from soak.runsight import RunSight
from tests.soak.fakelab import FakeLab, Told


@pytest.fixture
def lab(tmp_path) -> FakeLab:
    return FakeLab(tmp_path / "certs", free_ports(1)[0])


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def sight(lab: FakeLab, told: Told) -> RunSight:
    """Those of a run whose host is nobody else's business: whoever else is busy here would be told, too."""
    clock = SystemClock()
    plan = Plan.model_validate({"rate": 10, "self": {"max_others": 1}})
    return RunSight(plan, cast("Lab", lab), RunClock(clock, clock.monotonic_ns()), told)


async def test_everything_is_looked_at_from_the_beginning(sight, told):
    """The proxy, this process and each load worker; the origins' counts; and a probe, here of a port where nobody listens."""
    tasks: list[asyncio.Task[Any]] = []
    sight.watch(
        lambda work, name: tasks.append(asyncio.get_running_loop().create_task(work, name=name)),
        lambda: {0: os.getppid(), 1: 2**22 + 1},
    )
    async with asyncio.timeout(30):
        while not (told.vitals and told.totals and told.names):
            await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert ["vitals", "prober", "origins"] == [task.get_name() for task in tasks]
    assert ["proxy", "daemon", "worker-0"] == [vital.subject for vital in told.vitals][:3]
    assert {"b1", "b2", "b3"} == set(told.totals[0].counts)
    assert ("probe.failed", "connect") == (told.names[0], told.events[0][1]["stage"])


async def test_what_the_prober_sees_is_told_and_is_what_faults_wait_for(sight, told):
    """One sighting for both."""
    seen = Sighting(SightKind.SERIAL, "aa", SightVia.PROBE, 1.0, 1.0, 1)
    sight._probed(seen)

    assert [seen] == told.sightings
    assert 1.0 == sight.observer.first_seen(SightKind.SERIAL, "aa")


async def test_a_look_that_fails_ends_the_watch(sight, lab):
    """While a run lives, a lab that cannot be looked at is a defect, and whoever owns the watch hears of it."""
    lab.failing = RuntimeError("no such cgroup")
    work = []
    sight.watch(lambda coro, _name: work.append(coro), dict)
    with pytest.raises(RuntimeError, match="no such cgroup"):
        await work[0]
    for coro in work[1:]:
        coro.close()


@pytest.mark.parametrize("error", [RuntimeError("the engine is gone"), OSError(5, "I/O error")])
async def test_a_last_look_that_fails_is_an_event(sight, lab, told, error):
    """The run is over: it is judged all the same."""
    lab.failing = error
    await sight.last_vitals(9.0, {})
    await sight.last_counts()

    assert [] == told.vitals
    assert [
        ("vitals.not_seen", {"error": str(error)}),
        ("origins.not_counted", {"error": str(error)}),
    ] == told.events


async def test_a_last_look_is_told_like_any_other(sight, told):
    """Stamped with the end of the run."""
    await sight.last_vitals(9.0, {})
    await sight.last_counts()

    assert [(9.0, "proxy"), (9.0, "daemon")] == [(vital.at_s, vital.subject) for vital in told.vitals]
    assert {"requests": 3, "name": 0} == told.totals[-1].counts["b1"]


@pytest.mark.parametrize("under_way", [False, True])
async def test_a_worker_that_is_missing_is_told_with_how(sight, lab, told, under_way):
    """That workers are known is told once; a disturbance of the proxy explains who is missing."""
    reload = FaultRecord(1, "reload", "proxy", Source.SCHEDULE, 0.0, injected_s=0.0)
    work: list[Any] = []
    sight.watch(lambda coro, _name: work.append(coro), dict, lambda: [reload] if under_way else [])
    for coro in work:
        coro.close()
    lab.members = [Member(1, 1.0, "master"), Member(2, 2.0, "worker")]
    lab.ends = {2: WorkerEnd("exited on signal 9", crashed=None)}
    await sight.last_vitals(5.0, {})
    lab.members = [Member(1, 1.0, "master"), Member(3, 3.0, "worker")]
    await sight.last_vitals(10.0, {})

    data = {
        "workers": 1,
        "pids": [2],
        "from_s": 5.0,
        "to_s": 10.0,
        "replaced": 1,
        "how": {"2": "exited on signal 9"},
    }
    died = [] if under_way else [("proxy.worker_died", data)]
    assert [("proxy.workers_known", {}), *died] == told.events
