"""The origins' shared table, read from the start of a run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.target import TargetError
from soak.errors import LabError
from soak.lab.counted import Counted
from soak.lab.shared import CACHE, REQUESTS, Shared, create


def test_only_what_came_after_the_start_counts(tmp_path: Path):
    """The table outlives runs, a run does not count another's requests."""
    path = tmp_path / "origins.shared"
    create(path)
    b2 = Shared.open(path, 1)
    b2.counters[REQUESTS] = 70
    counted = Counted(path, ["b1", "b2"])
    b2.counters[REQUESTS] += 5
    b2.counters[CACHE] += 2

    assert 5 == counted.since_start("b2")["requests"]
    assert {"full": 2, "not_modified": 0} == counted.since_start("b2")["cache"]["plain"]
    assert 0 == counted.since_start("b1")["requests"]
    counted.start()
    assert 0 == counted.since_start("b2")["requests"]


def test_an_unknown_origin_is_refused(tmp_path: Path):
    """By name."""
    create(tmp_path / "t")
    with pytest.raises(TargetError, match="no backend 'b9'; there are b1"):
        Counted(tmp_path / "t", ["b1"]).since_start("b9")


@pytest.mark.parametrize("text", [None, "no table"])
def test_what_is_no_table_is_said_with_the_fix(tmp_path: Path, text: str | None):
    """Missing, or another file."""
    path = tmp_path / "t"
    if text is not None:
        path.write_text(text)
    with pytest.raises(LabError, match=r"cannot be used: .* 'soak render' makes it"):
        Counted(path, ["b1"])
