"""Run a program of an image as if it were one of this host, in a container of its own that goes when it ends.

    python -m soak.lab.oneoff '{"engine": ..., "image": ..., "labels": ..., "program": ...}' ARGUMENT...

An adapter asks a proxy's binary what it is (``-v``), before any container of it runs. ``stand_in`` writes an executable for that.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from soak.errors import LabError
from soak.lab.containers import ContainerSpec
from soak.lab.engine import Engine

_TIMEOUT_S = 9.0
_NOT_RUN = 125


def stand_in(
    path: Path,
    *,
    engine: str,
    image: str,
    program: str,
    name: str,
    labels: Mapping[str, str],
    reads: Sequence[Path] = (),
) -> Path:
    """Write the executable that runs ``program`` of an image, and return its path. It sees the directories ``reads``. Raises ``OSError``."""
    what = {"engine": engine, "image": image, "program": program, "name": name, "labels": dict(labels)}
    what["reads"] = [str(one) for one in reads]
    command = [sys.executable, "-P", "-m", "soak.lab.oneoff", json.dumps(what)]
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    path.chmod(0o700)
    return path


async def _run(what: Mapping[str, Any], arguments: Sequence[str]) -> int:
    engine = await Engine.connect(what["engine"])
    try:
        argv, reads = [what["program"], *arguments], tuple(map(Path, what["reads"]))
        spec = ContainerSpec(what["name"], what["image"], argv, what["labels"], reads=reads)
        done = await engine.run(spec, timeout_s=_TIMEOUT_S)
    finally:
        engine.close()
    sys.stdout.write(done.output + "\n")
    return done.code


def main(argv: Sequence[str] | None = None) -> int:
    """Run it, print what it said, and return its exit code; 125 when it could not be run."""
    what, *arguments = sys.argv[1:] if argv is None else argv
    try:
        return asyncio.run(_run(json.loads(what), arguments))
    except LabError as error:
        sys.stderr.write(f"{error}\n")
        return _NOT_RUN


if __name__ == "__main__":
    sys.exit(main())
