"""Ask the proxy for a reload, the way its adapter knows, and hear what it made of it.

Either the adapter calls (an admin socket, an HTTP endpoint) and gets an answer, or a signal is sent and the log is read on.
Both have a deadline, and neither is believed in the end: traffic judges, so silence is no refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from signal import Signals
from typing import Any, Protocol

from chaos.target import IdentityChangedError
from soak.clock import NS, Clock
from soak.errors import LabError
from soak.lab.errorlog import ErrorLog
from soak.proxies.base import ProxyAdapter, ReloadContext, ReloadKind, ReloadsByCall, reload_kinds_of

SAY_TIMEOUT_S = 2.0
"""How long a proxy may take to say in its log what it made of a reload; traffic judges, so silence is no refusal."""
CALL_TIMEOUT_S = 10.0
"""How long an adapter's call for a reload may take: Caddy and HAProxy answer when the new configuration serves."""
_POLL_S = 0.02
_SHOWN_LINES = 20


class Running(Protocol):
    """A running proxy, as far as a reload is concerned: a child of ours, a container, a process that somebody else started."""

    @property
    def alive(self) -> bool:
        """Whether it still is the one that was started."""
        ...

    async def signal(self, number: Signals) -> None:
        """Send a signal to its main process. Raises ``IdentityChangedError`` when it is gone or another one."""
        ...


@dataclass(frozen=True, slots=True)
class Said:
    """What the proxy made of a reload, by its own words."""

    verdict: str
    """``accepted``, ``refused``, ``nothing`` (silence) or ``gone`` (the process has ended)."""
    refusals: Sequence[str] = ()
    lines: Sequence[str] = field(default_factory=tuple)
    answer: Mapping[str, Any] = field(default_factory=dict)
    """What an admin call answered."""

    @property
    def detail(self) -> dict[str, Any]:
        """As JSON."""
        value = {"said": self.verdict, "refusals": list(self.refusals), "log": list(self.lines)}
        return {**value, "answer": dict(self.answer)} if self.answer else value


def chosen_kind(adapter: ProxyAdapter, wanted: str) -> ReloadKind:
    """Return the kind of reload that is wanted; "": the adapter's usual one. Raises ``LabError`` for one that it does not know."""
    kinds = reload_kinds_of(adapter)
    if not wanted and kinds:
        return kinds[0]
    if wanted in kinds:
        return ReloadKind(wanted)
    known = ", ".join(kinds) or "none"
    raise LabError(f"{adapter.name} knows no reload of kind {wanted!r}; it knows {known}")


async def ask(
    adapter: ProxyAdapter, running: Running, log: ErrorLog, clock: Clock, context: ReloadContext
) -> Said:
    """Ask the way the adapter knows: by a call of its own, else by its signal."""
    if isinstance(adapter, ReloadsByCall):
        return await by_call(adapter, context, running, log)
    return await by_signal(adapter, running, log, clock, SAY_TIMEOUT_S)


class Signalled(Protocol):
    """Who is told by a signal and answers in a log, if at all: an adapter, or a companion of its proxy."""

    def reload_signal(self) -> Signals:
        """Return the signal."""
        ...

    def refusals(self, log_text: str) -> Sequence[str]:
        """Return the lines that say that it was refused."""
        ...

    def acceptances(self, log_text: str) -> Sequence[str] | None:
        """Return the lines that say that it was taken."""
        ...


async def by_signal(
    adapter: Signalled, running: Running, log: ErrorLog, clock: Clock, timeout_s: float
) -> Said:
    """Send the signal and wait until the log says what came of it, at most ``timeout_s`` seconds."""
    mark = log.mark()
    try:
        await running.signal(adapter.reload_signal())
    except IdentityChangedError:
        return Said("gone")
    deadline = clock.monotonic_ns() + int(timeout_s * NS)
    while True:
        text = log.since(mark)
        lines = text.splitlines()[-_SHOWN_LINES:]
        if refusals := adapter.refusals(text):
            return Said("refused", refusals[-_SHOWN_LINES:], lines)
        if adapter.acceptances(text):
            return Said("accepted", (), lines)
        if not running.alive:
            return Said("gone", (), lines)
        if clock.monotonic_ns() > deadline:
            return Said("nothing", (), lines)
        await clock.sleep(_POLL_S)


async def by_call(caller: ReloadsByCall, context: ReloadContext, running: Running, log: ErrorLog) -> Said:
    """Let the adapter ask. A call that does not end in time is silence; a proxy that cannot be asked did not reload."""
    if not running.alive:
        return Said("gone")
    mark = log.mark()

    def lines() -> Sequence[str]:
        return log.since(mark).splitlines()[-_SHOWN_LINES:]

    try:
        async with asyncio.timeout(context.timeout_s):
            answer = await caller.reload(context)
    except TimeoutError:
        late = {"timeout_s": context.timeout_s, "error": "the reload was not answered in time"}
        return Said("nothing" if running.alive else "gone", (), lines(), late)
    except (OSError, LabError) as error:
        if not running.alive:
            return Said("gone", (), lines())
        return Said("refused", (f"the proxy could not be asked for a reload: {error}",), lines())
    if answer.accepted:
        return Said("accepted", (), lines(), answer.detail)
    return Said("refused", (answer.reason,), lines(), answer.detail)
