"""The live state of one instance: the worst judgement wins, and its reason comes first."""

from __future__ import annotations

import pytest

from chaos.faults.catalog import registry
from chaos.instance import Instance
from chaos.model import Evidence, FaultOutcome, FaultRecord, FaultRequest, Source, Undo


@pytest.fixture
def instance() -> Instance:
    request = FaultRequest("noop", Source.INJECT, 1.0)
    return Instance(registry()["noop"], request, FaultRecord(7, "noop", "none", Source.INJECT, 1.0))


def test_the_worst_judgement_wins_and_its_reason_comes_first(instance):
    """Whatever came before or after; a reason is told once."""
    instance.conclude(FaultOutcome.INCONCLUSIVE, "nothing was seen")
    instance.conclude(FaultOutcome.DIRTY, "it cannot be undone")
    instance.conclude(FaultOutcome.FAILED, "inject: no")
    instance.conclude(FaultOutcome.DIRTY, "it cannot be undone")

    assert (FaultOutcome.DIRTY, True) == (instance.outcome, instance.dirty)
    assert "it cannot be undone; inject: no; nothing was seen" == instance.reason


def test_a_good_step_takes_nothing_back(instance):
    """Verified is only what was never judged worse."""
    instance.conclude(FaultOutcome.FAILED, "no")
    instance.conclude(FaultOutcome.VERIFIED)

    assert (FaultOutcome.FAILED, "no") == (instance.outcome, instance.reason)


def test_what_steps_saw_is_kept_by_name(instance):
    """A second look at the same thing replaces the first; the record is a new object each time."""
    before = instance.record
    instance.saw("active", Evidence(ok=False, reason="not yet"))
    instance.saw("active", Evidence(ok=True, detail={"pid": 3}))
    instance.saw("clean", Evidence(ok=True))

    assert {"active": {"ok": True, "pid": 3}, "clean": {"ok": True}} == instance.record.evidence
    assert ({}, 7) == (before.evidence, instance.id)


def test_nothing_is_undone_before_it_was_prepared(instance):
    """Asking for the original state before it was read is a bug."""
    with pytest.raises(AssertionError, match="before it was prepared"):
        _ = instance.prepared
    instance.undo = Undo("none", {})

    assert "none" == instance.prepared.target
