"""Commands for a run that is over, or should be."""

import asyncio
import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.journal import Intent, Journal
from chaos.model import Evidence, FaultShape, Source, Undo
from soak.model import Outcome
from soak.plan import Plan
from soak.runs import create_run, hold, leftovers, remove_run
from soak.web.socketpath import short_path
from tests.soak.synthetic import SyntheticRun, record


def failing() -> SyntheticRun:
    """Three requests lost in the steady phase, and a reload that lost none."""
    made = SyntheticRun()
    made.add_fault(record(1, "reload", 10.0))
    made.fail(30, Outcome.STATUS_5XX, 3)
    return made


def stale_socket(run) -> None:
    with socket.socket(socket.AF_UNIX) as server, short_path(run.socket) as path:
        server.bind(path)


# -- report


def test_report_shows_the_newest_run_and_is_no_verdict_itself(soak, finished):
    """Exit 0 whatever it says, unless asked."""
    run = finished(failing())
    for args, code in (([], 0), ([run.id], 0), (["--exit-code"], 1)):
        result = soak("report", *args)
        assert code == result.exit_code
        assert result.stdout.startswith("FAIL  nginx 1.31.3")


@pytest.mark.parametrize(("form", "start"), [("json", "{"), ("markdown", "#"), ("text", "FAIL")])
def test_report_knows_three_formats(soak, finished, form, start):
    """All on stdout."""
    finished(failing())
    assert soak("report", "--format", form).stdout.startswith(start)


def test_report_judges_by_other_objectives(soak, finished):
    """A file of limits is enough."""
    finished(failing())
    Path("lenient.yaml").write_text("steady_failures: 10\nsuccess: 0.5\n")
    result = soak("report", "--objectives", "lenient.yaml", "--exit-code", "--format", "json")
    assert (0, "pass") == (result.exit_code, json.loads(result.stdout)["verdict"])


@pytest.mark.parametrize("selector", ["steady", "1", "e1"])
def test_report_shows_the_evidence(soak, finished, selector):
    """Of a phase, a fault, one row; as text and as JSON."""
    finished(failing())
    assert 0 == soak("report", "--evidence", selector).exit_code
    found = json.loads(soak("report", "--evidence", selector, "--format", "json").stdout)
    assert selector == found["selector"]
    assert (0 if selector == "1" else 1) == len(found["rows"])


@pytest.mark.parametrize(("selector", "words"), [("99", "99"), ("monday", "'monday' is no evidence")])
def test_evidence_that_is_not_there_is_told_so(soak, finished, selector, words):
    """Exit 2."""
    finished(failing())
    result = soak("report", "--evidence", selector)
    assert 2 == result.exit_code
    assert words in result.stderr


def test_a_run_that_never_began_has_no_report(soak, home):
    """And the log is named."""
    run = create_run(Plan(), "", home=home)
    result = soak("report")
    assert 2 == result.exit_code
    assert (
        f"the run {run.id} has no store: it ended before it began; its log, if any, is {run.log}"
        in result.stderr
    )


def test_a_damaged_store_is_an_error_in_words(soak, home):
    """Not a traceback of SQLite."""
    run = create_run(Plan(), "", home=home)
    run.db.write_text("this is no database" * 100)
    result = soak("report")
    assert 2 == result.exit_code
    (line,) = result.stderr.splitlines()
    assert str(run.db) in line


# -- runs


def test_runs_tell_live_ended_and_killed_apart(soak, finished, home):
    """In the order in which they began."""
    ended, killed, live = finished(), finished(SyntheticRun(killed=True)), finished(SyntheticRun(killed=True))
    never = create_run(Plan(), "", home=home)
    for n, run in enumerate((ended, killed, live, never)):
        os.utime(run.plan, (n, n))
    stale_socket(killed)
    with hold(live):
        rows = json.loads(soak("runs", "--json").stdout)
        text = soak("runs").stdout
    assert [
        (ended.id, "ended", "ended"),
        (killed.id, "killed", "killed, left a stale socket"),
        (live.id, "live", f"live, pid {os.getpid()}"),
        (never.id, "killed", "never began"),
    ] == [(row["id"], row["state"], row["words"]) for row in rows]
    assert all(run.id in text for run in (ended, killed, live, never))
    assert "100/s" in text


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE meta SET value='{{{'", "is damaged: Expecting property name enclosed in double quotes"),
        ("DROP TABLE windows", "is damaged: no such table: windows"),
    ],
)
def test_a_damaged_store_is_one_sentence_and_not_a_defect_of_soak(soak, finished, home, statement, words):
    """Damage that shows only on reading, too; the list goes on."""
    run = finished()
    with contextlib.closing(sqlite3.connect(run.db)) as db:
        db.execute(statement)
        db.commit()
    result = soak("report")
    assert (2, "") == (result.exit_code, result.stdout)
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"soak: {run.db} {words}")
    assert "'sqlite3 run.db .recover' shows" in line
    assert 0 == soak("runs", "--verdict").exit_code
    assert not (home / "crash.log").exists()


def test_a_store_with_pages_of_garbage_is_one_sentence(soak, finished):
    """As after a disk that lied; 'soak heal' does not need it."""
    run = finished()
    with run.db.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xa5" * 4096 * 15)
    result = soak("report", "--evidence", "steady")
    assert 2 == result.exit_code
    assert "database disk image is malformed" in result.stderr
    assert 0 == soak("heal", run.id).exit_code


def test_runs_can_judge_each(soak, finished, home):
    """A store that cannot be read does not spoil the list."""
    finished(), finished(failing())
    broken = finished(SyntheticRun(seconds=5))
    broken.db.write_text("no database" * 100)
    rows = json.loads(soak("runs", "--json", "--verdict").stdout)
    assert {"pass", "fail", None} == {row["verdict"] for row in rows}
    assert [("damaged", "its store is damaged")] == [
        (row["state"], row["words"]) for row in rows if row["id"] == broken.id
    ]
    assert "fail" in soak("runs", "--verdict").stdout


def test_no_runs_say_how_to_begin_one(soak, home):
    """On stderr: a list of none is empty."""
    result = soak("runs")
    assert (0, "") == (result.exit_code, result.stdout)
    assert f"there is no run in {home}/runs; 'soak start' begins one\n" == result.stderr
    assert [] == json.loads(soak("runs", "--json").stdout)


# -- heal


def test_nothing_to_heal_is_success(soak, finished):
    """A finished run needs none."""
    run = finished()
    assert (0, "nothing to heal: no dead run left anything behind\n") == (
        soak("heal").exit_code,
        soak("heal").stdout,
    )
    result = soak("heal", run.id)
    assert (0, f"{run.id}: nothing to do: the run left nothing behind\n") == (result.exit_code, result.stdout)


def test_a_live_run_is_never_healed(soak, finished):
    """Its pid is named; without a name it is passed over."""
    run = finished()
    with hold(run):
        result = soak("heal", run.id)
        assert "nothing to heal" in soak("heal").stdout
    assert 2 == result.exit_code
    assert (
        f"the run {run.id} is live (pid {os.getpid()}) and heals itself; 'soak stop {run.id}'"
        in result.stderr
    )


def test_heal_ends_the_processes_of_a_killed_run_and_removes_its_socket(soak, home):
    """For real: a process in the lab's directory with the run's mark, and an open fault in the journal."""
    run = create_run(Plan(), "", home=home)
    run.lab.mkdir()
    stale_socket(run)
    run.live.write_text("{}")
    with Journal(run.journal, t0_ns=0) as journal:
        journal.intent(
            Intent(7, "backend-down", FaultShape.FAULT, Undo("b2", {"pid": 1}), Source.INJECT, 1.0, 5.0), 1.0
        )
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        cwd=run.lab,
        env={**os.environ, "SOAK_RUN": run.id},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        result = soak("heal")
        assert child.wait(10) < 0
    assert 0 == result.exit_code, result.output
    assert [
        f"{run.id}: #7 backend-down on b2: healed, the lab was removed",
        f"{run.id}: the lab is removed",
        f"{run.id}: the stale socket is removed",
    ] == result.stdout.splitlines()
    assert [] == leftovers(run)
    assert not run.live.exists()
    assert "nothing to heal" in soak("heal").stdout


def test_what_cannot_be_healed_is_dirty(soak, home, monkeypatch):
    """Exit 4, and the socket stays as the mark of a run that still needs healing."""

    class Stubborn:
        disposable = True

        async def release(self):
            return Evidence(ok=False, reason="1 process is still alive")

        def target(self):
            return None

    async def opened(_run_dir):
        return Stubborn()

    monkeypatch.setattr("soak.lab.open_for_healing", opened)
    monkeypatch.setattr("chaos.heal.BACKOFF_S", 0.0)
    run = create_run(Plan(), "", home=home)
    stale_socket(run)
    result = soak("heal", run.id)
    assert 4 == result.exit_code
    assert f"{run.id}: the lab is NOT removed: 1 process is still alive\n" == result.stdout
    assert run.socket.is_socket()
    remove_run(run, home=home)


def test_a_journal_that_cannot_be_read_is_dirty(soak, home):
    """By its name and why."""
    run = create_run(Plan(), "", home=home)
    run.journal.mkdir()
    result = soak("heal")
    assert 4 == result.exit_code
    assert f"{run.id}: cannot be healed: {run.journal}: not a regular file\n" == result.stdout


def test_a_lab_of_somebody_else_that_is_not_known_any_more_is_dirty(soak, home):
    """In words: what was attached to stands in a file that is damaged."""
    run = create_run(Plan(), "", home=home)
    run.lab.mkdir()
    run.lab_state.write_text('{"kind": "attach"}')
    result = soak("heal", run.id)
    assert 4 == result.exit_code
    assert f"{run.id}: cannot be healed: {run.lab_state} is damaged, " in result.stdout


def test_healing_runs_its_own_loop():
    """The premise of ``heal``: commands are called outside any event loop."""
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()
