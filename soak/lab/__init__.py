"""The running system under test: one proxy, its origins, and the processes that make them.

``open_for_healing`` is what the guardian and ``soak heal`` call when no daemon is alive.
"""

from __future__ import annotations

from pathlib import Path

from chaos.target import Healable

__all__ = ["open_for_healing", "open_throwaway"]


async def open_for_healing(run_dir: str) -> Healable:
    """Open the lab of a run directory from its files alone; works for missing and torn files too."""
    return await _attached(run_dir) or _docker(Path(run_dir)) or _open(Path(run_dir))


async def open_throwaway(run_dir: str) -> Healable:
    """Open the directory of a lab without a run; healing it removes the directory, too."""
    return _open_throwaway(Path(run_dir))


async def _attached(run_dir: str) -> Healable | None:
    from soak.lab.attachstate import read_borrowed  # noqa: PLC0415 - origins import this package too and must stay small
    from soak.rundir import RunDir  # noqa: PLC0415 - same

    run = RunDir(_absolute(run_dir))
    if (borrowed := read_borrowed(run)) is None:
        return None
    from soak.lab.attachheal import AttachHealable  # noqa: PLC0415 - a lab's libraries are loaded only when it is used

    return await AttachHealable.open(run, borrowed)


def _docker(path: Path) -> Healable | None:
    from soak.lab.dockerstate import open_docker  # noqa: PLC0415 - origins import this package too and must stay small

    return open_docker(path)


def _absolute(path: str) -> Path:
    return Path(path).absolute()


def _open(path: Path) -> Healable:
    from soak.lab.sweep import LocalHealable  # noqa: PLC0415 - origins import this package too and must stay small
    from soak.rundir import RunDir  # noqa: PLC0415 - same

    return LocalHealable(RunDir(path.absolute()))


def _open_throwaway(path: Path) -> Healable:
    from soak.lab.throwaway import ThrowawayHealable  # noqa: PLC0415 - origins import this package too
    from soak.rundir import RunDir  # noqa: PLC0415 - same

    return ThrowawayHealable(RunDir(path.absolute()))
