"""The result of a load run: sums of all and of each class, examples, who answered."""

from __future__ import annotations

from soak.load.orders import LoadOrder
from soak.load.summary import Told, coarse, summarize
from soak.measure.histogram import Histogram
from soak.measure.ledger import Ledger
from soak.model import Outcome, Sighting, SightKind, SightVia
from tests.soak.synthetic import failed, histogram, report, window

ORDER = LoadOrder("http://h", 200, 2, traffic=(("a", 0.5), ("b", 0.5)))


def origin(name: str, n: int) -> Sighting:
    return Sighting(SightKind.ORIGIN, name, SightVia.TRAFFIC, 0.0, 1.0, n)


def test_each_class_has_its_own_statistics():
    """With the keys of the whole; the whole is their sum."""
    ledger, told = Ledger(), Told()
    bad = window(
        0,
        "b",
        outcomes={Outcome.OK: 96, Outcome.STATUS_5XX: 3},
        in_flight=1,
        latency=histogram(99, 8.0),
    )
    for said in (report(0, window(0, "a"), bad), report(1, window(1, "a"), worker=1)):
        ledger.add(said)
        told.add(said)
    load = summarize(ORDER, ledger, told)["load"]
    a, b = load["classes"]["a"], load["classes"]["b"]
    assert (200, 200, 0, 0) == (a["sent"], a["ok"], a["failed"], a["in_flight"])
    assert (100, 96, 3, 1) == (b["sent"], b["ok"], b["failed"], b["in_flight"])
    assert {"ok": 96, "status_5xx": 3} == b["outcomes"]
    assert (300, 296, 3, 1) == (load["sent"], load["ok"], load["failed"], load["in_flight"])
    assert a["latency_ms"]["max"] == 1.0 < b["latency_ms"]["p50"] <= load["latency_ms"]["max"] == 8.0
    assert set(a) <= set(load)


def test_what_was_told_beside_the_sums_is_in_the_result():
    """Backends with their shares, the first error of each kind, deliveries that came twice."""
    ledger, told = Ledger(), Told()
    twice = {"name": "load.delivered_twice", "request": "0.1.7", "count": 2}
    said = report(
        0,
        window(0),
        sightings=[origin("b1", 30), origin("b2", 10)],
        evidence=[failed(0, error="first"), failed(0, error="second")],
        notes=[twice, {"name": "load.stalled", "count": 1}],
    )
    ledger.add(said)
    for more in (said, report(1, window(1), sightings=[origin("b2", 20)])):
        told.add(more)
    result = summarize(ORDER, ledger, told)
    assert {"b1": {"answers": 30, "share": 0.5}, "b2": {"answers": 30, "share": 0.5}} == result["origins"]
    assert [{"traffic": "get", "outcome": "status_5xx", "error": "first"}] == result["load"]["examples"]
    assert 2 == result["duplicates"]
    assert {"a": 0.5, "b": 0.5} == result["traffic"]


def test_names_and_examples_are_bounded():
    """A peer that calls itself by a new name each time costs no memory."""
    told = Told()
    for i in range(200):
        told.add(
            report(i, sightings=[origin(f"b{i}", 1)], evidence=[failed(i, traffic=f"t{i}")]),
        )
    assert (64, 40) == (len(told.answers), len(told.examples))


def test_a_run_without_a_single_answer_has_a_result():
    """Every worker may die before its first second."""
    result = summarize(ORDER, Ledger(), Told(deaths=[{"worker": 0}]))
    assert (0, {}, {}, [{"worker": 0}], None) == (
        result["load"]["scheduled"],
        result["load"]["classes"],
        result["origins"],
        result["workers_died"],
        result["self"]["cpu_us_per_request"],
    )


def test_the_coarse_histogram_keeps_every_count():
    """Few rows, all samples."""
    fine = Histogram()
    for ns in range(1000, 50_000_000, 10_007):
        fine.add(ns)
    rows = coarse(fine)
    assert fine.count == sum(n for _, n in rows)
    assert len(rows) < 40
