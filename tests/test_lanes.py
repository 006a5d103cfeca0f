"""How tests are shared out among workers: whole lanes, real time first, and what shares something never at once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lanes import CALM, EACH, NICE, Worker, in_real_time, lane_of, turn

ROOT = Path(__file__).parents[1]


def item(nodeid: str, group: str = "") -> Any:
    """An item as the hooks see it."""
    mark = pytest.mark.xdist_group(group).mark if group else None
    return SimpleNamespace(
        nodeid=nodeid, get_closest_marker=lambda name: mark if name == "xdist_group" else None
    )


@pytest.mark.parametrize(
    ("nodeid", "group", "lane"),
    [
        ("tests/e2e/test_a.py::test_one", "calm", "calm"),
        ("tests/soak/lab/test_b.py::test_two[x::y]", "docker", "docker"),
        ("tests/e2e/test_c.py::test_three[a]", "each", "tests/e2e/test_c.py::test_three[a]"),
        ("tests/certs/test_d.py::test_four[a@b]", "", "tests/certs/test_d.py"),
        ("tests/soak/load/test_e.py::test_five", "", "tests/soak/load/"),
    ],
)
def test_a_test_is_in_one_lane(nodeid: str, group: str, lane: str) -> None:
    """A named group, itself, or its file; the load engine's files are one."""
    assert lane == lane_of(item(nodeid, group))


def test_real_time_comes_first_then_what_is_shared_then_what_is_long(tmp_path: Path) -> None:
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
    Worker(tmp_path / "table").pytest_collection_modifyitems(rows)
    assert ["g", "f", "e", "d", "c", "b", "a"] == [row.nodeid.partition("test_")[2][0] for row in rows]
    assert [True, True] + [False] * 5 == [in_real_time(row) for row in rows]
    assert rows == sorted(rows, key=turn)
    assert [(row.nodeid, lane_of(row)) for row in rows] == [
        *json.loads((tmp_path / "table").read_text()).items()
    ]
    assert ["table"] == [path.name for path in tmp_path.iterdir()]


def test_a_worker_steps_back_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not for what runs in real time, and not again and again."""
    steps: list[int] = []
    monkeypatch.setattr(os, "nice", steps.append)
    worker = Worker(tmp_path / "table")
    worker.pytest_runtest_setup(item("tests/e2e/test_a.py::test_x", CALM))
    worker.pytest_runtest_setup(item("tests/soak/load/test_a.py::test_x"))
    assert [] == steps
    for _ in range(2):
        worker.pytest_runtest_setup(item("tests/certs/test_a.py::test_x"))
    assert [NICE] == steps


LANES = """
import os, pytest
@pytest.mark.xdist_group("calm")
@pytest.mark.parametrize("n", range(6))
def test_calm(n): note("calm")
@pytest.mark.xdist_group("each")
@pytest.mark.parametrize("n", range(6))
def test_each(n): note("each")
@pytest.mark.xdist_group("docker")
def test_one(): note("docker")
def note(lane):
    with open(os.environ["NOTES"], "a") as notes:
        print(lane, os.environ["PYTEST_XDIST_WORKER"], os.nice(0) - int(os.environ["NICE"]), file=notes)
"""
OTHER = """
import pytest
from tests.test_one import note
@pytest.mark.xdist_group("docker")
def test_two(): note("docker")
"""


def test_workers_keep_to_the_lanes_of_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real pytest and pytest-xdist: a group is in one worker, across files; calm is not niced; every test ran once."""
    inner = tmp_path / "tests"
    inner.mkdir()
    hooks = "pytest_configure, pytest_configure_node, pytest_xdist_make_scheduler"
    (inner / "conftest.py").write_text(f"from tests.lanes import {hooks}\n")
    shutil.copy(ROOT / "tests" / "lanes.py", inner)
    (inner / "__init__.py").touch()
    (inner / "test_one.py").write_text(LANES)
    (inner / "test_two.py").write_text(OTHER)
    notes = tmp_path / "notes"
    monkeypatch.setenv("NOTES", str(notes))
    monkeypatch.setenv("NICE", str(os.nice(0)))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--dist",
        "loadscope",
        "--no-loadscope-reorder",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, "tests"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    rows = [line.split() for line in notes.read_text().splitlines()]

    assert {"calm": 6, "each": 6, "docker": 2} == Counter(lane for lane, _, _ in rows)
    for lane in ("calm", "docker"):
        assert 1 == len({worker for name, worker, _ in rows if name == lane}), lane
    back = str(min(NICE, 19 - os.nice(0)))
    assert {"calm": {"0"}, "docker": {back}, "each": {back}} == {
        lane: {niced for name, _, niced in rows if name == lane} for lane in ("calm", "docker", "each")
    }
