"""The companions of a proxy: further processes without which it is not whole, such as what speaks TLS for it.

They live as the proxy does: watched, told when their files have changed, counted with the proxy, and ended with it. Where one runs is the
lab's business: a process beside a process (``soak.lab.companionprocesses``), a container beside a container (``soak.lab.companioncontainers``).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from soak.clock import NS, Clock
from soak.errors import LabError
from soak.lab.errorlog import ErrorLog
from soak.lab.reloading import Running, Said, by_signal
from soak.proxies.base import ProxyAdapter, ProxyModel
from soak.proxies.companion import Companion, HasCompanions, companion_output_of

SAY_TIMEOUT_S = 2.0
"""How long one may take to say what it made of its files; traffic judges, so silence is no refusal."""
_CONNECT_TIMEOUT_S = 1.0
_POLL_S = 0.02


class Member(Running, Protocol):
    """One that was started."""

    def words(self) -> str:
        """Say how it ended and what it said last."""
        ...

    async def settled(self) -> None:
        """Return once it is known whether it has ended, and how."""
        ...


M = TypeVar("M", bound=Member)


def companions_of(adapter: ProxyAdapter, binary: Path, model: ProxyModel) -> tuple[Companion, ...]:
    """Return the companions of a proxy with this configuration; most have none."""
    return tuple(adapter.companions(binary, model)) if isinstance(adapter, HasCompanions) else ()


def part_of(name: str) -> str:
    """Return what a companion is called among the parts of a lab: ``proxy-hitch``."""
    return f"proxy-{name}"


@dataclass(slots=True)
class _Started(Generic[M]):
    """One that was started, and what stood in its files when it last read them."""

    wanted: Companion
    member: M
    log: ErrorLog
    read: bytes


class Companions(ABC, Generic[M]):
    """The companions of one running proxy."""

    def __init__(self, directory: Path, clock: Clock, *, host: str, start_timeout_s: float) -> None:
        """``directory`` is the proxy's, as this host sees it; ``host`` is where this host reaches their ports."""
        self._directory = directory
        self._clock = clock
        self._host = host
        self._start_timeout_s = start_timeout_s
        self._started: list[_Started[M]] = []

    async def start(self, wanted: Sequence[Companion], *, first: bool) -> None:
        """Start those that belong before (``first``) or after the proxy, each once the one before it is ready.

        Raises ``LabError`` with the words of one that ends or does not listen in time.
        """
        for one in wanted:
            if one.first is first:
                await self._start(one)

    def members(self) -> list[M]:
        """Return those that were started."""
        return [one.member for one in self._started]

    def ended(self) -> str:
        """Say which have ended, how, and what they said last; "": all live."""
        dead = [one for one in self._started if not one.member.alive]
        return "\n".join(f"{one.wanted.name}: {one.member.words()}" for one in dead)

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
            said = await by_signal(one.wanted, one.member, one.log, self._clock, SAY_TIMEOUT_S)
            told[one.wanted.name] = said
            if said.verdict in ("refused", "gone"):
                break
            one.read = now
        return told

    @abstractmethod
    async def _launch(self, wanted: Companion, log: Path) -> M:
        """Start one with its output in ``log``. Raises ``LabError``; what was started then is ended with the lab."""

    def _ready(self, member: M) -> None:
        """Take note that this one listens: from now on its end is news."""

    async def _start(self, wanted: Companion) -> None:
        log = companion_output_of(self._directory, wanted.name)
        read = await asyncio.to_thread(_digest, wanted.reads)
        member = await self._launch(wanted, log)
        self._started.append(_Started(wanted, member, ErrorLog(log), read))
        await self._until_listening(wanted, member)
        self._ready(member)

    async def _until_listening(self, wanted: Companion, member: M) -> None:
        deadline = self._clock.monotonic_ns() + int(self._start_timeout_s * NS)
        while not await listens(self._host, wanted.port):
            late = self._clock.monotonic_ns() > deadline
            await member.settled()
            if late or not member.alive:
                port = f"{self._host}:{wanted.port}"
                why = (
                    f"it does not listen on {port} after {self._start_timeout_s:g} s" if late else "it ended"
                )
                raise LabError(f"{wanted.name} did not come up: {why}: {member.words()}")
            await self._clock.sleep(_POLL_S)


async def listens(host: str, port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except OSError:  # TimeoutError is one, too
        return False
    writer.close()
    return True


def _digest(files: Sequence[Path]) -> bytes:
    """Return what stands in these files, in short; one that is missing is empty."""
    whole = sha256()
    for path in files:
        content = path.read_bytes() if path.is_file() else b""
        whole.update(sha256(content).digest())
    return whole.digest()
