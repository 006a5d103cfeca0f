"""What could grow without end has a cap, and what comes once is kept whatever comes every second."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.model import Event, Sighting, SightKind, SightVia
from soak.store import StoreReader, StoreWriter
from soak.store.apply import Caps
from tests.soak.synthetic import failed, report, window


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


def test_caps_count_what_they_turn_away(path):
    """Disk stays bounded: overall, by scope, events and sighted values; what is dropped is counted."""
    caps = Caps(evidence=5, evidence_per_scope=3, evidence_in_any_case=0, events=2, sighted_values=1)
    with StoreWriter(path, caps=caps) as w:
        for scope in (0, 1, 2):
            many = [failed(i, scope, error="x" * 9999) for i in range(4)]
            w.add_report(report(scope, window(scope), evidence=many, evidence_dropped=10))
        for i in range(5):
            w.add_event(Event(i, i, "e"))
            w.add_sighting(Sighting(SightKind.GENERATION, str(i), SightVia.TRAFFIC, i, i, 3))
    with StoreReader(path) as r:
        scopes = [e.request.scope for e in r.evidence()]
        assert [0, 0, 0, 1, 1] == sorted(scopes)
        assert 500 == max(len(e.request.error) for e in r.evidence())
        assert {"evidence_dropped": 37, "events_dropped": 3, "sightings_dropped": 12} == r.counters()


def test_storms_leave_the_last_fault_something_to_show(path):
    """A few rows of each scope are kept when others have used up the rest."""
    caps = Caps(evidence=4, evidence_per_scope=4, evidence_in_any_case=2)
    with StoreWriter(path, caps=caps) as w:
        for scope in (0, 1, 2):
            many = [failed(i, scope) for i in range(9)]
            w.add_report(report(scope, window(scope), evidence=many))
    with StoreReader(path) as r:
        assert [0] * 4 + [1] * 2 + [2] * 2 == sorted(e.request.scope for e in r.evidence())
        assert {"evidence_dropped": 27 - 8} == r.counters()


def test_what_comes_every_second_does_not_crowd_out_what_comes_once(path):
    """A proxy that is down for a day is probed in vain every second; the fault of its last hour is still an event."""
    caps = Caps(events=100, events_per_name=3)
    for part in range(2):  # a writer that continues knows what is there already
        with StoreWriter(path, caps=caps) as w:
            for i in range(5):
                w.add_event(Event(i, i, "probe.failed"))
            w.add_event(Event(9, 9, "fault.injected", {"fault": part}))
    with StoreReader(path) as r:
        assert 3 == len(list(r.events("probe.failed")))
        assert [0, 1] == [e.data["fault"] for e in r.events("fault.injected")]
        assert {"events_dropped": 7} == r.counters()
