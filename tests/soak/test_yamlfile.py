"""Reading YAML: what is refused before anybody looks at the meaning, and where each value stands."""

import os
import subprocess
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
        ("rate: 2026-13-45", 1, "rate: '2026-13-45' is no date that exists; put it between quotes"),
        ("rate: !!int abc", 1, "rate: 'abc' is no whole number that can be"),
        ("rate: !!float abc", 1, "rate: 'abc' is no number"),
        ("rate: !!bool maybe", 1, "rate: 'maybe' is no bool"),
        ("rate: !!timestamp foo", 1, "rate: 'foo' is no date that exists"),
        (f"rate: {'9' * 5000}", 1, f"rate: '{'9' * 57}...' is no whole number that can be"),
        ("2026-13-45: 1", 1, "a key: '2026-13-45' is no date that exists"),
        ('proxy: {binary: "a\\0b"}', 1, r"proxy.binary: 'a\x00b' holds a NUL character; remove it"),
        ('"a\\0b": 1', 1, r"a key: 'a\x00b' holds a NUL character"),
        ("rate: 0777", 1, "rate: YAML reads 0777 as 511; write 511 if you mean that"),
        ("length: 1:30", 1, "length: YAML reads 1:30 as 90; write 90 if you mean that, durations like 1m30s"),
        ("a: -1:30.5", 1, "a: YAML reads -1:30.5 as -90.5"),
        ('"a\\nb": .inf', 1, "'a\\nb': .inf is not a finite number"),
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


def test_what_cannot_be_read_says_why_and_what_to_do(tmp_path: Path):
    """The system's own words, and a way out that fits them."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path, words in (
        (tmp_path, "Is a directory; name a file in it"),
        (loop, "Too many levels of symbolic links; name another file"),
        (tmp_path / "gone.yaml", "No such file or directory; 'soak init gone.yaml' writes a commented plan"),
        (tmp_path / ("a" * 300), "File name too long; name another file"),
        (Path("/dev/zero"), "the file is larger than 256 KiB"),
    ):
        with pytest.raises(PlanError) as refused:
            read_yaml(path)
        assert words in str(refused.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_plan_of_somebody_else_says_so(tmp_path: Path):
    """Root may read everything, so another user asks."""
    path = tmp_path / "p.yaml"
    path.write_text("rate: 7\n")
    path.chmod(0o600)
    os.seteuid(65_534)
    try:
        with pytest.raises(PlanError, match="Permission denied; make it readable for you, or name another"):
            read_yaml(path)
    finally:
        os.seteuid(0)


def test_a_pipe_is_read_to_its_end(tmp_path: Path):
    """As in 'soak plan <(generate)', however slowly it comes."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = subprocess.Popen(["sh", "-c", f"exec >'{pipe}'; echo 'rate: 7'; sleep 0.2; echo 'seed: 3'"])
    with writer:
        assert {"rate": 7, "seed": 3} == read_yaml(pipe).data


def test_a_pipe_that_nobody_writes_to_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Instead of waiting for ever."""
    monkeypatch.setattr("soak.yamlfile.READ_TIMEOUT_S", 0.05)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PlanError, match=r"nothing came out of it for 0\.05 s; name another file"):
        read_yaml(tmp_path / "pipe")


def test_a_name_that_would_break_a_line_is_quoted(tmp_path: Path):
    """A message stays one line whatever the file is called."""
    path = tmp_path / "a\nb.yaml"
    path.write_text("- 1")
    with pytest.raises(PlanError) as refused:
        read_yaml(path)
    assert "\n" not in str(refused.value)
    assert r"a\nb.yaml':1: " in str(refused.value)


@pytest.mark.parametrize("text", ["rate: 10", "a: 0", "a: 0.5", "a: 0x10", "a: '0777'", "a: '1:30'", "a: 08"])
def test_plain_numbers_and_text_are_taken_as_they_are(text):
    """Only what YAML reads as another number than it looks is refused."""
    assert parse_yaml(text, "p.yaml").data


def test_key_paths_read_as_people_write_them():
    """Lists by index, keys by name."""
    assert key_path(("chaos", "series", 1, "every")) == "chaos.series[1].every"
    assert key_path(()) == ""
