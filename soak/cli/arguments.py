"""Types of arguments and options that several commands take: what is wrong with a value is said before anything is touched."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import click

from soak.rundir import unusable_name

_ABSENT = (errno.ENOENT, errno.ENOTDIR)


class RunNameType(click.ParamType[str]):
    """The id of a run, or the path of its directory; whether there is one is found out later."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text; fails for one that no file system could hold, or that may not be looked at."""
        if not value:
            self.fail("'' names no run; 'soak runs' lists them", param, ctx)
        if why := _unreachable(Path(value) / "plan.yaml"):
            self.fail(f"{_short(value)} names no run: {why}; 'soak runs' lists them", param, ctx)
        return str(value)


class PlaceType(click.ParamType[Path]):
    """The path of a directory that is to be made, or is empty."""

    name = "directory"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the absolute path; fails for one that cannot be looked at."""
        if not value:
            self.fail("'' is no directory; leave it out for one under SOAK_HOME", param, ctx)
        path = Path(value)
        if why := unusable_name(value) or _unreachable(path):
            self.fail(f"{_short(value)} cannot be used: {why}; choose another directory", param, ctx)
        return path.expanduser().absolute()


class FileType(click.ParamType[str]):
    """The path of a regular file that exists: libraries that open it themselves would wait for a pipe for ever."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text; fails for what is there and no regular file."""
        try:
            kind = Path(value).stat().st_mode
        except OSError as error:
            self.fail(f"cannot read {_short(value)}: {error.strerror}; name another file", param, ctx)
        if not stat.S_ISREG(kind):
            self.fail(f"{_short(value)} is no regular file; name one", param, ctx)
        return str(value)


RUN_NAME = RunNameType()
PLACE = PlaceType()
FILE = FileType()


class ProxyOption(click.Option):
    """An option whose help ends in the names of the proxies, so that one that is added is named without a second file."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Look the names up only when help is shown: it imports every adapter."""
        from soak.proxies.catalog import adapters  # noqa: PLC0415 - see above
        from soak.proxyplan import COMMAND  # noqa: PLC0415

        record = super().get_help_record(ctx)
        names = ", ".join(name for name in adapters() if name != COMMAND)
        return None if record is None else (record[0], f"{record[1]}: {names}.")


def _unreachable(path: Path) -> str:
    """Return why a path cannot even be looked at, "" when it can or nothing is there."""
    try:
        path.expanduser().absolute().stat()
    except OSError as error:
        if error.errno not in _ABSENT:
            return os.strerror(error.errno or 0)
        return "" if error.filename else "the working directory is gone"
    except RuntimeError:  # pathlib: no home directory
        return "there is no such user, or one without a home"
    return ""


def _short(value: str) -> str:
    """Return a value between quotes, its end cut off when it is longer than people write."""
    return repr(value) if len(value) <= 100 else f"{value[:97]!r}..."
