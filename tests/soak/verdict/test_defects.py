"""docs/DEFECTS.md is true: each objective that it names exists, and each that exists names a defect there, or is no promise of a proxy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from soak.model import Outcome
from soak.plan import ObjectivesPlan
from soak.verdict.checks import CHECKS
from tests.soak.verdict.planted import PLANTED, noisy

PAGE = Path(__file__).parents[3] / "docs" / "DEFECTS.md"
NOT_OF_THE_PROXY = {
    "self_healthy": "soak's own health",
    "run_complete": "whether the run came to its end",
    "classes": "objectives that plans give to single classes",
    "success": "the sum of what others name",
}


def rows() -> list[list[str]]:
    """Return the cells of the tables' rows, without their heads."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines]
    return [c for c in cells if c[0] != "defect"]


def named(cell: str) -> set[str]:
    return set(re.findall(r"`([a-z0-9_]+)`", cell))


def test_every_objective_on_the_page_exists():
    """In the column of objectives stand names of objectives and of outcomes, and nothing else."""
    known = {name for name, _ in CHECKS} | {str(o) for o in Outcome}
    assert rows()
    assert [] == [(cell, sorted(named(cell) - known)) for _, cell, _ in rows() if named(cell) - known]
    assert [] == [defect for defect, cell, _ in rows() if not named(cell) & {name for name, _ in CHECKS}]


def test_every_objective_names_a_defect():
    """One that finds nothing would be no objective."""
    told = set().union(*(named(cell) for _, cell, _ in rows()))
    assert {name for name, _ in CHECKS} == told & {name for name, _ in CHECKS} | set(NOT_OF_THE_PROXY)


def test_every_row_says_how_it_was_shown():
    """By a real proxy, by a synthetic run, or by both."""
    assert {"r", "s", "r, s"} == {shown for _, _, shown in rows()}


def test_limits_on_the_page_are_those_of_the_plan():
    """A number that changes there must change here."""
    text = " ".join(PAGE.read_text().split())
    plan = ObjectivesPlan()
    for number, words in (
        (plan.stale_reuse, f"{plan.stale_reuse:.2%} of all requests".replace("%", " %")),
        (plan.drain_within, f"`drain_within`, {plan.drain_within:g} s"),
        (plan.recovery_within, f"`recovery_within` ({plan.recovery_within:g} s)"),
        (plan.rss_growth_per_h, f"{plan.rss_growth_per_h:.0%} an hour".replace("%", " %")),
        (plan.fds_growth_per_h, f"{plan.fds_growth_per_h:g} an hour, or half a file per reload"),
        (plan.drift_after, "`drift_after` (two hours)"),
    ):
        assert words in text, number
    assert (0.5, 7200.0) == (plan.fds_growth_per_reload, plan.drift_after)


def test_every_row_that_says_so_is_planted():
    """By its words, and for each objective that the row names."""
    said = {(defect, name) for defect, cell, shown in rows() if "s" in shown for name in named(cell)}
    known = {name for name, _ in CHECKS}
    planted = {(defect, name) for defect, builds in PLANTED.items() for name, _ in builds}
    assert {pair for pair in said if pair[1] in known} == planted


@pytest.mark.parametrize(
    ("objective", "build"),
    [(name, build) for builds in PLANTED.values() for name, build in builds],
    ids=[f"{name}: {defect}" for defect, builds in PLANTED.items() for name, _ in builds],
)
def test_a_planted_defect_fails_the_run_and_is_named(verdict, objective, build):
    """By the objective of its row, in a sentence, and by none that has nothing to do with it."""
    v = verdict(build())
    missed = {o.name: o for o in v.objectives if not o.ok}
    assert "fail" == v.verdict
    assert objective in missed, v.reasons
    assert "fail" == missed[objective].word
    assert missed[objective].reason
    assert set(missed) <= {objective, *BESIDE}, v.reasons


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_healthy_proxy_on_a_noisy_host_passes_by_every_objective_over_hours(verdict, seed):
    """A verdict that cries wolf is worth no more than one that sleeps."""
    v = verdict(noisy(seed))
    assert ("pass", []) == (v.verdict, v.reasons)
    judged = {o.name for o in v.objectives}
    assert {
        "p99_drift",
        "cpu_drift",
        "rss_growth",
        "fds_growth",
        "old_workers_gone",
        "balance",
        "workers_kept",
    } < judged


BESIDE = {"success", "steady_failures", "mismatches"}
"""What a lost request is, whatever else it is."""
