"""The rules of a plan that need the catalog: names, targets, holds, numbers."""

from typing import Any

import pytest

from chaos.faults.catalog import registry
from soak.plan import Plan, format_duration
from soak.planrules import broken_rules, default_hold, fill_holds, known_targets, timeline_of, unsupported


def plan(*series: dict[str, Any], **fields: Any) -> Plan:
    return Plan.model_validate({"chaos": {"series": list(series)}, **fields})


def problems(p: Plan) -> list[str]:
    return [text for _, text in broken_rules(p)]


@pytest.mark.parametrize(
    ("series", "fields", "words"),
    [
        (
            {"fault": "backend-dwon", "every": "5m"},
            {},
            "no fault 'backend-dwon'; did you mean 'backend-down'?",
        ),
        (
            {"fault": "backend-down", "every": "5m", "targets": ["b1", "b4"]},
            {},
            "targets[1]: backend-down has no target 'b4'; known: b1, b2, b3",
        ),
        (
            {"fault": "reload", "every": "5m", "targets": ["prxy"]},
            {},
            "no target 'prxy'; did you mean 'proxy'?",
        ),
        ({"fault": "noop", "every": "5m", "targets": ["b1"]}, {}, "it aims at nothing, remove targets"),
        ({"fault": "reload", "every": "5m", "hold": "3s"}, {}, "cannot hold for 3s; remove the hold"),
        ({"fault": "reload", "every": "500ms"}, {"length": "1h"}, "every: 500ms must be at least 1s"),
        (
            {"fault": "backend-down", "every": "1m", "hold": "40s", "jitter": "10s"},
            {},
            "lets one backend-down run into the next",
        ),
        ({"fault": "backend-kill", "every": "5m"}, {"lab": {"backends": 1}}, "give the lab at least 2"),
        ({"fault": "reload", "every": "1s"}, {"length": "31d"}, "it asks for 2,678,400 faults in 31d"),
    ],
)
def test_a_broken_rule_is_one_sentence(series, fields, words):
    """It names the value and the way out."""
    (text,) = problems(plan(series, **fields))
    assert words in text


def test_a_run_without_a_request_is_refused():
    """A rate that rounds to nothing over the length."""
    (text,) = problems(plan(rate=0.001, length="1s"))
    assert "0.001 a second over 1s is less than one request" in text


def test_an_unknown_proxy_is_refused_with_the_nearest():
    """The adapters that exist are the known ones."""
    (text,) = problems(plan(proxy={"kind": "ngnix"}))
    assert text == "proxy.kind: 'ngnix' is not known; did you mean 'nginx'?"


def test_a_fault_that_the_proxy_cannot_do_is_refused(monkeypatch):
    """What the adapter does not declare is said before hour zero."""

    class Dull:
        capabilities = frozenset[str]()

    monkeypatch.setattr("soak.planrules.adapters", lambda: {"nginx": Dull()})
    (text,) = problems(plan({"fault": "cert-rotate", "every": "5m"}))
    assert "cert-rotate needs cert_rotate, which nginx cannot do" in text
    assert not unsupported(registry()["backend-down"], plan())


def test_a_sound_plan_breaks_none():
    """The default of every fault."""
    assert [] == problems(plan(*({"fault": name, "every": "10m"} for name in registry())))


def test_targets_are_what_a_fault_can_be_aimed_at():
    """Backends by number, the proxy by name, nothing at all."""
    five = plan(lab={"backends": 5})
    assert ("b1", "b2", "b3", "b4", "b5") == known_targets(registry()["backend-hang"], five)
    assert ("proxy",) == known_targets(registry()["reload"], five)
    assert () == known_targets(registry()["noop"], five)


@pytest.mark.parametrize(("every", "hold"), [("10m", 30.0), ("1m", 30.0), ("20s", 10.0)])
def test_a_disturbance_without_a_hold_gets_its_own_bounded_by_its_period(every, hold):
    """Half the period at most: traffic must recover before the next one."""
    (series,) = fill_holds(plan({"fault": "backend-down", "every": every})).chaos.series
    assert hold == series.hold
    assert default_hold(registry()["backend-down"], series.every) == series.hold


def test_a_given_hold_and_a_transition_are_left_alone():
    """Only what is missing is filled."""
    filled = fill_holds(
        plan({"fault": "backend-down", "every": "5m", "hold": "7s"}, {"fault": "reload", "every": "5m"})
    )
    assert [7.0, 0.0] == [s.hold for s in filled.chaos.series]


def test_the_timeline_turns_through_all_backends():
    """A series that names no target visits each in turn."""
    timeline = timeline_of(fill_holds(plan({"fault": "backend-down", "every": "1m"}, length="7m")))
    targets = [p.request.target for p in timeline.planned]
    assert {"b1", "b2", "b3"} == set(targets[:3])
    assert targets[:3] == targets[3:6]
    assert "30s" == format_duration(timeline.planned[0].request.hold_s)
