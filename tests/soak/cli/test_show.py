"""Printing what a store says."""

import json

import pytest

from soak.cli.show import FORMATS, print_report, read_report, verdict_line
from soak.errors import StoreError
from soak.model import Outcome
from soak.plan import ObjectivesPlan, Plan
from soak.runs import create_run, hold
from tests.soak.synthetic import SyntheticRun


@pytest.mark.parametrize(
    ("form", "start"), [("text", "PASS  nginx"), ("json", '{\n  "schema": 1'), ("markdown", "# ")]
)
def test_each_format_is_printed_whole(finished, capsys, form, start):
    """From the same data."""
    assert form in FORMATS
    report = print_report(finished(), form)
    text = capsys.readouterr().out
    assert text.startswith(start)
    assert text.endswith("\n")
    if form == "json":
        assert json.loads(text) == json.loads(json.dumps(report))


def test_the_verdict_in_a_line_names_the_first_reason(finished):
    """With the exit code."""
    made = SyntheticRun()
    made.fail(30, Outcome.STATUS_5XX, 3)
    line, code = verdict_line(finished(made))
    assert 1 == code
    first, second = line.splitlines()
    assert first.startswith("FAIL  nginx 1.31.3")
    assert "steady" in second


def test_a_live_run_is_not_called_killed(finished):
    """Told by its lock."""
    run = finished(SyntheticRun(killed=True))
    with hold(run):
        assert read_report(run)["run"]["live"] is True
    assert read_report(run)["run"]["live"] is False


def test_other_objectives_give_another_verdict(finished):
    """From the store alone."""
    made = SyntheticRun()
    made.fail(30, Outcome.STATUS_5XX, 3)
    run = finished(made)
    lenient = ObjectivesPlan(steady_failures=10, success=0.5)
    assert ("fail", "pass") == (read_report(run)["verdict"], read_report(run, lenient)["verdict"])


def test_a_run_without_a_store_is_told_so(home):
    """It ended before it began."""
    run = create_run(Plan(), "", home=home)
    with pytest.raises(StoreError, match=f"the run {run.id} has no store"):
        read_report(run)
