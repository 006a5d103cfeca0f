"""When a wish may begin: its turn, the gap, the order of arrival, overlaps, and waits that have an end."""

from __future__ import annotations

import pytest

from chaos.admission import MAX_WAITING
from chaos.model import FaultOutcome, FaultRequest, Source
from chaos.target import BackendState, TargetError
from tests.chaos.harness import Rig


async def test_backends_are_taken_in_turn_when_none_is_named(rig: Rig):
    """Without a target each backend gets its turn."""
    targets = [(await rig.run("backend-down", 5.0)).target for _ in range(4)]
    assert targets == ["b1", "b2", "b3", "b1"]


async def test_the_gap_counts_from_recovery(rig: Rig):
    """The second fault begins the gap after traffic had recovered from the first one, not after that was known."""
    first = rig.start("reload")
    second = rig.start("reload")
    a = await rig.clock.drive(first)
    b = await rig.clock.drive(second)
    assert a.recovered_s is not None
    assert b.injected_s == pytest.approx(a.recovered_s + 4.0)
    assert (
        "fault.waiting",
        "#1 reload on proxy is still active, and faults run one at a time unless told to overlap",
    ) in [(name, data.get("reason")) for name, data in rig.events]


async def test_a_fault_that_cannot_begin_in_time_is_skipped_with_the_reason(rig: Rig):
    """A wait has an end; what could not begin is a record and an event, never silence."""
    long = rig.start("backend-down", 100.0)
    late = await rig.run("reload")
    assert late.outcome is FaultOutcome.SKIPPED
    assert late.reason.startswith("it could not begin within 60 s: #1 backend-down on b1 is still active")
    assert rig.clock.now() == pytest.approx(60.0, abs=0.2)
    assert rig.records[-1] == late
    assert ("fault.skipped", late.reason) in [(n, d.get("reason")) for n, d in rig.events]
    await rig.clock.drive(long)


async def test_overlap_runs_beside_a_fault_with_other_resources(rig: Rig):
    """An injection that asks for it runs at once, beside the active fault."""
    down = rig.start("backend-down", 20.0, "b1")
    await rig.clock.advance(2)
    reload = await rig.run("reload", overlap=True)
    assert reload.outcome is FaultOutcome.VERIFIED
    assert reload.injected_s == pytest.approx(2.0)
    assert not down.done()
    assert (await rig.clock.drive(down)).outcome is FaultOutcome.VERIFIED


async def test_overlap_never_takes_the_last_backend(rig: Rig):
    """Two backends away of three is allowed when asked for; the third stays, and the wish waits for one to return."""
    first = rig.start("backend-down", 20.0, "b1", overlap=True)
    second = rig.start("backend-hang", 20.0, "b2", overlap=True)
    await rig.clock.advance(1)
    third = rig.start("backend-kill", 5.0, "b3", overlap=True)
    await rig.clock.advance(5)
    assert rig.target.states["b3"] is BackendState.RUNNING
    for task in (first, second, third):
        assert (await rig.clock.drive(task)).outcome is FaultOutcome.VERIFIED


async def test_two_faults_are_never_on_one_backend(rig: Rig):
    """Even an overlapping wish waits for the resource."""
    first = rig.start("backend-down", 10.0, "b1")
    await rig.clock.advance(1)
    second = await rig.run("backend-hang", 5.0, "b1", overlap=True)
    assert second.injected_s is not None
    assert first.done()
    reverted_s = first.result().reverted_s
    assert reverted_s is not None
    assert second.injected_s > reverted_s


async def test_wishes_are_granted_in_order_of_arrival(rig: Rig):
    """A wish that needs a longer look at the lab first is not overtaken by a quicker one."""

    async def slow() -> None:
        await rig.clock.sleep(1.0)

    rig.target.plan("backend_status", slow, slow, slow)
    first, second = rig.start("backend-down", 5.0), rig.start("reload")
    a, b = await rig.clock.drive(first), await rig.clock.drive(second)
    assert (a.id, b.id) == (1, 2)
    assert ("fault.waiting", "backend-down came before and still waits") in [
        (name, data.get("reason")) for name, data in rig.events
    ]


async def test_what_the_lab_cannot_do_is_said_by_name(rig: Rig):
    """A missing capability is named."""
    rig.target.capabilities.discard("backend_pause")
    record = await rig.run("backend-hang")
    assert record.reason == "backend-hang needs backend_pause, which this lab and its proxy cannot do"


async def test_a_backend_that_cannot_be_looked_at_is_not_healthy(rig: Rig):
    """A look that raises or stands still counts against the backend, and is an event."""
    rig.target.plan("backend_status", TargetError("connection refused"))
    record = await rig.run("backend-down", 5.0)
    assert record.target == "b2"
    assert ("backend.unseen", {"target": "b1", "reason": "connection refused"}) in rig.events


async def test_a_wish_that_is_cancelled_while_it_waits_leaves_no_trace_in_the_target(rig: Rig):
    """Nothing was granted, so nothing is undone."""
    first = rig.start("backend-down", 10.0, "b1")
    second = rig.start("reload")
    await rig.clock.advance(1)
    second.cancel()
    await rig.clock.drive(first)
    assert second.cancelled()
    assert not any(call.startswith("apply") for call in rig.target.calls)
    await rig.clock.drive(rig.runner.stop())


async def test_no_more_than_some_wait_and_the_schedule_always_may(rig: Rig):
    """A shell loop of injections is refused at once with the reason, and is no more than so many looks at the lab."""
    holder = rig.start("backend-down", 30.0, "b1")
    await rig.clock.advance(1)
    waiting = [rig.start("reload", overlap=bool(n % 2)) for n in range(MAX_WAITING)]
    waiting += [rig.start("backend-hang", 1.0, "b1") for _ in range(MAX_WAITING)]
    planned = rig.runner.submit(FaultRequest("reload", Source.SCHEDULE, 1.0))
    await rig.clock.advance(1)
    refused = [task.result().reason for task in waiting if task.done() and task.result().reason]

    assert refused
    assert {f"{MAX_WAITING} wishes wait already; ask again when some of them have ended"} == set(refused)
    assert not planned.done()
    await rig.clock.drive(rig.runner.stop())
    assert all(task.done() for task in (holder, *waiting, planned))


async def test_who_has_ended_waiting_makes_room(rig: Rig):
    """The count is of those who wait now."""
    for _ in range(2 * MAX_WAITING):
        assert (await rig.run("noop", overlap=True)).outcome is FaultOutcome.VERIFIED
