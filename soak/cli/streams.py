"""The standard streams of a command: what when one is closed, full, or speaks an alphabet that lacks our signs.

The number of a closed stream goes to the next file that is opened, a run's store for one, and whatever is printed would land
in it. So a closed one is led nowhere before anything else is opened.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import TextIO

import click

from soak.errors import SoakError

STDIN, STDOUT, STDERR = range(3)


def claim_streams() -> bool:
    """Lead nowhere what is closed, and replace what a stream cannot spell; return whether stdout was open."""
    was_open = [_is_open(fd) for fd in (STDIN, STDOUT, STDERR)]
    for fd in (STDIN, STDOUT, STDERR):
        if not was_open[fd]:
            lead_nowhere(fd)
    sys.stdout = _spelling(sys.stdout, STDOUT, Stdout)
    sys.stderr = _spelling(sys.stderr, STDERR, TextIOWrapper)
    return was_open[STDOUT]


class StdoutError(SoakError):
    """What was printed cannot be written. Not raised for a reader that went away, which is no error."""


class Stdout(TextIOWrapper):
    """The stream of results: one that is lost must not go unseen."""

    def write(self, text: str) -> int:
        """Write. Raises ``StdoutError``."""
        with _noticed():
            return super().write(text)

    def flush(self) -> None:
        """Write what is kept back. Raises ``StdoutError``."""
        with _noticed():
            super().flush()


@contextmanager
def _noticed() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        lead_nowhere(STDOUT)  # or the interpreter's last flush fails again
        raise StdoutError(
            f"cannot write to stdout: {error.strerror}; send it elsewhere, 'soak report' shows a run's report again"
        ) from error


def lead_nowhere(fd: int) -> None:
    """Let a stream end in /dev/null, for us, for children, and for the interpreter's last flush."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere == fd:
        os.set_inheritable(fd, True)
        return
    os.dup2(nowhere, fd)
    os.close(nowhere)


def tell(text: str) -> None:
    """Print a line on stderr. One that nobody can read changes nothing, least of all the exit code."""
    try:
        click.echo(text, err=True)
    except OSError:
        with suppress(OSError):
            lead_nowhere(STDERR)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _spelling(stream: TextIO | None, fd: int, kind: type[TextIOWrapper]) -> TextIO:
    """Return a stream that puts a question mark where its encoding has no sign. Python has none for one that was closed."""
    if stream is None:
        raw = open(fd, "wb", closefd=False)  # noqa: SIM115 - as long as we live, and a descriptor has no path
        return kind(raw, encoding="utf-8", errors="replace", line_buffering=True)
    if not isinstance(stream, TextIOWrapper):
        return stream  # somebody caught it, who knows what to do with it
    encoding, by_line = stream.encoding, stream.line_buffering
    return kind(stream.detach(), encoding=encoding, errors="replace", line_buffering=by_line)
