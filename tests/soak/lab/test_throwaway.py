"""A directory that goes with its lab, and nothing else that goes."""

from __future__ import annotations

import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from soak.errors import LabError
from soak.lab import open_throwaway
from soak.lab.process import RUN_VARIABLE
from soak.lab.throwaway import create_throwaway, remove_throwaway


def test_it_is_private_and_goes_whole(tmp_path: Path):
    """Two at once do not meet; removing twice is removing once."""
    one, two = create_throwaway(tmp_path / "home"), create_throwaway(tmp_path / "home")
    (one.lab / "file").write_text("x")

    assert one.path != two.path
    assert 0o700 == stat.S_IMODE(one.path.stat().st_mode)
    remove_throwaway(one)
    remove_throwaway(one)
    assert [two.path] == list((tmp_path / "home").iterdir())


def test_without_a_home_it_is_among_the_temporary_files(tmp_path: Path, monkeypatch):
    """A home that is a file cannot hold it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "home").touch()

    assert tmp_path == create_throwaway(tmp_path / "home").path.parent


def test_without_any_place_it_says_so(tmp_path: Path, monkeypatch):
    """One sentence."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    (tmp_path / "home").touch()

    with pytest.raises(LabError, match=r"neither .*home nor the temporary directory can be written"):
        create_throwaway(tmp_path / "home")


async def test_healing_ends_its_processes_and_removes_it(tmp_path: Path):
    """What the guardian does when the process of the lab was killed."""
    run = create_throwaway(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], cwd=run.lab, env={RUN_VARIABLE: run.id}
    )
    healable = await open_throwaway(str(run.path))
    evidence = await healable.release()

    assert (True, True, None) == (evidence.ok, healable.disposable, healable.target())
    assert 0 != child.wait(timeout=30)
    assert not run.path.exists()


async def test_a_directory_without_the_mark_is_never_removed(tmp_path: Path):
    """A run keeps its record."""
    (tmp_path / "lab").mkdir()
    evidence = await (await open_throwaway(str(tmp_path))).release()

    assert evidence.ok
    assert (tmp_path / "lab").is_dir()
