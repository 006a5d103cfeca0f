"""A stand-in for the daemon: starts a local lab in the given run directory, says so, and waits to be killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from soak.lab.local import LocalLab
from soak.plan import Plan
from soak.rundir import RunDir


async def main(path: str, binary: str | None) -> None:
    plan = Plan.model_validate({"lab": {"backends": 2, "start_timeout": 20}, "proxy": {"binary": binary}})
    lab = LocalLab(RunDir(Path(path)), plan, on_event=lambda _name, _data: None)
    await lab.start()
    sys.stdout.write("up\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
