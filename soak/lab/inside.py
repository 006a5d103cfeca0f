"""Run a program of a container as if it were one of this host.

    python -m soak.lab.inside ENGINE CONTAINER PROGRAM ARGUMENT...

An adapter asks a proxy's binary what it is (``-v``). For a proxy in a container ``shim`` writes an executable that stands for the
binary and asks the one inside.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from soak.errors import LabError
from soak.lab.engine import Engine

_TIMEOUT_S = 8.0
_NOT_RUN = 125


def shim(path: Path, *, engine: str, container: str, program: str) -> Path:
    """Write the executable that runs ``program`` inside, and return its path. Raises ``OSError``."""
    command = [sys.executable, "-P", "-m", "soak.lab.inside", engine, container, program]
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    path.chmod(0o700)
    return path


async def _run(engine_host: str, container: str, command: Sequence[str]) -> int:
    engine = await Engine.connect(engine_host)
    try:
        done = await engine.exec(container, command, timeout_s=_TIMEOUT_S)
    finally:
        engine.close()
    sys.stdout.write(done.output)
    return done.code


def main(argv: Sequence[str] | None = None) -> int:
    """Run it, print what it said, and return its exit code; 125 when it could not be run."""
    engine_host, container, *command = sys.argv[1:] if argv is None else argv
    try:
        return asyncio.run(_run(engine_host, container, command))
    except LabError as error:
        sys.stderr.write(f"{error}\n")
        return _NOT_RUN


if __name__ == "__main__":
    sys.exit(main())
