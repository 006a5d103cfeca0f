"""What is gathered from a store: sums over workers, unwell stretches, recovery judged again."""

from __future__ import annotations

from soak.model import Outcome, Unwell
from soak.store import StoreReader, StoreWriter
from soak.verdict import gather
from soak.verdict.facts import stretches_of
from tests.soak.synthetic import SyntheticRun, failed, report, window


def test_several_workers_are_in_flight_together(tmp_path):
    """The identity of a class holds over its workers, at every second."""
    path = tmp_path / "run.db"
    SyntheticRun(seconds=1).write(path)
    with StoreWriter(path) as w:
        w.add_report(report(1, window(1, in_flight=3, outcomes={Outcome.OK: 97})))
        w.add_report(
            report(1, window(1, in_flight=2, outcomes={Outcome.OK: 98}), worker=1, evidence=[failed(1)])
        )
        w.add_report(report(2, window(2, in_flight=0, outcomes={Outcome.OK: 103})))
    with StoreReader(path) as r:
        facts = gather(r)
    assert ([], {"get": 2}, 2) == (facts.violations, facts.in_flight, facts.worker.workers)


def test_unwell_stretches_are_rounded_out_and_joined():
    """A second that was touched is set apart whole."""
    s = stretches_of(
        [Unwell(10.5, 11.5, ""), Unwell(3.0, 3.0, ""), Unwell(12.0, 12.1, ""), Unwell(10.9, 11.0, "")]
    )
    assert ((3, 4), (10, 13)) == s.ranges
    assert 4 == s.seconds
    assert [False, True, False, False, True, True, False] == [s.covers(x) for x in (2, 3, 4, 9, 10, 12, 13)]
    assert 1.5 == s.overlap_s(3.5, 11.0)
