"""The companions of a proxy: further processes without which it is not whole, such as what speaks TLS for it.

They live as the proxy does: recorded before they are relied upon, marked with the run, watched, told when their files have
changed, counted with the proxy, and ended with it. When one dies unasked, that is ``proxy.died`` with its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from chaos.target import Identity
from soak.clock import NS, Clock
from soak.errors import LabError
from soak.lab.errorlog import ErrorLog
from soak.lab.process import Child, start_child
from soak.lab.reloading import Said, by_signal
from soak.lab.state import LabState, marker_of
from soak.proxies.base import ProxyAdapter, ProxyModel
from soak.proxies.companion import Companion, HasCompanions, companion_output_of
from soak.rundir import RunDir

_SAY_TIMEOUT_S = 2.0
"""How long one may take to say what it made of its files; traffic judges, so silence is no refusal."""
_CONNECT_TIMEOUT_S = 1.0
_POLL_S = 0.02


def companions_of(adapter: ProxyAdapter, binary: Path, model: ProxyModel) -> tuple[Companion, ...]:
    """Return the companions of a proxy with this configuration; most have none."""
    return tuple(adapter.companions(binary, model)) if isinstance(adapter, HasCompanions) else ()


@dataclass(slots=True)
class _Started:
    """One that was started, and what stood in its files when it last read them."""

    wanted: Companion
    child: Child
    log: ErrorLog
    read: bytes


class Companions:
    """The companions of one running proxy."""

    def __init__(
        self,
        run: RunDir,
        state: LabState,
        clock: Clock,
        *,
        host: str,
        on_event: Callable[[str, Mapping[str, Any]], None],
        start_timeout_s: float,
    ) -> None:
        self._run = run
        self._state = state
        self._clock = clock
        self._host = host
        self._on_event = on_event
        self._start_timeout_s = start_timeout_s
        self._started: list[_Started] = []

    async def start(self, wanted: Sequence[Companion], *, first: bool) -> None:
        """Start those that belong before (``first``) or after the proxy, each once the one before it is ready.

        Raises ``LabError`` with the words of one that ends or does not listen in time.
        """
        for one in wanted:
            if one.first is first:
                await self._start(one)

    def children(self) -> list[Child]:
        """Return the processes started."""
        return [one.child for one in self._started]

    def identities(self) -> list[Identity]:
        """Return who they are."""
        return [one.child.identity for one in self._started]

    def ended(self) -> str:
        """Say which have ended, how, and what they said last; "": all live."""
        dead = [one for one in self._started if not one.child.alive]
        return "\n".join(f"{one.wanted.name}: {one.child.words()}" for one in dead)

    def trim(self) -> int:
        """Keep their logs bounded; returns the bytes cut."""
        return sum(one.log.trim() for one in self._started)

    async def reload(self, ask: Callable[[], Awaitable[Said]], *, everyone: bool) -> Said:
        """Tell those whose files have changed (or ``everyone``) to read them, then ask the proxy itself.

        In this order, for one that refuses its files goes on with the old ones, and the proxy is then not asked: nothing has
        changed anywhere. What the companions said is in the answer, by name.
        """
        if self.ended():
            return Said("gone")
        told = await self.refresh(everyone=everyone)
        for said in told.values():
            if said.verdict in ("refused", "gone"):
                return said
        said = await ask()
        if not told:
            return said
        return replace(said, answer={**said.answer, **{name: one.detail for name, one in told.items()}})

    async def refresh(self, *, everyone: bool = False) -> Mapping[str, Said]:
        """Tell those whose files differ from what they last read. Returns what each that was told made of it, by name."""
        told: dict[str, Said] = {}
        for one in self._started:
            now = await asyncio.to_thread(_digest, one.wanted.reads)
            if not one.wanted.reads or (now == one.read and not everyone):
                continue
            said = await by_signal(one.wanted, one.child, one.log, self._clock, _SAY_TIMEOUT_S)
            told[one.wanted.name] = said
            if said.verdict in ("refused", "gone"):
                break
            one.read = now
        return told

    async def _start(self, wanted: Companion) -> None:
        name, argv = f"proxy-{wanted.name}", list(wanted.command)
        log = companion_output_of(self._run.lab / "proxy", wanted.name)
        read = await asyncio.to_thread(_digest, wanted.reads)
        self._state.intend(name, argv)
        with marker_of(self._run).open("rb") as marker:
            child = await start_child(
                name,
                argv,
                directory=self._run.lab,
                run_id=self._run.id,
                log=log,
                stdin=marker,
                stdout=None,
                on_end=self._on_end,
            )
        child.expected_to_end = True  # its death before it is ready is an error of ``start``, and no event
        self._started.append(_Started(wanted, child, ErrorLog(log), read))
        self._state.started(name, child.identity)
        await self._until_listening(wanted, child)
        child.expected_to_end = False

    async def _until_listening(self, wanted: Companion, child: Child) -> None:
        deadline = self._clock.monotonic_ns() + int(self._start_timeout_s * NS)
        while not await self._listens(wanted.port):
            late = self._clock.monotonic_ns() > deadline
            if late or not child.alive:
                await child.settled()
                port = f"{self._host}:{wanted.port}"
                why = (
                    f"it does not listen on {port} after {self._start_timeout_s:g} s" if late else "it ended"
                )
                raise LabError(f"{wanted.name} did not come up: {why}: {child.words()}")
            await self._clock.sleep(_POLL_S)

    async def _listens(self, port: int) -> bool:
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                _, writer = await asyncio.open_connection(self._host, port)
        except OSError:  # TimeoutError is one, too
            return False
        writer.close()
        return True

    def _on_end(self, child: Child) -> None:
        if child.expected_to_end:
            return
        self._on_event("proxy.died", {**child.end(), "words": child.words()})


def _digest(files: Sequence[Path]) -> bytes:
    """Return what stands in these files, in short; one that is missing is empty."""
    whole = sha256()
    for path in files:
        content = path.read_bytes() if path.is_file() else b""
        whole.update(sha256(content).digest())
    return whole.digest()
