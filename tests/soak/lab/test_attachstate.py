"""What a dead attach lab leaves written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.errors import RunStateError
from soak.lab import open_for_healing
from soak.lab.attachstate import Borrowed, originals_of, read_borrowed, still_borrowed, write_borrowed
from soak.rundir import RunDir

from .strangers import Strangers


def test_it_is_read_back_as_it_was(run: RunDir, tmp_path: Path):
    """The plan and who everything was."""
    borrowed = Borrowed(
        Strangers(tmp_path).plan, {"proxy": {"pid": 7, "started": 1.5}, "b1": {"container": "x"}}
    )
    write_borrowed(run, borrowed)
    assert borrowed == read_borrowed(run)
    assert 0o600 == run.lab_state.stat().st_mode & 0o7777


async def test_another_labs_file_a_torn_one_and_none_are_not_its_business(run: RunDir):
    """Such a run is swept."""
    for text in (None, "{", "[]", '{"kind": "local", "processes": []}'):
        if text is not None:
            run.lab_state.write_text(text)
        assert read_borrowed(run) is None
        assert (await open_for_healing(str(run.path))).disposable


@pytest.mark.parametrize(
    "text", ['{"kind": "attach"}', '{"kind": "attach", "plan": {"length": -1}, "known": {}}']
)
async def test_a_damaged_one_is_said(run: RunDir, text: str):
    """Nobody may guess what belongs to somebody else."""
    run.lab_state.write_text(text)
    with pytest.raises(
        RunStateError, match=f"^{run.lab_state} is damaged, so nobody knows what the run was attached to$"
    ):
        await open_for_healing(str(run.path))


def test_what_was_not_given_back_is_said(run: RunDir, tmp_path: Path):
    """So that 'soak heal' finds the run."""
    assert [] == still_borrowed(run)
    (tmp_path / "nginx.conf").write_text("mine")
    originals_of(run).keep([tmp_path / "nginx.conf"])
    assert ["the proxy's own files to be put back"] == still_borrowed(run)
