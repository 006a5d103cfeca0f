"""Companions: further processes without which a proxy is not whole, and the adapters whose proxy has some.

An adapter says what they are and which words of theirs count; the lab that starts them is ``soak.lab.companions``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGHUP, Signals
from typing import Protocol, runtime_checkable

from soak.proxies.base import ProxyModel


@dataclass(frozen=True, slots=True)
class Companion:
    """A further process without which the proxy is not whole: what speaks TLS for it, for one."""

    name: str
    """Unlike that of any other, for events and the record. Its output goes to ``companion_output_of``."""
    command: Sequence[str]
    """Runs it in the foreground, in the working directory of the proxy."""
    port: int
    """It is ready when this port of ``ProxyModel.listen_host`` accepts a connection."""
    first: bool = False
    """Started, and ready, before the proxy; otherwise after it."""
    check: Sequence[str] = ()
    """Checks what it would read without applying it; empty: there is no such command."""
    reads: Sequence[Path] = ()
    """Files that it reads anew only when ``signal`` tells it; a reload tells it when one of them has changed."""
    signal: Signals = SIGHUP
    accepted: str = ""
    """Pattern of a line of its output that says that what it read is in effect; "": it never says."""
    refused: str = ""
    """Pattern of a line of its output that says that what it read was refused."""

    def reload_signal(self) -> Signals:
        """Return the signal that makes it read its files anew."""
        return self.signal

    def refusals(self, log_text: str) -> Sequence[str]:
        """Return the lines of its output that say that what it read was refused."""
        return [line for line in log_text.splitlines() if self.refused and re.search(self.refused, line)]

    def acceptances(self, log_text: str) -> Sequence[str]:
        """Return the lines of its output that say that what it read is in effect."""
        return [line for line in log_text.splitlines() if self.accepted and re.search(self.accepted, line)]


@runtime_checkable
class HasCompanions(Protocol):
    """An adapter whose proxy is more than one tree of processes, each of which has to be started by itself.

    ``roles`` or ``role`` then tell the processes of all of them; the one master is that of the proxy itself.
    """

    companion_names: Sequence[str]
    """What they are called, whatever the configuration."""

    def companions(self, binary: Path, model: ProxyModel) -> Sequence[Companion]:
        """Return the others in the order of their start. They read what ``render`` put into ``model.directory``."""
        ...


def companion_output_of(directory: Path, name: str) -> Path:
    """Return the file that gets the standard output and error of a companion: its only log."""
    return directory.parent / f"proxy-{name}.out"
