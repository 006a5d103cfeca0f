"""Pydantic's complaints as sentences: each names the key path, the value and the rule."""

from typing import Any

import pytest
from pydantic import ValidationError

from soak.plan import Plan
from soak.planerrors import keys_of, sentences, wrong_booleans

ROWS: list[tuple[dict[str, Any], str]] = [
    ({"ratee": 5}, "unknown key 'ratee'; did you mean 'rate'?"),
    ({"self": {"max_lag": 1}}, "unknown key 'max_lag' in self; did you mean 'max_lag_p99'?"),
    (
        {"traffic": {"classes": [{"name": "a", "share": 1, "metod": "GET"}]}},
        "unknown key 'metod' in traffic.classes[0]; did you mean 'method'?",
    ),
    ({"chaos": {"series": [{"fault": "reload"}]}}, "the key 'every' is missing in chaos.series[0]"),
    ({"rate": "fast"}, "rate: 'fast' must be a number"),
    ({"rate": None}, "rate: nothing (an empty value) must be a number"),
    ({"rate": -5}, "rate: -5 must be more than 0"),
    ({"rate": float("nan")}, "rate: nan is not a finite number"),
    (
        {"traffic": {"classes": [{"name": f"c{n}", "share": 1} for n in range(33)]}},
        "traffic.classes: a list of 33 must have at most 32 items",
    ),
    ({"seed": 1.5}, "seed: 1.5 must be a whole number"),
    ({"seed": "x"}, "seed: 'x' must be a whole number"),
    ({"workers": 17}, "workers: 17 must be at most 16"),
    ({"workers": 0}, "workers: 0 must be at least 1"),
    ({"seed": 2**63}, f"seed: {2**63} must be less than 9,223,372,036,854,775,808"),
    ({"objectives": {"success": 1.5}}, "objectives.success: 1.5 must be at most 1"),
    ({"lab": {"start_timeout": "0s"}}, "lab.start_timeout: '0s' must be more than 0"),
    ({"lab": {"kind": "locla"}}, "lab.kind: 'locla' is not known; did you mean 'local'?"),
    ({"traffic": {"arrivals": 3}}, "traffic.arrivals: 3 is not known; known: poisson, uniform"),
    ({"lab": 4}, "lab: 4 must be a mapping of keys to values"),
    ({"lab": [1, 2]}, "lab: a list of 2 must be a mapping of keys to values"),
    ({"chaos": {"series": {"a": 1}}}, "chaos.series: a mapping (a) must be a list, one '- ' a line"),
    ({"name": 3}, "name: 3 must be text"),
    ({"name": "n" * 65}, f"name: '{'n' * 65}' must be text of at most 64 characters"),
    ({"name": "a b"}, "name: 'a b' does not match the pattern ^[A-Za-z0-9._-]*$"),
    ({"length": "1y"}, "length: '1y' is not a duration; write it like 30s, 15m, 1h30m or 250ms"),
    (
        {"traffic": {"classes": [{"name": "a", "share": 1, "tls": "maybe"}]}},
        "traffic.classes[0].tls: 'maybe' must be true or false",
    ),
    ({"traffic": {"classes": []}}, "traffic.classes: it must have at least 1 item(s)"),
    (
        {"traffic": {"classes": [{"name": "a", "share": 0.5}]}},
        "traffic: the shares of the traffic classes add up to 0.5; they must add up to 1",
    ),
    (
        {"chaos": {"series": [{"fault": "backend-down", "every": "1m", "hold": "2m"}]}},
        (
            "chaos.series[0]: backend-down: hold 2m is not shorter than every 1m; "
            "a fault must end before the next one of its kind begins"
        ),
    ),
]


def complaints(data: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        Plan.model_validate(data)
    return [text for _, text in sentences(Plan, data, refused.value)]


@pytest.mark.parametrize(("data", "sentence"), ROWS, ids=[text[:50] for _, text in ROWS])
def test_each_complaint_is_one_sentence(data, sentence):
    """Exactly one, with nothing of pydantic's own words."""
    assert [sentence] == complaints(data)


def test_an_absurd_rate_says_why_it_is_absurd():
    """The limit alone would look arbitrary."""
    (text,) = complaints({"rate": 1_000_000})
    assert "rate: 1000000 must be at most 200,000; past that" in text


def test_every_complaint_is_told():
    """Not only the first."""
    assert 3 == len(complaints({"rate": -1, "seed": "x", "lab": {"backends": 0}}))


def test_a_long_value_is_cut():
    """A sentence stays a sentence."""
    (text,) = complaints({"rate": "x" * 500})
    assert len(text) < 130


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ({"rate": True}, "rate: true must be a number"),
        ({"proxy": {"workers": True}}, "proxy.workers: true must be a number"),
        ({"traffic": {"classes": [{"share": True}]}}, "traffic.classes[0].share: true must be a number"),
    ],
)
def test_yes_is_no_number(data, where):
    """YAML reads yes and on as true, and pydantic reads true as 1."""
    valid = Plan.model_validate(data | {"traffic": {}}).model_dump() if "traffic" not in data else None
    if valid is None:
        valid = {"traffic": {"classes": ({"share": 1.0},)}}
    assert [where] == [text for _, text in wrong_booleans(data, valid)]


def test_a_true_boolean_is_none_of_them():
    """tls: false stays as it is."""
    data = {"tls": False, "share": 1}
    assert [] == list(wrong_booleans(data, {"tls": False, "share": 1.0}))


def test_known_keys_are_those_people_write():
    """The alias, not the Python name; nothing below a value."""
    assert "self" in list(keys_of(Plan, ()))
    assert "self_limits" not in list(keys_of(Plan, ()))
    assert "every" in list(keys_of(Plan, ("chaos", "series", 3)))
    assert [] == list(keys_of(Plan, ("rate",)))
