"""A host that starves the lab excuses what fails, and takes nothing from a pass."""

from __future__ import annotations

from pathlib import Path

from soak.model import Event, Outcome
from soak.store import StoreReader
from soak.verdict import judge_run
from soak.verdict.starving import starved
from tests.soak.synthetic import SyntheticRun


def hungry(from_s: float, to_s: float) -> Event:
    """What the daemon records of such a stretch."""
    shares = {"others": 0.62, "own": 0.38, "idle": 0.0}
    return Event(to_s, 1_700_000_000 + to_s, "host.starved", {"from_s": from_s, "to_s": to_s, **shares})


def run_of(seconds: int, *stretches: tuple[float, float]) -> SyntheticRun:
    run = SyntheticRun(seconds=seconds)
    run.events.extend(hungry(*stretch) for stretch in stretches)
    return run


def test_a_run_that_passes_on_a_starved_host_has_passed(verdict):
    """However long it was starved: the proxy kept its promises although it was."""
    assert "pass" == verdict(run_of(100, (0, 50))).verdict


def test_what_fails_while_the_host_starves_the_lab_is_not_held_against_the_proxy(verdict):
    """A short stretch is set apart; the rest of the run passes."""
    run = run_of(1000, (10.2, 15.2))
    run.fail(12, Outcome.TLS_TIMEOUT, 50)
    assert "pass" == verdict(run).verdict


def test_too_much_of_it_makes_the_run_invalid_and_says_who_took_the_processors(verdict):
    """Not the proxy's fault, and no proof either."""
    run = run_of(100, (10, 30))
    run.fail(12, Outcome.TLS_TIMEOUT, 50)
    found = verdict(run)
    assert "invalid" == found.verdict
    assert any(
        "other programs took 62% of this host's processors and 0% was idle" in r for r in found.reasons
    )


def test_what_fails_beside_it_still_fails_the_proxy(verdict):
    """Only the seconds of the stretch are set apart."""
    run = run_of(1000, (10, 15))
    run.fail(40, Outcome.STATUS_5XX)
    assert "fail" == verdict(run).verdict


def test_the_facts_tell_of_it_whether_it_excuses_or_not(tmp_path: Path):
    """The report shows it in a run that passed, too; stretches that touch are joined."""
    with StoreReader(run_of(100, (10, 15), (15, 20)).write(tmp_path / "run.db")) as reader:
        facts, found = judge_run(reader)
        assert [(10.0, 15.0), (15.0, 20.0)] == [(u.from_s, u.to_s) for u in starved(reader)]
    assert ("pass", 10, 0) == (found.verdict, facts.starved.seconds, facts.stretches.seconds)


def test_an_answer_of_another_request_is_never_excused(verdict):
    """A starved proxy is slow; that it mixes up answers is its own doing, and the only thing that it is blamed for."""
    run = run_of(1000, (10, 15))
    run.fail(12, Outcome.IDENTITY_MISMATCH)
    run.fail(13, Outcome.TLS_TIMEOUT, 50)
    found = verdict(run)
    assert "fail" == found.verdict
    assert ["mismatches"] == [o.name for o in found.objectives if not o.ok]
