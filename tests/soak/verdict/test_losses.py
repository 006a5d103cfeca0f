"""Losses by class and scope: counted where they are wanted, the first one told with its place."""

from __future__ import annotations

from soak.model import Outcome
from soak.store import StoreReader
from soak.verdict import gather
from soak.verdict.losses import first_of, in_steady, in_transition, lost
from tests.soak.synthetic import SyntheticRun, record


def facts(run: SyntheticRun, tmp_path):
    with StoreReader(run.write(tmp_path / "run.db")) as reader:
        return gather(reader)


def test_only_the_proxys_failures_in_wanted_places_count(tmp_path):
    """Neither stale_reuse nor our own; the limit is inclusive."""
    run = SyntheticRun()
    run.fail(5, Outcome.STATUS_5XX, 2)
    run.fail(6, Outcome.STALE_REUSE, 4)
    run.fail(7, Outcome.CLIENT_RESOURCE, 4)
    f = facts(run, tmp_path)
    assert lost(f, "x", 2, lambda _c, _s: True, "here").ok
    missed = lost(f, "x", 1, lambda _c, _s: True, "here")
    assert (2, False) == (missed.value, missed.ok)
    assert 0 == lost(f, "x", 0, lambda c, _s: c == "other", "there").value


def test_the_first_failure_is_told_with_its_fault(tmp_path):
    """And with the evidence that shows it."""
    run = SyntheticRun()
    run.add_fault(record(3, "reload", 10.0))
    run.fail(10, Outcome.CUT_MID_RESPONSE)
    words, at_s, fault, evidence = first_of(facts(run, tmp_path), [Outcome.CUT_MID_RESPONSE])
    assert "under #3 reload" in words or "under reload" in words
    assert (10.0, 3) == (at_s, fault)
    assert "3" == evidence[0]


def test_scopes_are_told_apart(tmp_path):
    """Steady, a transition alone, and one that a disturbance shares."""
    run = SyntheticRun()
    run.add_fault(record(1, "reload", 10.0))
    run.add_fault(record(2, "backend-down", 20.0))
    f = facts(run, tmp_path)
    assert in_steady(f, 0)
    assert not in_transition(f, 0)
    assert in_transition(f, run.scope_at(10))
    assert not in_transition(f, run.scope_at(21))
