"""Where runs live and what their files are called."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from soak.errors import RunStateError
from soak.rundir import RunDir, soak_home


def test_home_is_what_the_environment_says(monkeypatch, tmp_path):
    """SOAK_HOME first, then the XDG state directory, then its default; always absolute."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SOAK_HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert tmp_path / ".local/state/soak" == soak_home()

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert tmp_path / "state/soak" == soak_home()

    monkeypatch.setenv("SOAK_HOME", "~/runs")
    assert tmp_path / "runs" == soak_home()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOAK_HOME", "here")
    assert tmp_path / "here" == soak_home()


def test_a_relative_state_directory_is_ignored(monkeypatch, tmp_path):
    """As the XDG specification asks; a run must not land where somebody happens to stand."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SOAK_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert tmp_path / ".local/state/soak" == soak_home()


def test_a_home_of_nobody_says_so(monkeypatch):
    """With what is set, and what to set."""
    monkeypatch.setenv("SOAK_HOME", "~nobody-here/x")
    with pytest.raises(
        RunStateError, match=r"^SOAK_HOME is '~nobody-here/x': no such user, .* to an absolute path$"
    ):
        soak_home()


@pytest.mark.parametrize(
    ("home", "words"),
    [
        ("/tmp/\udcff", "SOAK_HOME is '/tmp/\\udcff': it is not UTF-8; set SOAK_HOME to a path without"),
        (
            "/tmp/a\nb",
            "SOAK_HOME is '/tmp/a\\nb': it holds a control character; set SOAK_HOME to a path without",
        ),
    ],
)
def test_a_home_that_is_not_text_on_one_line_is_refused(monkeypatch, home, words):
    """Stores, JSON and configurations of proxies hold it; blanks and other alphabets are fine."""
    monkeypatch.setenv("SOAK_HOME", home)
    with pytest.raises(RunStateError) as refused:
        soak_home()
    assert words == str(refused.value)
    monkeypatch.setenv("SOAK_HOME", "/tmp/a b/ä\u3000ö")
    assert Path("/tmp/a b/ä\u3000ö") == soak_home()


def test_a_relative_home_in_a_directory_that_is_gone_says_so(monkeypatch, tmp_path):
    """There is nothing that it could be relative to."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("SOAK_HOME", "here")
    with pytest.raises(
        RunStateError, match=r"^SOAK_HOME is 'here': No such file or directory; set SOAK_HOME to"
    ):
        soak_home()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user that has no entry")
def test_a_user_without_a_home_says_so():
    """As in a container that runs as a bare number."""
    ask = "import os, pwd; from soak.rundir import soak_home; os.setuid(54321); soak_home()"
    done = subprocess.run(
        [sys.executable, "-c", ask],
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (
        "RunStateError: the home of the runs is '~/.local/state': no such user, or one without" in done.stderr
    )


def test_files_of_a_run_are_inside_it_and_differ():
    """One directory holds everything about a run, each thing under a name of its own."""
    run = RunDir(Path("/runs/r1"))
    names = [n for n, kind in vars(RunDir).items() if isinstance(kind, property) and n != "id"]
    paths = [getattr(run, name) for name in names]

    assert "r1" == run.id
    assert len(paths) == len(set(paths))
    assert all(path.is_relative_to(run.path) for path in paths)
    assert Path("/runs/r1/run.db") == run.db
    assert Path("/runs/r1/lab/lab.json") == run.lab_state
