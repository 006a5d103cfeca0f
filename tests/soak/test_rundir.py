"""Where runs live and what their files are called."""

from pathlib import Path

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
