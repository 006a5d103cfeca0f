"""One run of one proxy, in a process of its own: started, told on, bounded in time, stopped by Ctrl-C without leaving anything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

EXTRA_S = 150.0
"""What a run may take beyond its length: to come up, to recover, to judge."""
HEAL_S = 60.0
"""How long a run that was interrupted may take to heal and end."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Run:
    """How one run ended."""

    status: int
    report: Mapping[str, Any] | None
    """Its JSON report; None when it has none."""
    words: str = ""
    """What it said last, for a run without a report."""


def soak_command() -> list[str]:
    """Return the command line of the soak that belongs to this Python."""
    beside = Path(sys.executable).parent / "soak"
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "soak.cli"]


def run(command: Sequence[str], length_s: float, say: Say, home: Path | None = None) -> Run:
    """Run ``soak start ... --json`` to its end; progress goes to ``say``. Never longer than its length and some minutes.

    ``KeyboardInterrupt`` is passed on to the run, which heals and ends, and raised again.
    """
    environment = os.environ if home is None else {**os.environ, "SOAK_HOME": str(home)}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,  # a Ctrl-C of the terminal reaches it once, through us
    )
    assert process.stdout is not None
    assert process.stderr is not None
    out: deque[str] = deque()
    last: deque[str] = deque(maxlen=20)
    readers = [_drain(process.stdout, out.append), _drain(process.stderr, _both(last.append, say))]
    words = ""
    try:
        process.wait(length_s + EXTRA_S)
    except subprocess.TimeoutExpired:
        words = f"it did not end within {length_s + EXTRA_S:g} s and was stopped"
        _stop(process)
    except KeyboardInterrupt:
        _stop(process)
        raise
    finally:
        for reader in readers:
            reader.join(5)
    return Run(process.returncode, _report("".join(out)), words or _sentence(last))


def _drain(stream: IO[str], take: Callable[[str], object]) -> threading.Thread:
    """Read a stream to its end beside the run, so that no full pipe holds it up."""

    def read() -> None:
        with stream:
            for line in stream:
                take(line)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def _both(keep: Callable[[str], object], say: Say) -> Callable[[str], None]:
    def take(line: str) -> None:
        keep(line)
        say(f"    {line.rstrip()}")

    return take


def _stop(process: subprocess.Popen[str]) -> None:
    """Ask it to stop as Ctrl-C does, twice if need be; kill it only when it does not end: its guardian then heals."""
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
        process.send_signal(number)
        try:
            process.wait(HEAL_S)
        except subprocess.TimeoutExpired:
            continue
        return


def _report(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) and "verdict" in value else None


def _sentence(lines: Sequence[str]) -> str:
    """Return the line in which soak said what is wrong, else its last one."""
    said = [line.strip() for line in lines if line.strip()]
    own = [line.removeprefix("soak: ") for line in said if line.startswith("soak: ")]
    return next(iter(own or said[-1:]), "it said nothing")
