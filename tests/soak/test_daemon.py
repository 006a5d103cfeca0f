"""The daemon's edges: what a person gets when a run cannot begin. Whole runs are in tests/e2e."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from soak import daemon
from soak.daemon import main, run_foreground
from soak.ending import Ending
from soak.errors import EXIT_INVALID, LabError, RunStateError, SoakError, StoreError
from soak.lab.local import LocalLab
from soak.liveview import NullView
from soak.model import Vital
from soak.plan import Plan
from soak.planfile import dump_plan
from soak.report.build import build_report
from soak.runchaos import RunChaos
from soak.rundir import RunDir
from soak.runs import hold
from soak.store import StoreReader

SHORT = Plan.model_validate({"length": 2, "rate": 10, "http_port": 0, "chaos": {"series": []}})


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


def test_a_last_look_that_fails_costs_no_verdict(tmp_path, monkeypatch, offspring):
    """The run is over, so it is judged; that nobody saw its last vitals is an event, and nothing is left."""
    vitals = LocalLab.vitals

    async def blind_at_the_end(lab: LocalLab, at_s: float) -> list[Vital]:
        if at_s >= SHORT.length:
            raise RuntimeError("no more processes")
        return await vitals(lab, at_s)

    monkeypatch.setattr(LocalLab, "vitals", blind_at_the_end)
    run = run_dir(tmp_path, SHORT)
    code = run_foreground(SHORT, run, NullView())
    with StoreReader(run.db) as reader:
        assert code == build_report(reader)["exit_code"]
        assert "finished" == reader.meta("ended")["reason"]
        assert [{"error": "no more processes"}] == [e.data for e in reader.events("vitals.not_seen")]
    assert offspring() == []


def test_a_defect_in_the_daemon_is_not_told_as_a_finished_run(tmp_path, monkeypatch, offspring):
    """Whatever raises, every layer undoes itself: the end is written down with its reason, and no process is left."""

    def boom(_: RunChaos) -> None:
        raise ValueError("boom")

    monkeypatch.setattr(RunChaos, "begin", boom)
    run = run_dir(tmp_path, SHORT)
    with pytest.raises(ValueError, match="boom"):
        run_foreground(SHORT, run, NullView())
    with StoreReader(run.db) as reader:
        assert f"the daemon failed: boom; see {run.log}" == reader.meta("ended")["reason"]
        assert [["run.started"], ["run.ended"]] == [
            list({e.name for e in reader.events(name)}) for name in ("run.started", "run.ended")
        ]
    assert offspring() == []


def test_a_lab_that_loses_a_task_of_its_own_ends_the_run_as_invalid(tmp_path, monkeypatch, offspring):
    """Recorded with its name and words, told to the person, and a reason of the verdict whenever the store is judged."""

    async def dies(_lab: LocalLab) -> None:
        raise ValueError("boom")

    monkeypatch.setattr(LocalLab, "_tend", dies)
    plan = SHORT.model_copy(update={"length": 60.0})
    run = run_dir(tmp_path, plan)
    words = f"the lab's tend-lab task failed: ValueError('boom'); see {run.log}"
    with pytest.raises(SoakError) as told:
        run_foreground(plan, run, NullView())
    assert (words, EXIT_INVALID) == (str(told.value), told.value.exit_code)
    with StoreReader(run.db) as reader:
        assert [{"name": "tend-lab", "how": "ValueError('boom')"}] == [
            event.data for event in reader.events("lab.task_died")
        ]
        report = build_report(reader)
    assert ("invalid", EXIT_INVALID) == (report["verdict"], report["exit_code"])
    assert words in " ".join(report["reasons"])
    assert "ValueError: boom" in run.log.read_text()
    assert offspring() == []


def test_a_store_that_cannot_be_judged_never_hides_why(tmp_path, monkeypatch, offspring):
    """The first trouble is told: that the store then cannot be read follows from it."""

    def begin(chaos: RunChaos) -> None:
        daemon_ending.give_up(SoakError("no space left"))

    daemon_ending: Any = None
    ending_of = Ending.__init__

    def remember(ending: Any, *arguments: Any) -> None:
        nonlocal daemon_ending
        daemon_ending = ending
        ending_of(ending, *arguments)

    def unreadable(_: object) -> None:
        raise StoreError("run.db cannot be read")

    monkeypatch.setattr(Ending, "__init__", remember)
    monkeypatch.setattr(RunChaos, "begin", begin)
    monkeypatch.setattr(daemon, "StoreReader", unreadable)
    with pytest.raises(SoakError, match="no space left") as told:
        run_foreground(SHORT, run_dir(tmp_path, SHORT), NullView())
    assert EXIT_INVALID == told.value.exit_code == daemon_ending.exit_code.result()
    assert offspring() == []
