"""Who gets the proxy's signals, and how it is asked to end: what was started, or the process that the adapter names.

A script may have started the proxy and wait for it; HUP would end the script. So an adapter can name a pid, and it is believed only
when the kernel says that the process is of the session that was started: a stranger is never signalled.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from signal import Signals

from chaos.target import Identity, IdentityChangedError, TargetError
from soak.clock import NS, Clock
from soak.errors import LabError
from soak.lab.process import Child, living, row_of, signal_process
from soak.proxies.base import NamesMainProcess, ProxyAdapter, StopsGracefully

_POLL_S = 0.02


class Receiver:
    """A running proxy of the local lab, as far as signals are concerned."""

    def __init__(self, adapter: ProxyAdapter, child: Child, directory: Path) -> None:
        self._adapter = adapter
        self._child = child
        self._directory = directory

    @property
    def alive(self) -> bool:
        """Whether what was started still lives."""
        return self._child.alive

    def identity(self) -> Identity:
        """Return who gets the signals. Raises ``LabError`` when the adapter names none, or a stranger."""
        adapter, started = self._adapter, int(self._child.identity["pid"])
        pid = adapter.main_pid(self._directory) if isinstance(adapter, NamesMainProcess) else None
        if pid is None or pid == started:
            return self._child.identity
        row = row_of(pid)
        if row is None or not row.alive or row.sid != started:
            raise LabError(
                f"pid {pid}, which {adapter.name} names as its own, is none of the processes that were started with it; "
                "it gets no signal"
            )
        return row.identity

    async def signal(self, number: Signals) -> None:
        """Send a signal. Raises ``IdentityChangedError`` when who gets it is gone, ``TargetError`` when it is not known."""
        try:
            who = self.identity()
        except LabError as error:
            raise TargetError(str(error)) from error
        signal_process(who, number)


async def ask_to_end(adapter: ProxyAdapter, child: Child, directory: Path, clock: Clock) -> bool:
    """Let a proxy end by itself: its own signal, then a wait of at most its own grace. Returns whether it has ended.

    Does nothing for an adapter that asks for nothing; what is left is for the sweep, in any case.
    """
    if not isinstance(adapter, StopsGracefully) or not child.alive:
        return not child.alive
    with suppress(IdentityChangedError, LabError, PermissionError):
        signal_process(Receiver(adapter, child, directory).identity(), adapter.stop_signal())
    deadline = clock.monotonic_ns() + int(adapter.stop_grace_s * NS)
    while living(child.identity) is not None and clock.monotonic_ns() < deadline:
        await clock.sleep(_POLL_S)
    return not child.alive
