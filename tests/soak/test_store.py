"""The store keeps every record, merges workers exactly, never blocks its caller, and reads back whatever a run left."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.model import FaultOutcome, FaultRecord, Source
from soak.errors import StoreError
from soak.measure.facts import facts_of
from soak.measure.histogram import Histogram
from soak.model import (
    CertificateRecord,
    ConnectionStats,
    Event,
    Outcome,
    Phase,
    Scope,
    Sighting,
    SightKind,
    SightVia,
    Unwell,
    Vital,
)
from soak.store import StoreReader, StoreWriter
from soak.store.schema import VERSION
from tests.soak.synthetic import failed, histogram, report, stats, window


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


@pytest.fixture
def writer(path: Path) -> Iterator[StoreWriter]:
    with StoreWriter(path) as w:
        w.add_scope(Scope(0, Phase.STEADY))
        yield w


def hist(*ms: float) -> Histogram:
    h = Histogram()
    for one in ms:
        h.add(int(one * 1e6))
    return h


class TestRecords:
    def test_come_back_as_they_were(self, path, writer):
        """Every kind of record reads back equal to what was written."""
        fault = FaultRecord(
            3,
            "reload",
            "proxy",
            Source.INJECT,
            1.0,
            1.1,
            1.2,
            None,
            1.3,
            0.2,
            FaultOutcome.VERIFIED,
            "",
            {"active": {"g": 4}},
        )
        event = Event(1.5, 1e9, "origin.died", {"origin": "b1"})
        vital = Vital(5.0, "proxy", 1000, 0.5, 9, 3, 1, {"pids": [1, 2]})
        cert = CertificateRecord("aa", 2.0, "ff", 3)
        unwell = Unwell(3.0, 4.5, "stopped")
        scope = Scope(1, Phase.FAULT, (3, 4), 1.1)
        writer.put_fault(fault)
        writer.add_event(event)
        writer.add_vital(vital)
        writer.add_certificate(cert)
        writer.add_unwell(unwell)
        writer.add_scope(scope)
        writer.set_meta("run", {"id": "x"})
        writer.flush()
        with StoreReader(path) as r:
            assert [fault] == list(r.faults())
            assert [event] == list(r.events()) == list(r.events("origin.died"))
            assert [] == list(r.events("other"))
            assert [vital] == list(r.vitals()) == list(r.vitals("proxy"))
            assert [] == list(r.vitals("b1"))
            assert [cert] == list(r.certificates())
            assert [unwell] == list(r.unwell())
            assert [Scope(0, Phase.STEADY), scope] == list(r.scopes())
            assert {"id": "x"} == r.meta("run")
            assert r.meta("nothing") is None

    def test_a_fault_is_replaced_by_its_newer_state(self, path, writer):
        """A fault is written at each step; the last word counts."""
        early = FaultRecord(1, "reload", "proxy", Source.SCHEDULE, 1.0)
        late = replace(early, injected_s=1.1, outcome=FaultOutcome.FAILED, reason="no")
        writer.put_fault(early)
        writer.put_fault(late)
        writer.flush()
        with StoreReader(path) as r:
            assert [late] == list(r.faults())

    def test_sightings_merge(self, path, writer):
        """First is the earliest, last the latest, counts add up; value and via keep them apart."""
        a = Sighting(SightKind.SERIAL, "aa", SightVia.TRAFFIC, 5.0, 6.0, 2)
        writer.add_sighting(a)
        writer.add_sighting(replace(a, first_s=2.0, last_s=3.0, count=1))
        writer.add_sighting(replace(a, via=SightVia.PROBE))
        writer.flush()
        with StoreReader(path) as r:
            assert [replace(a, first_s=2.0, count=3), replace(a, via=SightVia.PROBE)] == list(r.sightings())
            assert [] == list(r.sightings(SightKind.ORIGIN))


class TestWindows:
    def test_two_workers_merge_into_one_row_exactly(self, path, writer):
        """The same second, class and scope of two workers is one row, also when one comes a transaction later."""
        first = window(
            4, latency=hist(1, 2), outcomes={Outcome.OK: 98, Outcome.STATUS_5XX: 2}, last_failure_due_s=4.2
        )
        second = window(
            4,
            latency=hist(3),
            outcomes={Outcome.STATUS_5XX: 1, Outcome.STALE_REUSE: 1},
            sent=5,
            scheduled=7,
            dropped=1,
            missed=1,
            carried=1,
            stale_non_idempotent=1,
            last_failure_due_s=4.1,
        )
        writer.add_report(report(4, first))
        writer.flush()
        writer.add_report(report(4, second, worker=1))
        writer.flush()
        with StoreReader(path) as r:
            (row,) = r.windows()
            assert (107, 105, 1, 1, 1) == (row.scheduled, row.sent, row.dropped, row.missed, row.carried)
            assert {Outcome.OK: 98, Outcome.STATUS_5XX: 3, Outcome.STALE_REUSE: 1} == row.outcomes
            assert (4.2, 1, 204_800) == (row.last_failure_due_s, row.stale_non_idempotent, row.bytes_received)
            assert hist(1, 2, 3).to_wire()[:2] == row.latency.to_wire()[:2]
            assert hist(1, 2, 3).counts == row.latency.counts

    def test_ranges_are_half_open(self, path, writer):
        """``to_s`` is not included."""
        for s in range(5):
            writer.add_report(report(s, window(s)))
        writer.flush()
        with StoreReader(path) as r:
            assert [1, 2] == [w.second for w in r.windows(1, 3)]
            assert [1, 2] == [f.second for f in r.seconds(1, 3)]
            assert [3, 4] == [w.second for w in r.worker_seconds(3)]
            assert 4 == r.last_second()
            assert ["get"] == r.classes()

    def test_seconds_are_the_same_numbers_as_the_live_fold(self, path, writer):
        """Recovery is judged live and offline from equal facts, client_resource and two workers included."""
        reports = [
            report(4, window(4, in_flight=2, latency=hist(1, 90), outcomes={Outcome.CLIENT_RESOURCE: 2})),
            report(
                4,
                window(
                    4, "post", scope=1, in_flight=3, outcomes={Outcome.STATUS_5XX: 1}, last_failure_due_s=4.5
                ),
                worker=1,
            ),
        ]
        writer.add_scope(Scope(1, Phase.FAULT, (1,)))
        for one in reports:
            writer.add_report(one)
        writer.flush()
        with StoreReader(path) as r:
            assert [facts_of(4, reports, steady=False)] == list(r.seconds())

    def test_streaming_classes_are_left_out_of_a_second_as_in_the_live_fold(self, path, writer):
        """Also when the class's windows come a transaction after the others, or from another worker."""
        reports = [
            report(
                4,
                window(4, in_flight=2, latency=hist(1, 2)),
                window(4, "stream", in_flight=9, streaming=True),
            ),
            report(
                4,
                window(
                    4,
                    "stream",
                    in_flight=300,
                    streaming=True,
                    latency=hist(900),
                    outcomes={Outcome.CUT_MID_RESPONSE: 1},
                    last_failure_due_s=4.5,
                ),
                worker=1,
            ),
        ]
        for one in reports:
            writer.add_report(one)
            writer.flush()
        with StoreReader(path) as r:
            (facts,) = r.seconds()
            assert facts_of(4, reports, steady=True) == facts
            assert 2 == facts.in_flight
            assert facts.p99_s < 0.01
            assert {"get": 2, "stream": 9} == next(iter(r.worker_seconds())).in_flight
            assert 3 == r.latencies()["stream"].count - 98

    def test_totals_and_failures(self, path, writer):
        """Sums by class and scope, and the rows that hold failures."""
        writer.add_report(
            report(0, window(0), window(0, "post", scope=0, outcomes={Outcome.DNS: 3, Outcome.OK: 97}))
        )
        writer.add_report(report(1, window(1)))
        writer.flush()
        with StoreReader(path) as r:
            assert [("get", 200, 200, 0), ("post", 100, 97, 3)] == [
                (t.traffic, t.sent, t.ok, t.failed) for t in r.totals()
            ]
            assert [("get", 100)] == [(t.traffic, t.sent) for t in r.totals(1, 2)]
            (row,) = r.failures()
            assert ("post", 0, {Outcome.DNS: 3}) == (row.traffic, row.second, row.outcomes)

    def test_a_worker_that_reports_a_second_twice_is_counted_once_where_it_is_a_gauge(self, path, writer):
        """A final report for a second already reported adds events and replaces gauges."""
        writer.add_report(report(1, window(1, in_flight=5)))
        writer.add_report(
            report(1, window(1, "post", in_flight=1), final=True, stats=stats(9), open_connections=2)
        )
        writer.flush()
        with StoreReader(path) as r:
            (w,) = r.worker_seconds()
            assert ({"get": 5, "post": 1}, 2, stats(9).cpu_s) == (w.in_flight, w.open_connections, w.cpu_s)
            assert ConnectionStats(10, 4, 6, 8, 2, 190) == r.connections()


class TestEvidence:
    def test_is_found_by_fault_phase_and_row(self, path, writer):
        """Rows of a fault are those whose scope lists it."""
        writer.add_scope(Scope(1, Phase.FAULT, (7,)))
        writer.add_scope(Scope(2, Phase.RECOVERY, (7, 8)))
        rows = [
            failed(1, 0),
            failed(2, 1),
            failed(3, 2, first_byte_s=None, status=None, connection_age_s=None),
        ]
        writer.add_report(report(3, window(3), evidence=rows))
        writer.flush()
        with StoreReader(path) as r:
            assert rows == [e.request for e in r.evidence()]
            assert rows[1:] == [e.request for e in r.evidence(fault=7)]
            assert rows[2:] == [e.request for e in r.evidence(fault=8)]
            assert [] == list(r.evidence(fault=9))
            assert [rows[1]] == [e.request for e in r.evidence(row=2)]
            assert [rows[0]] == [e.request for e in r.evidence_in(Phase.STEADY)]
            assert 1 == len(list(r.evidence(limit=1)))


class TestReader:
    def test_refuses_what_is_not_a_store(self, path, tmp_path):
        """Missing, foreign, garbage and newer files are each one clear sentence."""
        with pytest.raises(StoreError, match="does not exist"):
            StoreReader(path)
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE t(x)")
        db.close()
        with pytest.raises(StoreError, match="is not a store of soak"):
            StoreReader(path)
        garbage = tmp_path / "garbage.db"
        garbage.write_bytes(b"?" * 5000)
        with pytest.raises(StoreError, match="cannot be read as a store"):
            StoreReader(garbage)
        newer = tmp_path / "newer.db"
        StoreWriter(newer).close()
        db = sqlite3.connect(newer)
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
        db.close()
        with pytest.raises(
            StoreError, match=f"has store version {VERSION + 1}; this soak reads up to {VERSION}"
        ):
            StoreReader(newer)

    def test_a_snapshot_holds_still_while_the_run_goes_on(self, path, writer):
        """Sums read one after the other agree, although the writer commits in between."""
        writer.add_report(report(0, window(0)))
        writer.flush()
        with StoreReader(path) as r, r.snapshot():
            assert 0 == r.last_second()
            writer.add_report(report(1, window(1)))
            writer.flush()
            with r.snapshot():
                assert 0 == r.last_second()
        with StoreReader(path) as r:
            assert 1 == r.last_second()

    def test_a_finished_store_is_one_file(self, path, writer):
        """Nothing but run.db is left to copy, also after somebody read it."""
        writer.add_report(report(0, window(0)))
        writer.close()
        with StoreReader(path) as r:
            assert 0 == r.last_second()
        assert [path.name] == [p.name for p in path.parent.iterdir()]

    def test_a_reader_does_not_keep_the_writer_from_closing(self, path, writer):
        """The store is whole either way."""
        writer.add_report(report(0, window(0)))
        writer.flush()
        with StoreReader(path) as r, r.snapshot():
            assert 0 == r.last_second()
            writer.add_report(report(1, window(1)))
            writer.close()
            assert 0 == r.last_second()
        with StoreReader(path) as r:
            assert [0, 1] == [w.second for w in r.windows()]


def test_histogram_of_the_builders_is_what_it_says():
    """The tests' own builder counts n equal samples."""
    assert 3 == histogram(3, 2.0).count
    assert 0 == histogram(0, 2.0).count
