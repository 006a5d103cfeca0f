"""The rules of a plan that need the catalog: names, targets, holds, numbers."""

from typing import Any

import pytest

from chaos.faults.catalog import CatalogError, registry
from soak.abilities import lacking
from soak.errors import PlanError
from soak.plan import Plan, format_duration
from soak.planfile import load_plan
from soak.planrules import (
    broken_rules,
    default_hold,
    fill_holds,
    known_faults,
    known_targets,
    timeline_of,
)


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
        (
            {"fault": "reload", "every": "1m", "params": {"kind": "routing"}},
            {},
            "params: reload knows no kind 'routing' with this proxy; it knows full",
        ),
        (
            {"fault": "reload", "every": "1m", "params": {"kind": "half"}},
            {"proxy": {"kind": "envoy"}},
            "reload knows no kind 'half' with this proxy; it knows full, routing",
        ),
        (
            {"fault": "reload", "every": "1m", "params": {"how": "full"}},
            {},
            "params: reload has no param 'how'; it takes kind",
        ),
        (
            {"fault": "noop", "every": "1m", "params": {"kind": "full"}},
            {},
            "params: noop has no param 'kind'; it takes none",
        ),
    ],
)
def test_a_broken_rule_is_one_sentence(series, fields, words):
    """It names the value and the way out."""
    (text,) = problems(plan(series, **fields))
    assert words in text


@pytest.mark.parametrize(
    ("proxy", "kind"), [("envoy", "full"), ("envoy", "routing"), ("haproxy", "routing"), ("caddy", "full")]
)
def test_a_kind_of_reload_that_the_proxy_knows_is_taken(proxy, kind):
    """Each proxy has its own."""
    assert [] == problems(
        plan({"fault": "reload", "every": "1m", "params": {"kind": kind}}, proxy={"kind": proxy}, length="1h")
    )


def test_a_byte_pipe_through_a_proxy_that_has_none_is_refused():
    """In one sentence that says what to do."""
    l4 = {"classes": [{"shape": "balance", "share": 0.5}, {"shape": "l4", "share": 0.5}]}
    (text,) = problems(plan(proxy={"kind": "caddy"}, traffic=l4))
    assert text == (
        "traffic.classes[1]: l4 goes through l4, a byte pipe, which caddy does not have; remove the class"
    )
    assert [] == problems(plan(proxy={"kind": "haproxy"}, traffic=l4))


def test_a_run_without_a_request_is_refused():
    """A rate that rounds to nothing over the length."""
    (text,) = problems(plan(rate=0.001, length="1s"))
    assert "0.001 a second over 1s is less than one request" in text


def test_an_unknown_proxy_is_refused_with_the_nearest():
    """The adapters that exist are the known ones."""
    (text,) = problems(plan(proxy={"kind": "ngnix"}))
    assert text == "proxy.kind: 'ngnix' is not known; did you mean 'nginx'?"


def test_what_the_proxy_cannot_do_is_refused_with_its_reason():
    """Faults and traffic, before hour zero."""
    bouine = load_plan(preset="bouine").proxy.model_dump(by_alias=True)
    classes = [{"shape": "h2", "share": 0.5}, {"shape": "balance", "share": 0.5}]
    fault, traffic = sorted(
        problems(plan({"fault": "cert-rotate", "every": "5m"}, proxy=bouine, traffic={"classes": classes}))
    )
    assert fault == (
        "chaos.series[0].fault: cert-rotate needs cert_rotate, and bouine cannot cert_rotate "
        "(it reads its certificate once, at start); remove it"
    )
    assert traffic == (
        "traffic.classes[0]: h2 needs h2, and bouine cannot h2 (its TLS listener speaks HTTP/1.1); remove the class"
    )


def test_a_sound_plan_breaks_none():
    """The default of every fault that this lab can do."""
    able = [name for name, fault in registry().items() if not lacking(fault, plan())]
    assert {"reload", "backend-down", "cert-rotate"} < set(able)
    assert [] == problems(plan(*({"fault": name, "every": "10m"} for name in able)))


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


@pytest.mark.parametrize("fault", ["backend-partition", "proxy-throttle"])
def test_what_takes_containers_is_refused_in_a_local_lab(fault):
    """A lab of processes has no networks and no limits of its own; a lab of containers does."""
    chaos = {"series": [{"fault": fault, "every": "1m"}]}
    [(path, words)] = list(broken_rules(Plan.model_validate({"chaos": chaos})))
    assert ("chaos", "series", 0, "fault") == path
    assert f"{fault} needs {fault.replace('-', '_')}, and the local lab cannot" in words
    assert [] == list(broken_rules(Plan.model_validate({"chaos": chaos, "lab": {"kind": "docker"}})))


def test_a_file_among_the_faults_that_defines_none_is_a_sentence(monkeypatch):
    """Whoever adds one meets it first, and it is no defect of soak."""

    def broken():
        raise CatalogError("chaos.faults.mine defines no FAULT; see docs/ADDING_A_FAULT.md")

    monkeypatch.setattr("soak.planrules.registry", broken)
    with pytest.raises(
        PlanError, match=r"^chaos\.faults\.mine defines no FAULT; see docs/ADDING_A_FAULT\.md$"
    ):
        known_faults()
