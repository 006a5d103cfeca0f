"""``soak lab`` as a process: it serves, it ends in every way, and nothing is left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from soak.lab.process import process_table
from soak.lab.sweep import processes_of
from soak.rundir import RunDir

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    """Start the command; what a failing test left of it is ended."""
    started: list[subprocess.Popen[str]] = []

    def call(*args: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "soak.cli", "lab", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield call
    for process in started:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=30)


def facts_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    facts: dict[str, Any] = json.loads(line)
    return facts


def left_of(facts: dict[str, Any]) -> list[Any]:
    """Return the processes of a lab, its guardian among them, and its directory if it is still there."""
    directory = facts["directory"]
    guardians = [
        pid
        for pid, row in process_table().items()
        if row.alive and directory.encode() in _command_line(pid).split(b"\0")
    ]
    there = [directory] if Path(directory).exists() else []
    return [*processes_of(RunDir(Path(directory))), *guardians, *there]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def gone(facts: dict[str, Any], seconds: float = 20) -> list[Any]:
    """Wait until nothing is left; return what is."""
    end = monotonic() + seconds
    while (left := left_of(facts)) and monotonic() < end:
        sleep(0.05)
    return left


@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_it_serves_until_a_signal_and_leaves_nothing(start: Start, home: Path, number: signal.Signals):
    """Ctrl-C and SIGTERM end it with 0; after SIGKILL its guardian cleans up."""
    process = start("--json", "--backends", "2", "--routes", "3")
    facts = facts_of(process)
    request = urllib.request.Request(facts["http_url"] + "/bytes/5", headers={"Host": "r3.soak.test"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert (200, "r3") == (answer.status, answer.headers["X-Soak-Route"])
    assert ["b1", "b2"] == [backend["name"] for backend in facts["backends"]]
    assert Path(facts["ca_file"]).is_file()
    assert home == Path(facts["directory"]).parent
    assert len(left_of(facts)) > 6

    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert (-signal.SIGKILL if number is signal.SIGKILL else 0) == process.returncode, said
    assert [] == gone(facts)
    assert "" == said
    assert [] == list(home.iterdir())


@pytest.mark.e2e
def test_a_person_is_told_where_it_is_and_what_dies(start: Start, home: Path):
    """Addresses, shapes and commands to try; an origin that is killed is said on stderr."""
    process = start("--routes", "2")
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or not lines[-1].startswith("Ctrl-C ends it"):
        lines.append(process.stdout.readline())
        assert lines[-1], process.communicate()[1]
    text = "".join(lines)
    assert text.startswith("nginx 1.")
    for words in (
        "  https  https://127.0.0.1:",
        "/cache/KEY/bytes/N",
        "r1.soak.test to r2.soak.test",
        "soak load https",
    ):
        assert words in text
    (directory,) = home.iterdir()
    recorded = json.loads(RunDir(directory).lab_state.read_text())
    (pid,) = (entry["pid"] for entry in recorded["processes"] if entry["name"] == "b1")
    os.kill(pid, signal.SIGKILL)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("origin.died b1 SIGKILL")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert 0 == process.returncode


def test_an_unknown_proxy_is_one_sentence_and_leaves_nothing(soak, home: Path):
    """As everywhere; a number out of range, too."""
    result = soak("lab", "--proxy", "ngin")
    assert (2, "soak: proxy 'ngin' is not known; did you mean 'nginx'?\n") == (
        result.exit_code,
        result.stderr,
    )
    assert 2 == soak("lab", "--backends", "0").exit_code
    assert not home.exists()
