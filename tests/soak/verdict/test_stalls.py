"""Steady seconds in which requests hung: found without a failure, and not confused with noise, slow classes or our own illness."""

from __future__ import annotations

import pytest

from soak.measure.histogram import Histogram
from soak.model import Unwell
from tests.soak.synthetic import SyntheticRun, histogram, record
from tests.soak.verdict.runs import only_missed
from tests.soak.verdict.test_starving import hungry


def mixed(*parts: tuple[int, float]) -> Histogram:
    out = Histogram()
    for n, ms in parts:
        out.merge(histogram(n, ms))
    return out


def hanging(seconds: int = 300, ms: float = 1500.0, n: int = 60) -> SyntheticRun:
    """A proxy that stands still once a minute; every request is answered in the end."""
    run = SyntheticRun(seconds=seconds)
    for s in range(30, seconds, 60):
        run.changes[s] = {"latency": mixed((100 - n, 1.0), (n, ms))}
    return run


def test_a_hang_every_minute_is_named_with_its_rhythm(verdict):
    """The planted defect: no request fails, and p99 is the same early and late."""
    missed = only_missed(v := verdict(hanging()))
    assert ("fail", "steady_p99", 30.0) == (v.verdict, missed.name, missed.at_s)
    assert pytest.approx(1.5, rel=0.01) == missed.value
    assert "requests hung in 5 of 295 steady seconds: p99 was above 1 s, first at 30.0s" in missed.reason
    assert "again about every 60 s, worst 1.50 s at " in missed.reason


def test_a_cold_start_is_no_hang(verdict):
    """All connections are made at once in the first seconds."""
    run = SyntheticRun(seconds=60)
    run.changes = {s: {"latency": histogram(100, 2000.0)} for s in range(3)}
    assert "pass" == verdict(run).verdict


def test_two_hangs_have_no_rhythm(verdict):
    """Nothing is read into few points."""
    assert "again about" not in only_missed(verdict(hanging(120))).reason


@pytest.mark.parametrize(
    "odd",
    [
        {"latency": mixed((97, 1.0), (3, 1100.0))},
        {"latency": histogram(100, 250.0)},
    ],
    ids=["a few lost packets", "a short pause"],
)
def test_noise_is_no_hang(verdict, odd):
    """Neither three requests that took a second, nor a quarter of a second for all of them, every now and then."""
    run = SyntheticRun(seconds=300)
    run.changes = dict.fromkeys(range(20, 300, 17), odd)
    v = verdict(run)
    assert "pass" == v.verdict
    (o,) = [o for o in v.objectives if o.name == "steady_p99"]
    assert o.value is not None
    assert o.limit is not None
    assert o.value <= o.limit


def test_requests_that_always_take_long_do_not_hang(verdict):
    """A class of slow answers sets its own measure; three times that is a hang."""
    run = SyntheticRun(seconds=300)
    for s in range(300):
        run.changes[s] = {"latency": mixed((90, 1.0), (10, 2000.0))}
    assert "pass" == verdict(run).verdict


def test_what_hangs_while_soak_or_the_host_was_ill_is_set_apart(verdict):
    """Also a second that follows: its requests were due in the bad one."""
    run = hanging(90)
    run.unwell = [Unwell(28.0, 29.0, "late")]
    assert "invalid" == verdict(run).verdict  # one second of ninety is too much, but it fails nobody
    assert not [o for o in verdict(run).objectives if o.word == "fail"]


def test_a_starved_host_excuses_a_hang(verdict):
    """As it excuses failures: only when the run would fail."""
    run = hanging(1000)
    for s in range(90, 1000, 60):
        del run.changes[s]
    run.events = [hungry(26.0, 31.0)]
    assert "pass" == verdict(run).verdict


def test_a_fault_explains_its_own_hang(verdict):
    """It is judged by its recovery."""
    run = SyntheticRun(seconds=120)
    run.add_fault(record(1, "backend-down", 60.0))
    run.changes[60] = {"latency": histogram(100, 1800.0)}
    assert "pass" == verdict(run).verdict


def test_many_hangs_are_counted_without_being_decoded(verdict, monkeypatch):
    """What is certain after the first ones costs nothing more."""
    monkeypatch.setattr("soak.verdict.stalls._MOST_DECODED", 2)
    assert "hung in 5 of" in only_missed(verdict(hanging())).reason
