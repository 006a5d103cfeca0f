"""What lay where soak writes: kept in the run's directory before the first change, and put back at the end, byte by byte.

Only for a lab that somebody else runs. A file that was not there before is removed again; a link is a link again. Whoever puts
things back (the daemon, the guardian, ``soak heal``) needs nothing but the run's directory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from certs.install import write_atomically
from chaos.regular import read_regular

_MANIFEST = "originals.json"


@dataclass(frozen=True, slots=True)
class _Original:
    """One path as it was. Neither ``copy`` nor ``link``: there was nothing."""

    path: str
    copy: str = ""
    """Name of the copy in the run's directory."""
    link: str = ""
    mode: int = 0
    uid: int = -1
    gid: int = -1


class Originals:
    """The originals that a directory of the run keeps."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def keep(self, paths: Iterable[Path]) -> None:
        """Copy what is there now; all of it is on disk on return. Raises ``OSError``."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = [self._kept(number, path) for number, path in enumerate(dict.fromkeys(paths))]
        self._write(kept)

    @property
    def kept(self) -> bool:
        """Whether there is something that was not put back yet."""
        return (self._directory / _MANIFEST).exists()

    def put_back(self) -> list[str]:
        """Put everything back; idempotent. Returns a sentence for each that could not be."""
        failed = []
        for one in reversed(self._read()):
            try:
                self._restore(one)
            except OSError as error:
                failed.append(f"{one.path} could not be put back: {error.strerror or error}")
        return failed

    def forget(self) -> None:
        """Remove the copies: nothing of them is needed any more."""
        with suppress(FileNotFoundError):
            for one in self._read():
                if one.copy:
                    (self._directory / one.copy).unlink(missing_ok=True)  # it may be a key
            (self._directory / _MANIFEST).unlink()

    def _kept(self, number: int, path: Path) -> _Original:
        if path.is_symlink():
            return _Original(str(path), link=str(path.readlink()))
        try:
            data, stat = read_regular(path), path.stat()
        except FileNotFoundError:
            return _Original(str(path))
        copy = f"{number}.original"
        write_atomically(self._directory / copy, data, mode=0o600)
        return _Original(str(path), copy, "", stat.st_mode & 0o7777, stat.st_uid, stat.st_gid)

    def _restore(self, one: _Original) -> None:
        path = Path(one.path)
        if one.link:
            fresh = path.with_name(f".{path.name}.soak")
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(one.link)
            fresh.replace(path)
        elif one.copy:
            write_atomically(path, read_regular(self._directory / one.copy), mode=one.mode)
            with suppress(PermissionError):  # whoever may not give it away did not own it otherwise, either
                os.chown(path, one.uid, one.gid)
        else:
            path.unlink(missing_ok=True)

    def _write(self, kept: list[_Original]) -> None:
        text = json.dumps([asdict(one) for one in kept], indent=1)
        write_atomically(self._directory / _MANIFEST, text.encode(), mode=0o600)

    def _read(self) -> list[_Original]:
        try:
            rows: list[dict[str, Any]] = json.loads(read_regular(self._directory / _MANIFEST))
        except FileNotFoundError:
            return []
        return [_Original(**row) for row in rows]
