"""Generators take turns; what cannot run is named, what fails is kept."""

import json
from pathlib import Path

from benchmarks.load.compare import SHORT_S, Contestant, Entry, of_soak, side_by_side
from benchmarks.load.cost import CpuRun, RunFailed
from benchmarks.load.soakside import spec_for
from benchmarks.load.target import Target
from soak.load.traffic import LoadSlice


def contestant(name, **changes):
    return Contestant(name=name, model="open", argv=lambda s: [name, str(s)], count=int, **changes)


def measure(contestants, run, repetitions=2):
    return side_by_side(
        contestants, repetitions=repetitions, seconds=4, say=lambda _: None, run=run, pause_s=0.0
    )


def test_they_take_turns():
    """A B A B, each a short and a longer run."""
    order = []

    def run(command):
        order.append(tuple(command))
        seconds = int(command[1])
        return CpuRun(seconds * 0.1, 0.0, seconds, str(seconds * 1000))

    entries = measure([contestant("a"), contestant("b")], run)
    one_turn = [("a", "1"), ("a", "5"), ("b", "1"), ("b", "5")]
    assert one_turn * 2 == order
    assert [100.0, 100.0] == [round(e.cpu_us().middle, 6) for e in entries]
    assert SHORT_S == 1


def test_who_is_missing_is_named_and_not_run():
    """Never silently left out."""

    def run(command):
        raise AssertionError(command)

    (entry,) = measure([contestant("oha", missing="not installed")], run)
    assert ("oha", "not installed", None, None) == (entry.name, entry.missing, entry.cpu_us(), entry.rate())


def test_a_failure_does_not_stop_the_others():
    """It is kept with its words."""

    def run(command):
        if command[0] == "bad":
            raise RunFailed("bad ended with 1")
        seconds = int(command[1])
        return CpuRun(seconds, 0, seconds, str(seconds))

    bad, good = measure([contestant("bad"), contestant("good")], run)
    assert ["bad ended with 1"] * 2 == bad.failures
    assert 2 == len(good.costs)
    assert good == Entry.from_json(json.loads(json.dumps(good.to_json())))


def test_soak_counts_only_the_outcome_asked_for(tmp_path):
    """A failed request is no request, unless the failures are what is measured."""
    spec = spec_for(Target(8080, 8443, Path("ca.pem"), 1, Path(), lambda _: None), 100)
    output = json.dumps({"outcomes": {"ok": 7, "body_mismatch": 3}})
    assert 7 == of_soak("soak", spec, tmp_path, connections=5).count(output)
    assert 3 == of_soak("soak", spec, tmp_path, connections=5, outcome="body_mismatch").count(output)
    command = of_soak("soak", spec, tmp_path, connections=5).argv(9)
    order = LoadSlice.from_json(json.loads(Path(command[-1]).read_text()))
    assert (9, 5, [spec]) == (order.seconds, order.max_in_flight, order.classes)
    assert spec.check_identity
    assert spec.check_body
