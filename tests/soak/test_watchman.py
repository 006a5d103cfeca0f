"""The watchman: a guardian is there while it is needed, replaced when it is killed, gone when dismissed."""

from __future__ import annotations

import asyncio
import signal
from time import monotonic_ns

import pytest

from soak.errors import LabError
from soak.rundir import RunDir
from soak.watchman import Watchman


def watchman(tmp_path, events, lost, deadline_s=600.0) -> Watchman:
    return Watchman(
        RunDir(tmp_path),
        monotonic_ns() + int(deadline_s * 1e9),
        on_event=lambda name, data: events.append((name, data)),
        on_lost=lost.append,
    )


async def until(look, seconds=15.0):
    async with asyncio.timeout(seconds):
        while not (found := look()):
            await asyncio.sleep(0.02)
    return found


async def test_a_killed_guardian_is_replaced_and_the_last_one_is_dismissed(tmp_path, offspring):
    """Both are events; nothing is left afterwards."""
    events: list[tuple[str, dict[str, object]]] = []
    lost: list[str] = []
    keeper = watchman(tmp_path, events, lost)
    await keeper.start()
    (first,) = offspring()
    first.send_signal(signal.SIGKILL)
    await until(lambda: [name for name, _ in events] == ["guardian.died", "guardian.replaced"])
    assert {"pid": first.pid, "exit": -signal.SIGKILL} == events[0][1]
    assert events[1][1]["pid"] != first.pid
    await keeper.dismiss()
    assert lost == []
    assert offspring() == []


async def test_a_guardian_that_cannot_start_is_a_lab_error_with_its_words(tmp_path, monkeypatch):
    """No run begins unguarded."""
    monkeypatch.setattr("soak.watchman.OPEN_LAB", "soak.nothing:there")
    with pytest.raises(LabError, match=r"soak\.nothing"):
        await watchman(tmp_path, [], []).start()


async def test_one_that_cannot_be_replaced_ends_the_run(tmp_path, monkeypatch, offspring):
    """The loss is told once."""
    lost: list[str] = []
    keeper = watchman(tmp_path, [], lost)
    await keeper.start()
    monkeypatch.setattr("soak.watchman.OPEN_LAB", "soak.nothing:there")
    offspring()[0].kill()
    await until(lambda: lost)
    assert "cannot be replaced" in lost[0]
    await keeper.dismiss()


async def test_one_whose_deadline_has_passed_is_not_replaced(tmp_path, offspring):
    """It has healed a daemon that stands still; the next one would do so at once, again and again."""
    events: list[tuple[str, dict[str, object]]] = []
    lost: list[str] = []
    keeper = watchman(tmp_path, events, lost, deadline_s=0.2)
    await keeper.start()
    await until(lambda: lost)
    await keeper.dismiss()
    assert ["the run should have been over long ago, so its guardian has healed the lab"] == lost
    assert ["guardian.died"] == [name for name, _ in events]
    assert offspring() == []


async def test_one_that_is_ended_again_and_again_ends_the_run(tmp_path, monkeypatch, offspring):
    """A process that somebody ends all day is no guardian."""
    monkeypatch.setattr("soak.watchman._MAX_REPLACED", 1)
    events: list[tuple[str, dict[str, object]]] = []
    lost: list[str] = []
    keeper = watchman(tmp_path, events, lost)
    await keeper.start()
    offspring()[0].kill()
    await until(lambda: len(events) == 2)
    offspring()[0].kill()
    await until(lambda: lost)
    await keeper.dismiss()
    assert ["the guardian was ended 2 times, the last time with exit code -9"] == lost
    assert offspring() == []


async def test_a_watchman_that_dies_of_a_defect_ends_the_run(tmp_path, monkeypatch, offspring):
    """Nobody would replace the next guardian that somebody ends."""
    lost: list[str] = []
    keeper = watchman(tmp_path, [], lost)

    async def dies() -> None:
        raise ValueError("boom")

    monkeypatch.setattr(keeper, "_tend", dies)
    await keeper.start()
    await until(lambda: lost)
    await keeper.dismiss()
    assert ["the daemon's guardian task failed: ValueError('boom'), so nobody watches the guardian"] == lost
    assert offspring() == []
