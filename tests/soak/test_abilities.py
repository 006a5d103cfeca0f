"""What a proxy and a lab can and cannot do, and why: said before a run, and held to by plans."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.faults.catalog import registry
from soak.abilities import abilities, in_words, lacking, misfits, needed_by, unable, warnings_of, why_not
from soak.plan import Plan, TrafficClassPlan
from soak.planfile import load_plan
from soak.proxies.base import Capability
from soak.proxies.catalog import adapters

BOUINE = load_plan(preset="bouine")


def with_bouine(**fields: Any) -> Plan:
    return Plan.model_validate({"proxy": BOUINE.proxy.model_dump(by_alias=True), **fields})


def test_each_ability_is_told_once_with_who_has_it():
    """The proxy's first, then the lab's; what is not, with a reason."""
    found = {one.name: one for one in abilities(BOUINE)}
    assert {*map(str, Capability), "backend_stop", "backend_pause"} <= set(found)
    assert (False, "it reads its configuration once, at start") == (
        found["reload"].able,
        found["reload"].note,
    )
    assert ("lab", True) == (found["backend_stop"].who, found["backend_stop"].able)
    assert all(one.note for one in found.values() if not one.able)


def test_what_a_binary_was_built_without_counts():
    """Asked of the very binary, where an adapter can."""
    found = {one.name: one for one in abilities(Plan(), frozenset({Capability.RELOAD}))}
    assert (True, False, "not declared") == (found["reload"].able, found["h2"].able, found["h2"].note)


def test_words_say_what_it_can_what_only_in_part_and_what_it_cannot():
    """A line each, after a line of all that it can."""
    raddex = load_plan(preset="raddex")
    lines = list(in_words(raddex, abilities(raddex)))
    assert "raddex can cert_rotate, h2, marker, reload, websocket" == lines[0]
    assert "raddex can marker, but header_down may be missing on errors of its own" in lines
    assert "raddex cannot tcp: it has tcp blocks, which this plan does not use" in lines
    assert any(line.startswith("the local lab can backend_pause, backend_stop") for line in lines)
    assert "bouine can answer requests, and no more" == next(in_words(BOUINE, abilities(BOUINE)))


def test_what_a_fault_needs_and_nobody_gives_is_lacking():
    """Of the proxy, of the lab, of both."""
    faults = registry()
    assert {"reload", "marker"} == lacking(faults["reload"], BOUINE)
    assert {"cert_rotate"} == lacking(faults["cert-rotate"], BOUINE)
    assert frozenset() == lacking(faults["backend-down"], BOUINE) == lacking(faults["reload"], Plan())
    words = why_not(BOUINE, frozenset({"cert_rotate"}))
    assert "bouine cannot cert_rotate (it reads its certificate once, at start)" == words
    assert "the local lab cannot no_such" == why_not(Plan(), frozenset({"no_such"}))


def test_a_proxy_without_a_marker_is_not_asked_for_reloads():
    """Nothing could show that one took effect; a rotation reloads too, and is proven by the serial."""
    command = {
        "can": ["reload", "cert_rotate"],
        "reload": {"signal": "HUP"},
        "start": ["@{binary}"],
        "files": {"a": "@{https_port} @{bundle}"},
    }
    plan = Plan.model_validate({"proxy": {"kind": "command", "binary": "x", "command": command}})
    faults = registry()
    assert {"marker"} == lacking(faults["reload"], plan) == lacking(faults["reload-bad"], plan)
    assert frozenset() == lacking(faults["cert-rotate"], plan)


@pytest.mark.parametrize(
    ("expected", "fields"),
    [(None, {}), (Capability.H2, {"protocol": "h2"}), (Capability.WEBSOCKET, {"protocol": "websocket"})],
)
def test_a_traffic_class_needs_what_carries_it(expected, fields):
    """HTTP/1.1 is what everything can."""
    one = TrafficClassPlan.model_validate({"name": "x", "share": 1, **fields})
    assert expected == needed_by(one)
    plan = with_bouine(traffic={"classes": [one]})
    assert [expected] * (expected is not None) == [needed for _, _, needed in unable(plan)]


def test_misfits_of_a_plan_are_told_by_their_place():
    """But never all its traffic: then there is nothing to send."""
    series = [{"fault": "backend-down", "every": "1m"}, {"fault": "reload", "every": "90s"}]
    shapes = [{"shape": "h2", "share": 0.5}, {"shape": "balance", "share": 0.5}]
    found = misfits(with_bouine(chaos={"series": series}, traffic={"classes": shapes}), registry())
    assert {1} == set(found.series)
    assert found.series[1].startswith(
        "reload every 1m30s is left out: bouine cannot marker (its configuration sets no"
    )
    assert {
        0: "traffic class h2 is left out: bouine cannot h2 (its TLS listener speaks HTTP/1.1)"
    } == found.classes
    only = with_bouine(traffic={"classes": [{"shape": "h2", "share": 1}]})
    assert {} == misfits(only, registry()).classes


def test_people_are_warned_of_what_nobody_tried_and_of_what_was_left_out():
    """Before they start it."""
    names = [name for name, _ in warnings_of(BOUINE.model_copy(update={"left_out": ("x", "y")}))]
    assert ["untried", "left out", "left out"] == names
    assert [] == list(warnings_of(Plan()))


@pytest.mark.parametrize("name", sorted(set(adapters()) - {"command"}))
def test_every_adapter_says_why_its_proxy_cannot_do_something(name):
    """Who reads it must know whether it is the proxy or soak."""
    found = abilities(Plan.model_validate({"proxy": {"kind": name}}))
    assert [] == [one.name for one in found if not one.able and one.note == "not declared"]
