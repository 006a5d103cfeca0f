"""The words of chaos."""

from dataclasses import replace

from chaos.model import FaultOutcome, FaultRecord, Source


def test_record_is_finished_once_its_outcome_is_known():
    """Every outcome ends it, also one that never began."""
    record = FaultRecord(id=1, kind="reload", target="proxy", source=Source.SCHEDULE, planned_s=1.0)

    assert not record.finished
    assert all(replace(record, outcome=outcome).finished for outcome in FaultOutcome)
