"""A pipe, a directory or a device in the place of a file of a run: commands say so or do without, and never wait for it."""

from __future__ import annotations

import json
import os

import pytest

from tests.oddfiles import ODD, make_odd
from tests.soak.synthetic import SyntheticRun

# SQLite opens a pipe again and again when a signal comes, so that only another thread can end a test that hangs.
pytestmark = [pytest.mark.timeout(60, method="thread"), pytest.mark.parametrize("kind", ODD)]


@pytest.mark.parametrize("name", ["journal.jsonl", "lab/lab.json"])
def test_what_healing_must_know_is_named(soak, finished, kind, name):
    """Dirty, as when it cannot be read; the list and the report do without it."""
    run = finished()
    make_odd(run.path / name, kind)
    healed = soak("heal", run.id)
    assert f"{run.id}: cannot be healed: {run.path / name}: not a regular file\n" == healed.stdout
    assert (4, 0, 0) == (healed.exit_code, soak("runs").exit_code, soak("report").exit_code)


@pytest.mark.parametrize("name", ["run.db", "run.db-wal", "run.db-shm", "run.db-journal"])
def test_a_part_of_the_store_is_named(soak, finished, kind, name):
    """As a damaged store: one sentence, a word in the list, and healing does not need it."""
    run = finished()
    make_odd(run.path / name, kind)
    said = f"soak: {run.db} cannot be read as a store of soak: {name} is not a regular file"
    for args in ([], ["--evidence", "steady"]):
        report = soak("report", *args)
        assert (2, [said]) == (report.exit_code, report.stderr.splitlines())
    (row,) = json.loads(soak("runs", "--json", "--verdict").stdout)
    assert ("damaged", "its store is damaged") == (row["state"], row["words"])
    assert 0 == soak("heal", run.id).exit_code


@pytest.mark.parametrize(
    "name",
    ["daemon.lock", "live.json", "control.sock", "heal.lock", "plan.yaml", "soak.log", "lab/engine"],
)
def test_what_else_lies_there_is_done_without(soak, finished, kind, name):
    """It is nobody's business, and it is left where it is."""
    run = finished(SyntheticRun(killed=True))
    make_odd(run.path / name, kind)
    odd = os.lstat(run.path / name).st_ino
    assert [0, 0, 0] == [soak(*args).exit_code for args in (["runs"], ["report"], ["heal"])]
    healed = soak("heal", run.id)
    assert (0, f"{run.id}: nothing to do: the run left nothing behind\n") == (healed.exit_code, healed.stdout)
    assert odd == os.lstat(run.path / name).st_ino
