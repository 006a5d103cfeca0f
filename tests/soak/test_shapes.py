"""Every named shape is a valid traffic class, and what a plan says goes over it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from soak.plan import TrafficClassPlan
from soak.shapes import SHAPES, SUMMARIES


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_a_valid_class_of_its_name(shape):
    """And has a sentence for people."""
    assert TrafficClassPlan.model_validate({"shape": shape, "share": 1}).name == shape
    assert SUMMARIES[shape].endswith(".")


def test_the_readme_lists_every_shape_with_its_sentence():
    """In the same words and order."""
    text = (Path(__file__).parents[2] / "README.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.+) \|$", text, re.MULTILINE)
    assert list(SUMMARIES.items()) == [row for row in rows if row[0] in SHAPES]


def test_what_a_plan_says_goes_over_the_shape():
    """Name and fields."""
    found = TrafficClassPlan.model_validate({"shape": "h2", "name": "mine", "share": 0.5, "streams": 4})
    assert ("mine", "h2", 4, 16) == (found.name, found.protocol, found.streams, found.connections)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"shape": "h3", "share": 1}, "no traffic shape 'h3'"),
        ({"shape": "h2", "share": 1, "tls": False}, "needs tls"),
        ({"shape": "tls-resumed", "share": 1, "tls": False}, "needs tls"),
        ({"shape": "many-routes", "share": 1, "cache_keys": 5}, "exclude each other"),
        ({"shape": "h2", "share": 1, "connection": "new"}, "keeps its connections by design"),
        ({"shape": "many-routes", "share": 1, "protocol": "h2", "tls": True}, "go over http1"),
        ({"shape": "cache-mixed", "share": 1, "method": "POST"}, "needs method GET"),
        ({"shape": "l4", "share": 1, "tls": False}, "it needs tls: true"),
        ({"shape": "l4", "share": 1, "protocol": "h2"}, "speak http1"),
        ({"shape": "l4", "share": 1, "hosts": 5}, "know no routes"),
        ({"shape": "cache-mixed", "share": 1, "through": "l4", "tls": True}, "no cache"),
        ({"shape": "l4", "share": 1, "connection": "resume"}, "belongs to one origin"),
        ({"shape": "cache-mixed", "share": 1, "response_bytes": None}, "the length of an object"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(wrong, words):
    """With the value and the reason."""
    with pytest.raises(ValidationError, match=words):
        TrafficClassPlan.model_validate(wrong)
