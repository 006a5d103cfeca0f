"""What the tests of the commands share: a home of their own, a way to call, runs made of whole cloth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from soak.cli import cli
from soak.plan import Plan
from soak.planfile import dump_plan
from soak.rundir import RunDir
from soak.runs import create_run
from tests.soak.synthetic import SyntheticRun

Soak = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for runs that nobody else uses; the working directory is beside it. Tables have the same width everywhere."""
    home = tmp_path / "home"
    monkeypatch.setenv("SOAK_HOME", str(home))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("SOAK_DEBUG", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return home


@pytest.fixture
def soak(home: Path) -> Soak:
    """Call a command in this process; stdout and stderr apart."""

    def call(*args: str) -> Result:
        return CliRunner().invoke(cli, list(args), prog_name="soak", catch_exceptions=False)

    return call


@pytest.fixture
def finished(home: Path) -> Callable[..., RunDir]:
    """Make a run with a store, as a daemon would have left it."""

    def make(made: SyntheticRun | None = None) -> RunDir:
        run = create_run(Plan(), dump_plan(Plan()), home=home)
        (made or SyntheticRun()).write(run.db)
        return run

    return make
