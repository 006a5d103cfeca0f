"""The command line's edge: errors become one sentence and an exit code, never a traceback.

Owns exit codes, the wording of usage errors, Ctrl-C, a closed pipe, what the host refuses, and the record of an unexpected
crash.
"""

from __future__ import annotations

import errno
import inspect
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console

from soak.cli.streams import STDOUT, lead_nowhere, tell
from soak.errors import EXIT_USAGE, SoakError, nearest
from soak.plan import format_duration, parse_duration
from soak.rundir import soak_home

EXIT_CRASH = 70
"""EX_SOFTWARE of sysexits.h: a defect of soak itself."""
EXIT_INTERRUPTED = 130
"""128 + SIGINT."""
EXIT_CLOSED_PIPE = 141
"""128 + SIGPIPE, as any other program ends whose reader went away."""
LONGEST_S = 31 * 86_400.0
PIPE_WIDTH = 160
"""Columns of a table when nobody says how wide the output is."""

_WAYS_OUT = {
    errno.EACCES: "choose a place that you may use, or ask for the right",
    errno.EPERM: "choose a place that you may use, or ask for the right",
    errno.EROFS: "choose a place that can be written",
    errno.ENOSPC: "free some space, or choose another place",
    errno.EDQUOT: "free some space, or choose another place",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "choose a path without a circle of symlinks",
    errno.ENOTDIR: "choose a path whose parents are directories",
    errno.EMFILE: "raise the limit of open files ('ulimit -n')",
    errno.ENFILE: "close other programs: the whole host is out of open files",
    errno.EAGAIN: "raise the limit of processes ('ulimit -u'), or end some",
    errno.ENOMEM: "free some memory, or raise its limit ('ulimit -v')",
}
"""What the host may refuse any program, and what to do about it. Every other error of the system is a defect of ours."""
_PLAIN_WORDS = {
    "is not a valid float": "is not a number; write it like 1000 or 0.5",
    "is not a valid integer range": "is not a whole number",
    "is not a valid integer": "is not a whole number",
}
"""What click says in the words of programmers, and what we say."""


class SoakCommand(click.Command):
    """A command whose docstring ends in examples, which are shown line by line."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help text; click would fill the examples into a paragraph, were it not for its mark."""
        if self.help and "\b" not in self.help:
            self.help = inspect.cleandoc(self.help).replace("Examples:", "\b\nExamples:")
        super().format_help_text(ctx, formatter)


class SoakGroup(SoakCommand, click.Group):
    """The group of all commands; each returns its exit code."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run a command and end the process with its exit code."""
        extra["standalone_mode"] = False
        sys.exit(self._run(args, extra))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is answered with the nearest."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            known = self.list_commands(ctx)
            raise click.UsageError(f"there is no command {args[0]!r}{nearest(args[0], known)}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a closed pipe is met here, before click ends the process with a verdict's exit code."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            return _closed_pipe()
        return code

    def _run(self, args: Sequence[Any], extra: dict[str, Any]) -> int:
        try:
            code = super().main(*args, **extra)
        except SystemExit as ended:  # rich leaves this way when the reader of a pipe went away
            code = _closed_pipe() if isinstance(ended.__context__, BrokenPipeError) else ended.code
        except Exception as error:  # noqa: BLE001 - the edge: nothing may leave as a traceback
            code = _say(error)
        return code if isinstance(code, int) else 0


def complain(text: str) -> None:
    """Print each line of an error on stderr."""
    for line in text.splitlines():
        tell(f"soak: {line}")


def note(text: str) -> None:
    """Print progress or advice on stderr."""
    tell(text)


def stdout_console() -> Console:
    """Return a console on stdout; wide when it is a pipe, so that tables are whole."""
    wide = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(file=sys.stdout, width=PIPE_WIDTH if wide else None, highlight=False)


def _say(error: BaseException) -> int:
    """Tell an error in words and return its exit code."""
    match error:
        case click.Abort():
            complain("interrupted")
            return EXIT_INTERRUPTED
        case click.exceptions.NoArgsIsHelpError():
            tell(error.format_message())
            return EXIT_USAGE
        case click.ClickException():
            complain(_usage(error))
            return EXIT_USAGE
        case SoakError():
            complain(str(error))
            return error.exit_code
        case _:
            return _refused(error) or _crashed(error)


def _refused(error: BaseException) -> int:
    """Tell what the host refused, which is no defect of ours; return 0 when it is none of that."""
    number = errno.ENOMEM if isinstance(error, MemoryError) else getattr(error, "errno", None)
    if not isinstance(error, MemoryError | OSError) or number not in _WAYS_OUT:
        return 0
    where = getattr(error, "filename", None)
    complain(f"{'' if where is None else f'{where!r}: '}{os.strerror(number)}; {_WAYS_OUT[number]}")
    return EXIT_USAGE


def _usage(error: click.ClickException) -> str:
    """Word click's complaint as one sentence that says where help is."""
    text = error.format_message().strip().rstrip(".").replace("\n", " ")
    for theirs, ours in _PLAIN_WORDS.items():
        text = text.replace(theirs, ours)
    context = getattr(error, "ctx", None)
    return f"{text} (see '{context.command_path} --help')" if context is not None else text


def _closed_pipe() -> int:
    """Leave stdout pointing at nothing, so that the interpreter's last flush cannot fail."""
    lead_nowhere(STDOUT)
    return EXIT_CLOSED_PIPE


def _crashed(error: BaseException) -> int:
    if os.environ.get("SOAK_DEBUG") == "1":
        traceback.print_exc()
        return EXIT_CRASH
    first = str(error).splitlines()[0] if str(error) else "no message"
    complain(f"a defect of soak itself: {type(error).__name__}: {first}; {_record_crash()}")
    return EXIT_CRASH


def _record_crash() -> str:
    """Write the traceback where it can be found; return where, in words."""
    words = f"soak {' '.join(sys.argv[1:])}\n{traceback.format_exc()}"
    try:
        path: Path = soak_home() / "crash.log"
    except SoakError as error:
        return f"SOAK_DEBUG=1 shows the traceback ({error})"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(words, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        return f"SOAK_DEBUG=1 shows the traceback ({path}: {error.strerror})"
    return f"the traceback is in {path}"


class DurationType(click.ParamType[float]):
    """``30s``, ``15m``, ``1h30m``: seconds as a float, more than zero unless that has a meaning, and no longer than a run may be."""

    name = "duration"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds; fails with the value and the rule."""
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds == 0 and not self._zero:
            self.fail(f"{value!r} must be longer than 0", param, ctx)
        if seconds > LONGEST_S:
            self.fail(f"{value!r} must be at most {format_duration(LONGEST_S)}, the longest run", param, ctx)
        return seconds


DURATION = DurationType()
