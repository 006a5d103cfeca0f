"""A proxy's validator as a process: its words and its end, also when it has none."""

from __future__ import annotations

from pathlib import Path

from soak.lab.checking import Checked, run_check
from soak.lab.process import RUN_VARIABLE


async def ran(tmp_path: Path, *command: str, timeout_s: float = 10.0) -> Checked:
    return await run_check(command, directory=tmp_path, run_id="r1", timeout_s=timeout_s)


async def test_the_words_of_both_streams_are_kept(tmp_path: Path):
    """Proxies complain on either."""
    assert Checked(3, "one\ntwo") == await ran(tmp_path, "sh", "-c", "echo one; echo two >&2; exit 3")


async def test_it_runs_in_the_directory_and_marked_with_the_run(tmp_path: Path):
    """So that a sweep finds one that was left behind."""
    assert Checked(0, f"{tmp_path} r1") == await ran(tmp_path, "sh", "-c", f"echo $PWD ${RUN_VARIABLE}")


async def test_one_that_does_not_exist_is_said(tmp_path: Path):
    """By its name."""
    assert Checked(None, "'no-such-proxy' does not run: No such file or directory") == await ran(
        tmp_path, "no-such-proxy", "-t"
    )


async def test_one_that_never_ends_is_ended(tmp_path: Path):
    """In time, and it says which."""
    assert Checked(None, "'sleep 60' did not end within 0.05 s") == await ran(
        tmp_path, "sleep", "60", timeout_s=0.05
    )
