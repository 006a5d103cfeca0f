"""Reading YAML: what is refused before anybody looks at the meaning, and where each value stands."""

from pathlib import Path

import pytest

from soak.errors import PlanError
from soak.yamlfile import MAX_BYTES, MAX_DEPTH, key_path, parse_yaml, read_yaml


def test_values_are_plain_and_every_one_has_its_line():
    """Lines count from 1; a parent's line stands in for a value that is not in the file."""
    document = parse_yaml("rate: 5\nchaos:\n  series:\n    - fault: reload\n      every: 5m\n", "p.yaml")
    assert document.data == {"rate": 5, "chaos": {"series": [{"fault": "reload", "every": "5m"}]}}
    assert document.place(("chaos", "series", 0, "every")) == "p.yaml:5"
    assert document.place(("chaos", "series", 0, "hold")) == "p.yaml:4"
    assert document.place(("length",)) == "p.yaml"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("rate: : 3", 1, "mapping values are not allowed here, at 'rate: : 3'"),
        ("a: 1\n\tb: 2", 2, "cannot start any token"),
        ("a: [1, 2", 1, "not valid YAML"),
        ("a: 1\n---\nb: 2", 2, "expected a single document"),
        ("a: !!python/object:os.system x", 1, "could not determine a constructor"),
        ("rate: 1\nrate: 2", 2, "'rate' stands twice (first on line 1)"),
        ("a:\n  b: 1\n  b: 2", 3, "'a.b' stands twice (first on line 2)"),
        ("a: &x 1\nb: *x", 2, "alias '*x' is refused"),
        ("yes: 1", 1, "the key 'yes' is not text"),
        ("a:\n  1: x", 2, "the key '1' in 'a' is not text"),
        ("? [a]\n: 1", 1, "the key 'a list' is not text"),
        ("a: .inf", 1, "a: .inf is not a finite number"),
        ("a: [1, .nan]", 1, "a[1]: .nan is not a finite number"),
        ("- 1", 1, "this file holds a list"),
        ("5", 1, "this file holds just '5'"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), 1, f"deeper than {MAX_DEPTH} levels"),
    ],
)
def test_bad_text_is_one_sentence_with_its_line(text, line, words):
    """File, line, and what stands there."""
    with pytest.raises(PlanError) as refused:
        parse_yaml(text, "p.yaml")
    message = str(refused.value)
    assert message.startswith(f"p.yaml:{line}: ")
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n"])
def test_an_empty_file_says_how_to_get_a_full_one(text):
    """Not a plan of defaults in silence."""
    with pytest.raises(PlanError, match="empty; 'soak init'"):
        parse_yaml(text, "p.yaml")


def test_a_file_is_read_with_its_path_in_every_message(tmp_path: Path):
    """A byte order mark is no obstacle."""
    path = tmp_path / "p.yaml"
    path.write_bytes(b"\xef\xbb\xbfrate: 7\n")
    document = read_yaml(path)
    assert document.data == {"rate": 7}
    assert document.place(("rate",)) == f"{path}:1"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read"),
        (b"a: \xff\xfe", "byte 3 is not UTF-8"),
        (b"#" * (MAX_BYTES + 1), "larger than 256 KiB"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content, words):
    """Missing, not text, or far too big."""
    path = tmp_path / "p.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PlanError, match=words) as refused:
        read_yaml(path)
    assert str(path) in str(refused.value)


def test_a_directory_is_no_plan(tmp_path: Path):
    """The system's own words."""
    with pytest.raises(PlanError, match="Is a directory"):
        read_yaml(tmp_path)


def test_key_paths_read_as_people_write_them():
    """Lists by index, keys by name."""
    assert key_path(("chaos", "series", 1, "every")) == "chaos.series[1].every"
    assert key_path(()) == ""
