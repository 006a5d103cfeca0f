"""Who used the processors, look by look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from soak.model import Vital
from soak.starvation import HostWatch, Processors, read_processors


def vital(subject: str, cpu_s: float) -> Vital:
    return Vital(0.0, subject, rss_bytes=0, cpu_s=cpu_s, fds=0, processes=1, old_processes=0)


class Host:
    """Two processors; each look says what was used since the last one, in seconds."""

    def __init__(self, limit: float = 0.2) -> None:
        self.told: list[tuple[str, Mapping[str, Any]]] = []
        self._watch = HostWatch(limit, lambda name, data: self.told.append((name, data)))
        self._at_s = self._total = self._idle = self._interrupts = 0.0
        self.cpu = {"proxy": 3.0, "worker-0": 1.0}
        self.pass_by()

    def pass_by(self, *, idle: float = 0.0, interrupts: float = 0.0, **used: float) -> None:
        self._at_s += 5.0
        self._total += 10.0
        self._idle += idle
        self._interrupts += interrupts
        for name, seconds in used.items():
            self.cpu[name.replace("_", "-")] += seconds
        vitals = [vital(name, seconds) for name, seconds in self.cpu.items()]
        self._watch.look(self._at_s, vitals, Processors(self._total, self._idle, self._interrupts))


def test_others_that_take_the_processors_are_told_with_what_they_took():
    """Half of the time was theirs, nothing was idle."""
    host = Host()
    host.pass_by(proxy=3.0, worker_0=1.0, interrupts=1.0)
    assert [
        ("host.starved", {"from_s": 5.0, "to_s": 10.0, "others": 0.5, "own": 0.4, "idle": 0.0})
    ] == host.told


@pytest.mark.parametrize(
    "used",
    [
        {"proxy": 7.0, "worker_0": 2.0},  # the proxy itself takes all there is: that is its own doing
        {"proxy": 1.0, "idle": 4.0},  # others work, but nobody waits
        {"proxy": 5.0, "interrupts": 5.0},  # packets, nobody's program
    ],
)
def test_a_host_that_starves_nobody_is_not_told(used):
    """Others must have taken more than their share, and none must be idle."""
    host = Host()
    host.pass_by(**used)
    assert [] == host.told


def test_a_plan_may_allow_others_everything():
    """A limit of 1 can never be passed."""
    host = Host(limit=1.0)
    host.pass_by()
    assert [] == host.told


def test_a_subject_that_was_restarted_counts_with_all_it_has():
    """Its books began anew; what is there is no less than it used."""
    host = Host()
    host.pass_by(proxy=9.0)
    host.cpu["proxy"] = 0.0
    host.pass_by(proxy=9.0)
    assert [] == host.told


def test_the_books_of_this_host_add_up():
    """Idle time and interrupts are parts of the whole, and time goes on."""
    first = read_processors()
    assert 0 < first.idle_s + first.interrupts_s < first.total_s
    assert first.total_s <= read_processors().total_s
