"""Placeholders: what is filled, and the sentence for what cannot be."""

from __future__ import annotations

import pytest

from soak.template import TemplateError, check, fill, fill_all, used

LOOPS = {"backend": {"backend.host", "backend.comma"}}
ITEMS = {
    "backend": [
        {"backend.host": "a", "backend.comma": ","},
        {"backend.host": "b", "backend.comma": ""},
    ]
}


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("listen 80;\n", "listen @{port};\n"),
        ('file "a b\\"c\\\\d";', "file @{path|quoted};"),
        ("$host {{x}} %[req] @ @(x) 80", "$host {{x}} %[req] @ @(x) @{port}"),
        ("@{port} stays", "@@{port} stays"),
        ("", ""),
    ],
)
def test_a_placeholder_is_replaced_and_nothing_else_is_touched(expected, text):
    """Signs of other languages pass; ``@@{`` is ``@{``."""
    values = {"port": "80", "path": 'a b"c\\d'}
    check(text, values)
    assert expected == fill(text, values)


def test_lines_between_each_and_end_are_repeated():
    """With what is known outside, and once for nothing at all."""
    text = "pool:\n  @{each backend}\n  - @{backend.host}:@{port}@{backend.comma}\n  @{end}\nend\n"
    check(text, {"port"}, LOOPS)
    assert "pool:\n  - a:1,\n  - b:1\nend\n" == fill(text, {"port": "1"}, ITEMS)
    assert "pool:\nend\n" == fill(text, {"port": "1"}, {"backend": []})


def test_lines_of_a_value_keep_the_indentation_of_their_place():
    """So that YAML of several lines can be put into YAML."""
    assert "a:\n  b: 1\n  c: 2\n" == fill("a:\n  @{extra}\n", {"extra": "b: 1\nc: 2"})
    assert "a: b: 1\nc: 2\n" == fill("a: @{extra}\n", {"extra": "b: 1\nc: 2"})


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("line 2: there is no placeholder @{htp_port}; did you mean 'http_port'?", "a\nlisten @{htp_port};"),
        ("line 1: there is no placeholder @{}; known: http_port", "@{}"),
        ("line 3: '@{http_port' is not closed; write @{name}", "\n\n@{http_port"),
        ("line 1: @{http_port|shell}: a value can be 'quoted' and nothing else", "@{http_port|shell}"),
        (
            "line 1: @{backend.host} stands outside its loop; it is known between @{each backend}",
            "@{backend.host}",
        ),
        ("line 1: there is no @{each bakend}; did you mean 'backend'?", "@{each bakend}\n@{end}\n"),
        ("line 2: @{each backend} has no @{end}", "\n@{each backend}\nx\n"),
        (
            "line 2: @{each backend} stands inside that of line 1",
            "@{each backend}\n@{each backend}\n@{end}\n",
        ),
        ("line 1: @{end} ends nothing; remove it", "@{end}\n"),
    ],
)
def test_what_cannot_be_filled_is_refused_with_its_line(words, text):
    """And the nearest name that is known."""
    with pytest.raises(TemplateError) as refused:
        check(text, {"http_port"}, LOOPS)
    assert words in str(refused.value)


def test_a_text_that_nobody_checked_is_refused_when_it_is_filled():
    """Never a placeholder in a file that goes live."""
    with pytest.raises(TemplateError, match=r"line 1: there is no placeholder @\{b\}; known: a"):
        fill("@{b}", {"a": "1"})
    with pytest.raises(TemplateError, match="nothing is repeated here"):
        fill("@{each backend}\n@{end}", {})


def test_a_command_keeps_its_arguments_apart():
    """A blank in a value makes no second argument."""
    assert ["run", "a b", "--x=a b"] == fill_all(["run", "@{d}", "--x=@{d}"], {"d": "a b"})


def test_the_names_in_a_text_are_known():
    """Without how they are written."""
    assert ["a", "b"] == list(used("@{a} @@{c} @{b|quoted}"))
