"""The daemon's edges: what a person gets when a run cannot begin. Whole runs are in tests/e2e."""

from __future__ import annotations

import socket

import pytest

from soak.daemon import main, run_foreground
from soak.errors import LabError, RunStateError, SoakError
from soak.liveview import NullView
from soak.plan import Plan
from soak.planfile import dump_plan
from soak.rundir import RunDir
from soak.runs import hold


def run_dir(tmp_path, plan: Plan) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    run.plan.write_text(dump_plan(plan))
    return run


def test_a_missing_directory_argument_is_a_usage_error(capsys):
    """Exit 2 and the right command."""
    assert main([]) == 2
    assert "soak start --detach" in capsys.readouterr().err


def test_a_taken_port_of_the_pages_is_one_sentence_and_leaves_nothing(tmp_path, capsys, offspring):
    """The lab that was already up is taken down again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = run_dir(tmp_path, Plan(length=5, rate=10, http_port=port))
        assert main([str(run.path)]) == 2
    err = capsys.readouterr().err
    assert str(port) in err
    assert "Traceback" not in err
    assert offspring() == []


def test_a_proxy_that_refuses_its_configuration_is_shown_with_its_words(tmp_path, offspring):
    """nginx's own complaint, and no process left."""
    plan = Plan.model_validate({"length": 5, "rate": 10, "proxy": {"extra": "no_such_directive on;"}})
    with pytest.raises(LabError, match="no_such_directive"):
        run_foreground(plan, run_dir(tmp_path, plan), NullView())
    assert offspring() == []


def test_a_run_that_another_daemon_holds_is_refused(tmp_path):
    """By the lock, before anything is touched."""
    plan = Plan(length=5, rate=10)
    run = run_dir(tmp_path, plan)
    with hold(run), pytest.raises(RunStateError, match="already live"):
        run_foreground(plan, run, NullView())
    assert not run.db.exists()


def test_a_store_that_cannot_be_created_ends_before_anything_starts(tmp_path):
    """A directory in its place: one error, nothing started."""
    plan = Plan(length=5, rate=10)
    run = run_dir(tmp_path, plan)
    run.db.mkdir()
    with pytest.raises(SoakError, match=r"run\.db"):
        run_foreground(plan, run, NullView())
    assert not run.lab.exists()
