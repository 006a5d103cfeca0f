"""The recorder: told once, written everywhere; a new certificate is noticed by its serial."""

from __future__ import annotations

from dataclasses import replace

import pytest

from certs.authority import Authority
from certs.install import serial_of
from chaos.model import FaultOutcome, FaultRecord, Source
from soak.clock import RunClock
from soak.live import LiveState
from soak.measure.ledger import Ledger
from soak.metrics import Metrics
from soak.model import Event, OriginTotals, Sighting, SightKind, SightVia, Unwell, Vital
from soak.plan import Plan
from soak.recorder import Recorder
from soak.status import Status
from soak.store import StoreReader, StoreWriter
from tests.fakes import FakeClock


class ListView:
    """Keeps what it was shown."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def update(self, status: Status) -> None:
        raise AssertionError(status)

    def event(self, event: Event) -> None:
        self.events.append(event)

    def close(self) -> None:
        pass


class Proxy:
    """What is served."""

    def __init__(self, serial: str) -> None:
        self._serial = serial

    def generation(self) -> int:
        return 4

    def serial(self) -> str:
        return self._serial


@pytest.fixture
def desk(tmp_path):
    plan, ledger = Plan(), Ledger()
    clock = FakeClock(7.0)
    pem = Authority.create(tmp_path / "certs").leaf("soak.test").chain_pem
    (tmp_path / "site.pem").write_bytes(pem)
    view, live = ListView(), LiveState(plan, ledger)
    store = StoreWriter(tmp_path / "run.db")
    recorder = Recorder(
        store, live, view, clock=clock, run_clock=RunClock(clock, 0), certificate=tmp_path / "site.pem"
    )
    recorder.metrics = Metrics(
        plan, ledger, run_id="r", proxy_version="1", started_wall_s=1000.0, faults={"cert-rotate": ("proxy",)}
    )
    yield recorder, store, view, serial_of(pem), tmp_path / "run.db"
    store.close()


def metric(recorder, line: str) -> bool:
    text, _ = recorder.metrics.render()
    return line in text.decode().splitlines()


def test_an_event_reaches_the_store_and_the_view_with_its_instant(desk):
    """Seconds since run start, and the data as given."""
    recorder, store, view, _, path = desk
    recorder.event("clock.stepped", {"step_s": 3600.0})
    store.flush()
    with StoreReader(path) as reader:
        assert [(7.0, "clock.stepped", {"step_s": 3600.0})] == [
            (e.at_s, e.name, e.data) for e in reader.events()
        ]
    assert ["clock.stepped"] == [e.name for e in view.events]
    assert metric(recorder, "soak_clock_steps_total 1.0")


def test_a_rotation_is_noticed_by_the_serial_and_counts_from_its_beginning(desk):
    """The first certificate at 0, the next at the injection of its fault; told again, it is not a new one."""
    recorder, store, _, serial, path = desk
    recorder.certificate("0ld", 0.0)
    record = FaultRecord(3, "cert-rotate", "proxy", Source.SCHEDULE, 5.0, injected_s=5.25)
    recorder.fault(record, Proxy(serial))
    recorder.fault(replace(record, outcome=FaultOutcome.VERIFIED), Proxy(serial))
    store.flush()
    with StoreReader(path) as reader:
        found = [(c.serial, c.installed_s, c.fault_id) for c in reader.certificates()]
        assert [("0ld", 0.0, None), (serial, 5.25, 3)] == sorted(found, key=lambda c: c[1])
        assert [FaultOutcome.VERIFIED] == [f.outcome for f in reader.faults()]
    assert metric(recorder, "soak_certificates_installed_total 2.0")
    assert metric(recorder, "soak_config_generation 4.0")


def test_sightings_vitals_and_stalls_are_kept_and_measured(desk):
    """Each in its place."""
    recorder, store, view, _, path = desk
    recorder.sighting(Sighting(SightKind.GENERATION, "4", SightVia.PROBE, 6.0, 6.0, 1))
    recorder.vital(Vital(5.0, "proxy", 1000, 0.5, 10, 3))
    recorder.stalled(Unwell(2.0, 6.5, "the daemon was stopped or starved for 4.0 s"))
    store.flush()
    with StoreReader(path) as reader:
        assert ["4"] == [s.value for s in reader.sightings()]
        assert [1000] == [v.rss_bytes for v in reader.vitals("proxy")]
        assert [(2.0, 6.5)] == [(u.from_s, u.to_s) for u in reader.unwell()]
    assert ["daemon.stalled"] == [e.name for e in view.events]
    assert metric(recorder, "soak_self_unwell_seconds_total 4.5")


def test_what_the_origins_counted_is_kept_as_the_newest_word(desk):
    """In the store and in the metrics; a stranger's counters are no series."""
    recorder, store, _, _, db = desk
    assert recorder.metrics is not None
    for requests in (5, 9):
        counts = {"requests": requests, "duplicates": 1, "cache.etag.full": 2, "cache.plain.not_modified": 3}
        recorder.origins(OriginTotals(float(requests), {"b1": counts, "x": counts}))
    recorder.metrics = None
    recorder.origins(OriginTotals(10.0, {}))
    recorder.origins(OriginTotals(11.0, {"b1": {"requests": 12}}))
    store.flush()
    with StoreReader(db) as reader:
        assert {"at_s": 11.0, "counts": {"b1": {"requests": 12}}} == reader.meta("origins")


def test_what_the_origins_counted_is_exported(desk):
    """By backend; every series is there at 0 before."""
    recorder, *_ = desk
    metrics = recorder.metrics
    assert 'soak_origin_duplicates_total{target="b2"} 0.0' in metrics.render()[0].decode()
    counts = {"requests": 9, "duplicates": 1, "cache.etag.full": 2, "cache.plain.not_modified": 3}
    recorder.origins(OriginTotals(1.0, {"b1": counts, "x": counts}))
    text = metrics.render()[0].decode()
    for line in (
        'soak_origin_requests_total{target="b1"} 9.0',
        'soak_origin_duplicates_total{target="b1"} 1.0',
        'soak_origin_cacheable_answers_total{target="b1"} 5.0',
        'soak_origin_requests_total{target="b2"} 0.0',
    ):
        assert line in text
    assert 'target="x"' not in text
