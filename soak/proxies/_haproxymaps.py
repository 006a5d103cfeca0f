"""Replace the maps of a running HAProxy through its runtime API: what a ``routing`` reload is.

The commands go to the worker through the master's socket. A map gets a new version beside the one that serves; committing it
is one step, so no request ever meets half of it (HAProxy's management guide, ``prepare map``). The files have changed already,
so whoever reloads in full later finds the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from soak.proxies._asking import exchange
from soak.proxies.base import Reloaded

_PATIENCE_S = 2.0
_MOST_LINES = 200
"""Entries in one command: with its payload it must fit into a buffer of 16 KiB."""
_LISTED = re.compile(r"^(\d+) \((.*)\) ")
_CREATED = re.compile(r"New version created: (\d+)")


async def replace_maps(master: Path, files: Sequence[Path]) -> Reloaded:
    """Give the worker what these files hold, as far as they exist and differ. Raises ``OSError`` when nobody listens."""
    listed = await _ask(master, "show map")
    ids = {match[2]: match[1] for line in listed.splitlines() if (match := _LISTED.match(line))}
    changed: dict[str, int] = {}
    for file in files:
        if not file.exists():
            continue
        wanted = _entries(file.read_text())
        number = ids.get(str(file))
        if number is None:
            return Reloaded(
                accepted=False, reason=f"the worker has no map {file.name}: {listed.strip()[:200]!r}"
            )
        shown = await _ask(master, f"show map #{number}")
        if _entries(shown, skip=1) == wanted:
            continue
        if trouble := await _replace(master, number, wanted):
            return Reloaded(accepted=False, reason=f"{file.name}: {trouble}", detail={"changed": changed})
        changed[file.name] = len(wanted)
    return Reloaded(accepted=True, detail={"changed": changed})


async def _replace(master: Path, number: str, wanted: Mapping[str, str]) -> str:
    """Make a new version of one map and let it serve; returns the worker's words when it refuses."""
    said = await _ask(master, f"prepare map #{number}")
    made = _CREATED.search(said)
    if made is None:
        return said or "no new version of the map was made"
    lines = [f"{key} {value}" for key, value in wanted.items()]
    for start in range(0, len(lines), _MOST_LINES):
        payload = "\n".join(lines[start : start + _MOST_LINES])
        if said := await _ask(master, f"add map @{made[1]} #{number} <<\n{payload}\n"):
            return said
    return await _ask(master, f"commit map @{made[1]} #{number}")


def _entries(text: str, *, skip: int = 0) -> dict[str, str]:
    """Return keys and values of a map's lines; ``skip`` columns come before them."""
    rows = (line.split() for line in text.splitlines())
    return {row[skip]: row[skip + 1] for row in rows if len(row) == skip + 2}


async def ask_master(socket: Path, command: str) -> str:
    """Give the master one command; returns its words. It does not listen for a moment after each start and reload."""
    answer = await exchange(socket, f"{command}\n".encode(), finish=True, patience_s=_PATIENCE_S)
    return answer.decode(errors="replace").strip()


async def _ask(master: Path, command: str) -> str:
    """Let the worker carry out one command; returns its words."""
    return await ask_master(master, f"@1 {command}")
