"""What is attached to: a proxy or a backend that somebody else runs, as a thing with an identity.

``attachedprocess.py`` has those that are found by a pid file, ``attachedcontainer.py`` those that are found by label. Whatever
it is, it is touched only while its identity is the one that was seen, and none is ever made or removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from signal import Signals
from typing import Protocol

from chaos.target import BackendState, Identity, IdentityChangedError
from soak.lab.checking import Checked
from soak.model import Vital
from soak.proxies.base import ProxyAdapter


class Role(StrEnum):
    """What a thing is to the run; also the value of the label ``soak.role``."""

    PROXY = "proxy"
    BACKEND = "backend"
    COMPANION = "companion"


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a thing. ``identity`` is empty when it does not run."""

    state: BackendState
    identity: Identity


class Thing(Protocol):
    """One proxy, backend or companion of somebody else's. All methods raise ``TargetError`` for what cannot be done, and say how to mend it."""

    name: str
    """``proxy``, ``b1``, ``proxy-hitch``, ..."""

    async def look(self) -> Seen:
        """Look at it now."""
        ...

    async def begin(self) -> None:
        """Start it again, as it was; whether it came up is for ``look`` to see. Raises ``IdentityChangedError`` when there is nothing to start."""
        ...

    async def end(self, identity: Identity, *, force: bool) -> None:
        """End it: SIGTERM, or SIGKILL when ``force``. Returns once it is gone."""
        ...

    async def suspend(self, identity: Identity) -> None:
        """Suspend it."""
        ...

    async def resume(self, identity: Identity) -> None:
        """Let it go on."""
        ...

    async def signal(self, identity: Identity, number: Signals) -> None:
        """Send a signal to its main process."""
        ...

    async def run(self, command: Sequence[str], *, timeout_s: float) -> Checked:
        """Run a command where it runs, and return how that ended."""
        ...

    async def vital(self, at_s: float, adapter: ProxyAdapter | None) -> Vital:
        """Look at what it uses; the proxy's ``adapter`` tells the roles of its processes. All zeroes when it does not run."""
        ...


def changed(name: str, identity: Identity, now: Identity) -> IdentityChangedError:
    """Return the refusal to touch what is not the thing that was prepared."""
    what = f"it is {dict(now)} now" if now else "it does not run"
    return IdentityChangedError(
        f"{name} is no longer {dict(identity)}: {what}; somebody else changed it, and it was not touched"
    )
