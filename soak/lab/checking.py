"""Run a proxy's own validator to its end: a process of the run's, bounded in time, whose words are kept."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from soak.lab.process import RUN_VARIABLE


@dataclass(frozen=True, slots=True)
class Checked:
    """How a validator ended. ``code`` None: it could not be run or did not end in time, and ``words`` say so."""

    code: int | None
    words: str


async def run_check(command: Sequence[str], *, directory: Path, run_id: str, timeout_s: float) -> Checked:
    """Run a command in a directory, marked with the run, and return how it ended."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=directory,
            env={**os.environ, RUN_VARIABLE: run_id},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return Checked(None, f"'{command[0]}' does not run: {error.strerror or error}")
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate()
    except TimeoutError:
        return Checked(None, f"'{' '.join(command)}' did not end within {timeout_s:g} s")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return Checked(process.returncode, output.decode(errors="replace").strip())
