"""The edge of the command line: exit codes, crashes, Ctrl-C, closed pipes, help."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from soak.cli import cli
from soak.cli.group import (
    DURATION,
    EXIT_CLOSED_PIPE,
    EXIT_CRASH,
    EXIT_INTERRUPTED,
    PIPE_WIDTH,
    SoakCommand,
    SoakGroup,
    complain,
    stdout_console,
)
from soak.errors import EXIT_DIRTY, SoakError

COMMANDS = [
    "check",
    "faults",
    "heal",
    "init",
    "inject",
    "lab",
    "load",
    "plan",
    "render",
    "report",
    "runs",
    "start",
    "status",
    "stop",
]


class DirtyError(SoakError):
    exit_code = EXIT_DIRTY


def group_that(act) -> SoakGroup:
    """A group with one command, ``do``."""
    group = SoakGroup("soak")
    group.add_command(SoakCommand("do", callback=act))
    return group


def raising(error: BaseException):
    def act():
        raise error

    return act


def test_every_command_is_there_with_help_and_examples(soak):
    """In alphabetical order; examples one a line."""
    assert COMMANDS == sorted(cli.commands)
    for name in COMMANDS:
        result = soak(name, "--help")
        assert 0 == result.exit_code
        assert f"\n  Examples:\n    soak {name}" in result.stdout, name


def test_the_version_is_that_of_the_package(soak):
    """On one line."""
    result = soak("--version")
    assert 0 == result.exit_code
    assert result.stdout.startswith("soak 0.")


@pytest.mark.parametrize("code", [0, 1, 3, 4])
def test_what_a_command_returns_is_the_exit_code(code):
    """And None is 0."""
    assert code == CliRunner().invoke(group_that(lambda: code), ["do"]).exit_code
    assert 0 == CliRunner().invoke(group_that(lambda: None), ["do"]).exit_code


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (SoakError("no such thing 'x'"), 2, "soak: no such thing 'x'\n"),
        (SoakError("one\ntwo"), 2, "soak: one\nsoak: two\n"),
        (DirtyError("b2 is still down"), 4, "soak: b2 is still down\n"),
        (click.UsageError("Bad.\nflag."), 2, "soak: Bad. flag (see 'soak do --help')\n"),
        (KeyboardInterrupt(), EXIT_INTERRUPTED, "\nsoak: interrupted\n"),
    ],
)
def test_an_error_is_words_and_a_code(error, code, text):
    """One line for each sentence."""
    result = CliRunner().invoke(group_that(raising(error)), ["do"])
    assert (code, "", text) == (result.exit_code, result.stdout, result.stderr)


def test_a_defect_is_a_sentence_and_a_file(home):
    """The traceback is kept where the sentence says."""
    result = CliRunner().invoke(group_that(raising(ZeroDivisionError("a\nb"))), ["do"])
    log = home / "crash.log"
    assert EXIT_CRASH == result.exit_code
    assert (
        f"soak: a defect of soak itself: ZeroDivisionError: a; the traceback is in {log}\n" == result.stderr
    )
    assert "Traceback" in log.read_text()


def test_a_defect_without_a_place_to_write_is_still_a_sentence(monkeypatch):
    """It says how to see more."""
    monkeypatch.setenv("SOAK_HOME", "/proc/soak")
    monkeypatch.delenv("SOAK_DEBUG", raising=False)
    result = CliRunner().invoke(group_that(raising(ValueError())), ["do"])
    assert EXIT_CRASH == result.exit_code
    assert "ValueError: no message; SOAK_DEBUG=1 shows the traceback" in result.stderr


def test_debugging_shows_the_traceback(monkeypatch):
    """Only when asked."""
    monkeypatch.setenv("SOAK_DEBUG", "1")
    result = CliRunner().invoke(group_that(raising(ValueError("x"))), ["do"])
    assert EXIT_CRASH == result.exit_code
    assert "Traceback" in result.stderr


@pytest.mark.parametrize(
    "args",
    [["faults"], ["faults", "--json"], ["plan"]],
)
def test_a_reader_that_goes_away_is_no_error(home, args):
    """As 'soak plan | true': no words, the exit code of SIGPIPE."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "soak.cli", *args],
        stdout=write_end,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(write_end)
    assert (EXIT_CLOSED_PIPE, b"") == (done.returncode, done.stderr)


def test_ctrl_c_ends_a_client_with_130(home, tmp_path):
    """While it waits for an answer that does not come."""
    import socket

    from soak.plan import Plan
    from soak.runs import create_run, hold
    from soak.web.socketpath import short_path

    run = create_run(Plan(), "", home=home)
    with hold(run), socket.socket(socket.AF_UNIX) as server:
        with short_path(run.socket) as path:
            server.bind(path)
        server.listen()
        child = subprocess.Popen(
            [sys.executable, "-m", "soak.cli", "status"],
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 -- background jobs ignore it
        )
        with child:
            connection, _ = server.accept()
            connection.recv(1)
            child.send_signal(signal.SIGINT)
            _, stderr = child.communicate(timeout=30)
            connection.close()
    assert EXIT_INTERRUPTED == child.returncode
    assert b"\nsoak: interrupted\n" == stderr


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30.0), ("1h30m", 5400.0), ("250ms", 0.25), ("7", 7.0)])
def test_a_duration_is_seconds(text, seconds):
    """As in a plan."""
    assert seconds == DURATION.convert(text, None, None)


def test_a_table_in_a_pipe_is_wide(monkeypatch):
    """Unless somebody says how wide it is."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert PIPE_WIDTH == stdout_console().width
    monkeypatch.setenv("COLUMNS", "50")
    assert 50 == stdout_console().width


def test_complaints_go_to_stderr(capsys):
    """Each line is marked as ours."""
    complain("a\nb")
    assert ("", "soak: a\nsoak: b\n") == capsys.readouterr()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            PermissionError(errno.EACCES, "x", "/root/y"),
            "'/root/y': Permission denied; choose a place that you may use, or ask for the right",
        ),
        (
            OSError(errno.ENOSPC, "x", "/full/y"),
            "'/full/y': No space left on device; free some space, or choose",
        ),
        (OSError(errno.EMFILE, "x"), "Too many open files; raise the limit of open files ('ulimit -n')"),
        (
            BlockingIOError(errno.EAGAIN, "x"),
            "temporarily unavailable; raise the limit of processes ('ulimit -u')",
        ),
        (MemoryError(), "Cannot allocate memory; free some memory, or raise its limit ('ulimit -v')"),
    ],
)
def test_what_the_host_refuses_is_a_sentence_with_a_way_out(home, error, text):
    """It is no defect of soak, and leaves no record of one."""
    result = CliRunner().invoke(group_that(raising(error)), ["do"])
    (line,) = result.stderr.splitlines()
    assert (2, True) == (result.exit_code, line.startswith("soak: "))
    assert text in line
    assert not (home / "crash.log").exists()


def test_without_a_command_the_help_is_shown_as_it_is(soak):
    """On stderr, because it is not what was asked for."""
    result = soak()
    assert (2, "") == (result.exit_code, result.stdout)
    assert result.stderr.startswith("Usage: soak [OPTIONS] COMMAND [ARGS]...\n")
    assert "\n  start " in result.stderr


def test_a_defect_in_a_home_that_leads_nowhere_is_still_a_sentence(monkeypatch):
    """Both are said."""
    monkeypatch.setenv("SOAK_HOME", "~nobody-here/x")
    monkeypatch.delenv("SOAK_DEBUG", raising=False)
    result = CliRunner().invoke(group_that(raising(ValueError("odd"))), ["do"])
    assert EXIT_CRASH == result.exit_code
    assert (
        "ValueError: odd; SOAK_DEBUG=1 shows the traceback (SOAK_HOME is '~nobody-here/x': " in result.stderr
    )


def test_another_errno_is_a_defect_like_any_other(home):
    """Only what the host may refuse any program is excused."""
    result = CliRunner().invoke(group_that(raising(OSError(errno.EIO, "disk on fire"))), ["do"])
    assert EXIT_CRASH == result.exit_code
    assert Path(home / "crash.log").exists()
