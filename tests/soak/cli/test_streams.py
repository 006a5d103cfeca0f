"""The standard streams of a command, in a real process: closed, full, without our signs, without a reader."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from soak.cli.group import EXIT_CLOSED_PIPE
from soak.cli.streams import StdoutError

CLOSED = "soak: stdout is closed, so nothing could be shown; leave it open, or send it to /dev/null\n"
FULL = "soak: cannot write to stdout: No space left on device; send it elsewhere, 'soak report' shows a run's report again\n"


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in which ``soak`` is the command."""
    soak = f"soak() {{ '{sys.executable}' -m soak.cli \"$@\"; }}; {line}"
    return subprocess.run(
        ["bash", "-c", soak],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("command", ["plan --preset quick", "runs --json", "check --preset quick", "--help"])
def test_a_closed_stdout_is_refused_before_anything_is_done(home, command):
    """Its number would go to the next file that is opened."""
    done = shell(f"soak {command} >&-")
    assert (2, "", CLOSED) == (done.returncode, done.stdout, done.stderr)
    assert not home.exists()


@pytest.mark.parametrize(
    "command",
    ["plan --json", "faults", "runs --json", "heal", "--help", "--version", "load --traffic list http://x"],
)
def test_a_full_disk_behind_stdout_is_one_sentence(home, command):
    """And the exit code is that of the sentence, not of the interpreter's last flush."""
    done = shell(f"soak {command} >/dev/full")
    assert (2, FULL) == (done.returncode, done.stderr)
    assert not home.exists()


@pytest.mark.parametrize(
    ("redirection", "code"),
    [("2>&-", 2), ("2>/dev/full", 2), ("<&- 2>&-", 2), ("<&- >&- 2>&-", 2)],
)
def test_a_lost_stderr_does_not_change_the_exit_code(home, redirection, code):
    """Nobody can be told, but whoever asks for the code is."""
    assert code == shell(f"soak plan --preset quik {redirection}").returncode


@pytest.mark.parametrize("redirection", ["2>&-", "<&-", "<&- 2>/dev/full"])
def test_results_come_whatever_the_other_streams_are(home, redirection):
    """Stdout is all that a result needs."""
    done = shell(f"soak plan --preset quick {redirection}")
    assert 0 == done.returncode
    assert done.stdout.startswith("quick: 1,000 req/s for 2m")


def test_a_closed_stream_is_never_the_number_of_another_file(home):
    """What a child prints lands nowhere, and not in a file of ours."""
    code = (
        "from soak.cli.streams import claim_streams; import os, subprocess, sys; claim_streams();"
        "file = open('kept', 'w'); subprocess.run(['sh', '-c', 'echo lost; echo lost >&2']);"
        "sys.exit(file.fileno())"
    )
    done = shell(f"'{sys.executable}' -c \"{code}\" <&- >&- 2>&-")
    assert 3 <= done.returncode
    assert "" == Path("kept").read_text()


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_signs_that_a_terminal_lacks_become_question_marks(home, environment):
    """The rest is still worth reading."""
    done = shell("soak plan --preset quick", **environment)
    assert (0, "") == (done.returncode, done.stderr)
    assert "(120,000 requests) ? nginx ? local lab with 3 backends ? seed 1" in done.stdout


def test_a_reader_that_goes_away_is_still_no_error(home):
    """The guard of stdout leaves that to the command line's edge."""
    done = shell("soak plan --schema | true; exit ${PIPESTATUS[0]}")
    assert done.returncode in (0, EXIT_CLOSED_PIPE)  # the pipe may take it all before the reader is gone
    assert "" == done.stderr


def test_the_error_of_stdout_is_the_users_to_fix():
    """As every sentence with exit code 2."""
    assert 2 == StdoutError("x").exit_code
