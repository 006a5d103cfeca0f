"""A worker's report survives its trip through the pipe exactly."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soak.measure.histogram import Histogram
from soak.measure.window import Window, WorkerReport, from_line, to_line
from soak.model import ConnectionStats, FailedRequest, Outcome, SelfStats, Sighting, SightKind, SightVia
from tests.soak.synthetic import failed, report, window

counts = st.integers(0, 2**40)
instants = st.floats(0, 1e6, allow_nan=False)
maybe = st.none() | instants
words = st.text(max_size=20)


@st.composite
def histograms(draw):
    h = Histogram()
    for ns in draw(st.lists(st.integers(0, 10**11), max_size=10)):
        h.add(ns)
    return h


windows = st.builds(
    Window,
    **{f.name: counts for f in fields(Window) if f.type == "int"},
    traffic=words,
    outcomes=st.dictionaries(st.sampled_from(Outcome), counts),
    latency=histograms(),
    service=histograms(),
    lag=histograms(),
    last_failure_due_s=maybe,
)
evidence = st.builds(
    FailedRequest,
    id=words,
    traffic=words,
    scope=counts,
    outcome=st.sampled_from(Outcome),
    due_s=instants,
    sent_s=instants,
    first_byte_s=maybe,
    done_s=instants,
    connection=counts,
    connection_age_s=maybe,
    reused=st.booleans(),
    idempotent=st.booleans(),
    status=st.none() | st.integers(100, 599),
    origin=words,
    generation=words,
    serial=words,
    error=words,
)
reports = st.builds(
    WorkerReport,
    worker=counts,
    second=counts,
    windows=st.lists(windows, max_size=3),
    sightings=st.lists(
        st.builds(
            Sighting, st.sampled_from(SightKind), words, st.sampled_from(SightVia), instants, instants, counts
        ),
        max_size=3,
    ),
    connections=st.builds(ConnectionStats, counts, counts, counts, counts, counts, counts),
    open_connections=counts,
    idle_connections=counts,
    evidence=st.lists(evidence, max_size=3),
    evidence_dropped=counts,
    stats=st.builds(SelfStats, instants, counts, counts, instants, instants, instants, instants, instants),
    final=st.booleans(),
    notes=st.lists(st.dictionaries(words, st.integers() | words, max_size=2), max_size=2),
)


def plain(r: WorkerReport) -> object:
    """Return a report as values that compare: histograms by their content."""

    def cell(value: object) -> object:
        return (
            [*sorted(value.counts.items()), value.sum_ns, value.max_ns]
            if isinstance(value, Histogram)
            else value
        )

    return [[cell(getattr(w, f.name)) for f in fields(Window)] for w in r.windows] + [
        getattr(r, f.name) for f in fields(WorkerReport) if f.name != "windows"
    ]


@given(reports)
def test_round_trip(r):
    """One line of JSON, whatever is in it, and nothing lost."""
    line = to_line(r)
    assert 1 == line.count(b"\n")
    assert plain(r) == plain(from_line(line))


def test_what_is_not_a_report_is_refused():
    """Broken JSON is a ValueError, JSON of another shape a KeyError."""
    with pytest.raises(ValueError):
        from_line(b"{oops")
    with pytest.raises(KeyError):
        from_line(b"{}")


def test_ok_and_failed_come_from_the_outcomes():
    """A window says how many ended as promised and how many did not."""
    w = window(0, outcomes={Outcome.OK: 97, Outcome.DNS: 2, Outcome.STALE_REUSE: 1})
    assert (97, 3) == (w.ok, w.failed)


def test_a_report_with_everything_is_read_back_by_type():
    """Enums come back as enums, not as text."""
    r = from_line(
        to_line(
            report(
                1,
                window(1, outcomes={Outcome.DNS: 1}),
                evidence=[failed(1)],
                sightings=[Sighting(SightKind.ORIGIN, "b1", SightVia.PROBE, 1.0, 2.0, 3)],
            )
        )
    )
    assert {Outcome.DNS: 1} == r.windows[0].outcomes
    assert isinstance(next(iter(r.windows[0].outcomes)), Outcome)
    assert isinstance(r.evidence[0].outcome, Outcome)
    assert SightVia.PROBE is r.sightings[0].via
