"""Types of arguments: what is let through, and what is said of the rest before anything is touched."""

import os
from pathlib import Path

import click
import pytest

from soak.cli.arguments import FILE, PLACE, RUN_NAME
from soak.proxies.catalog import adapters


def complaint(kind: click.ParamType[object], value: str) -> str:
    """Return what a type says of a value."""
    with pytest.raises(click.BadParameter) as refused:
        kind.convert(value, None, None)
    return refused.value.message


@pytest.mark.parametrize(
    "name", ["2026-12-01T08-00-00-nginx", "./mine", "/nowhere/at/all", "a b", "ä", "..", "a\nb"]
)
def test_a_run_may_be_called_anything_that_a_directory_may(name):
    """Whether there is such a run is another question."""
    assert name == RUN_NAME.convert(name, None, None)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "'' names no run; 'soak runs' lists them"),
        ("a" * 300, f"'{'a' * 97}'... names no run: File name too long; 'soak runs' lists them"),
        ("/" + "a/" * 3000, "names no run: File name too long"),
        ("~nobody-here/x", "'~nobody-here/x' names no run: there is no such user, or one without a home"),
        ("loop/x", "'loop/x' names no run: Too many levels of symbolic links"),
    ],
)
def test_what_can_be_no_run_says_why(tmp_path, monkeypatch, value, words):
    """With the value, cut off where it is longer than people write."""
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    assert words in complaint(RUN_NAME, value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_run_of_somebody_else_says_so(tmp_path):
    """Root may look everywhere, so another user asks."""
    place = tmp_path / "closed"
    place.mkdir(mode=0o700)
    os.seteuid(65_534)
    try:
        assert "names no run: Permission denied" in complaint(RUN_NAME, str(place / "r1"))
        assert "cannot be used: Permission denied; choose another directory" in complaint(
            PLACE, str(place / "r1")
        )
    finally:
        os.seteuid(0)


def test_a_place_is_absolute(tmp_path, monkeypatch):
    """Also where the shell left the tilde to us."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert tmp_path / "x" == PLACE.convert("x", None, None)
    assert tmp_path / "me" / "x" == PLACE.convert("~/x", None, None)
    assert "'' is no directory; leave it out for one under SOAK_HOME" == complaint(PLACE, "")


@pytest.mark.parametrize(
    ("value", "why"), [("a\nb", "it holds a control character"), ("b\udcff", "it is not UTF-8")]
)
def test_a_place_is_text_on_one_line(value, why):
    """A store cannot hold its name otherwise."""
    assert f"{value!r} cannot be used: {why}; choose another directory" == complaint(PLACE, value)


def test_a_place_in_a_directory_that_is_gone_says_so(tmp_path, monkeypatch):
    """A relative path has nothing to stand on then."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "'d' cannot be used: the working directory is gone; choose another directory" == complaint(
        PLACE, "d"
    )


def test_a_file_is_one_that_nobody_waits_for(tmp_path, monkeypatch):
    """A pipe without a writer would hang the library that opens it."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("ca.pem").write_text("x")
    assert "ca.pem" == FILE.convert("ca.pem", None, None)
    assert "'pipe' is no regular file; name one" == complaint(FILE, "pipe")
    assert "'.' is no regular file; name one" == complaint(FILE, ".")
    assert "cannot read 'gone': No such file or directory; name another file" == complaint(FILE, "gone")


@pytest.mark.parametrize("command", ["start", "plan", "check", "render", "lab"])
def test_help_names_every_proxy_that_there_is(soak, command):
    """From the catalog: a new adapter is named without a line here."""
    words = " ".join(soak(command, "--help").stdout.split())
    names = [name for name in adapters() if name != "command"]
    assert f": {', '.join(names)}." in words
    assert {"nginx", "varnish"} < set(names)
