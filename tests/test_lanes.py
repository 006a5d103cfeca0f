"""How tests are shared out among workers: whole lanes, real time first, and what shares something never at once."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lanes import CALM, EACH, NICE, Lanes, Worker, in_real_time, turn


def item(nodeid: str, group: str = "") -> Any:
    """An item as the hooks see it."""
    mark = pytest.mark.xdist_group(group).mark if group else None
    return SimpleNamespace(
        nodeid=nodeid, get_closest_marker=lambda name: mark if name == "xdist_group" else None
    )


@pytest.mark.parametrize(
    ("nodeid", "lane"),
    [
        ("tests/e2e/test_a.py::test_one@calm", "calm"),
        ("tests/soak/lab/test_b.py::test_two[x::y]@docker", "docker"),
        ("tests/e2e/test_c.py::test_three[a]@each", "tests/e2e/test_c.py::test_three[a]@each"),
        ("tests/certs/test_d.py::test_four[a@b]", "tests/certs/test_d.py"),
        ("tests/soak/load/test_e.py::test_five", "tests/soak/load/"),
    ],
)
def test_a_test_is_in_one_lane(nodeid: str, lane: str) -> None:
    """A named group, itself, or its file; the load engine's files are one."""
    assert lane == Lanes._split_scope(Lanes.__new__(Lanes), nodeid)


def test_real_time_comes_first_then_what_is_shared_then_what_is_long() -> None:
    """A worker that has stepped back cannot come forward again, and nothing long is left for the end."""
    rows = [
        item("tests/certs/test_a.py::test_x"),
        item("tests/e2e/test_b.py::test_x"),
        item("tests/soak/proxies/test_c.py::test_x", EACH),
        item("tests/e2e/test_d.py::test_x", EACH),
        item("tests/soak/lab/test_e.py::test_x", "docker"),
        item("tests/soak/load/test_f.py::test_x"),
        item("tests/e2e/test_g.py::test_x", CALM),
    ]
    Worker().pytest_collection_modifyitems(rows)
    assert ["g", "f", "e", "d", "c", "b", "a"] == [row.nodeid.partition("test_")[2][0] for row in rows]
    assert [True, True] + [False] * 5 == [in_real_time(row) for row in rows]
    assert rows == sorted(rows, key=turn)


def test_a_worker_steps_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for what runs in real time, and not again and again."""
    steps: list[int] = []
    monkeypatch.setattr(os, "nice", steps.append)
    worker = Worker()
    worker.pytest_runtest_setup(item("tests/e2e/test_a.py::test_x", CALM))
    worker.pytest_runtest_setup(item("tests/soak/load/test_a.py::test_x"))
    assert [] == steps
    for _ in range(2):
        worker.pytest_runtest_setup(item("tests/certs/test_a.py::test_x"))
    assert [NICE] == steps
