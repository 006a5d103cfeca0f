"""Heals what a dead run did to things of somebody else: undos are played against them, and the proxy gets its own files back.

Nothing is ended and nothing is removed. What was replaced since is not touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from chaos.model import Evidence
from chaos.target import Backends, Identity, Target, TargetError
from soak.clock import Clock, SystemClock
from soak.lab.attachedbackends import AttachedBackends
from soak.lab.attachedcompanions import beside_of
from soak.lab.attachedfaults import AttachedFaults
from soak.lab.attachedproxy import give_back
from soak.lab.attachedtls import origin_tls_of
from soak.lab.attachments import PROXY, Attachments, attachments_of
from soak.lab.attachstate import Borrowed, originals_of
from soak.lab.originals import Originals
from soak.lab.parts import HasBackends
from soak.proxies.base import supported_by
from soak.proxies.catalog import adapter_of
from soak.rundir import RunDir


class AttachTarget(AttachedFaults, HasBackends):
    """What a healer may do: bring backends back, and give the proxy its own files. Satisfies ``chaos.target.Target``."""

    def __init__(
        self, borrowed: Borrowed, attachments: Attachments, originals: Originals, clock: Clock
    ) -> None:
        self._adapter = adapter_of(borrowed.plan.proxy)
        self._attachments = attachments
        self._originals = originals
        self._clock = clock
        self._proxy_was = borrowed.known[PROXY]
        self._beside = beside_of(borrowed.plan, attachments.companions, borrowed.known)
        self._backends = AttachedBackends(
            attachments.backends,
            attachments.topology.backends,
            clock,
            start_timeout_s=borrowed.plan.lab.start_timeout,
            tls=origin_tls_of(attachments.plan.proxy),
        )

    @property
    def _attached(self) -> Attachments:
        return self._attachments

    def supports(self, capability: str) -> bool:
        """Whether the lab and its proxy can do this."""
        return capability in self._attached.plan.abilities | supported_by(self._adapter)

    def _backend_part(self) -> Backends:
        return self._backends

    async def proxy_identity(self) -> Identity:
        """Return who the proxy was when the run began."""
        return self._proxy_was

    def generation(self) -> int:
        """Return 0: a healer brings no generation."""
        return 0

    async def apply_generation(self, generation: int, *, kind: str = "") -> Evidence:
        """Refuse."""
        del generation, kind
        self._refuse()

    async def apply_broken_config(self) -> Evidence:
        """Refuse."""
        self._refuse()

    async def install_certificate(self, generation: int) -> Mapping[str, Any]:
        """Refuse."""
        del generation
        self._refuse()

    async def restore_proxy(self) -> Evidence:
        """Give the proxy its own files back: whatever a reload or a rotation left is gone with that."""
        return await give_back(
            self._originals,
            self._attachments.proxy,
            self._proxy_was,
            adapter=self._adapter,
            clock=self._clock,
            where=self._attachments.plan.proxy,
            beside=self._beside,
        )

    @staticmethod
    def _refuse() -> NoReturn:
        raise TargetError("a healer brings no new configuration; it puts the old one back")


class AttachHealable:
    """An attach lab opened from its files. It is not the run's own, so undos are played and nothing is removed."""

    disposable = False

    def __init__(self, attachments: Attachments, target: AttachTarget) -> None:
        self._attachments = attachments
        self._target = target

    @classmethod
    async def open(cls, run: RunDir, borrowed: Borrowed, clock: Clock | None = None) -> AttachHealable:
        """Find again what the run was attached to. Raises ``LabError`` when the engine cannot be reached."""
        assert borrowed.plan.lab.attach is not None
        clock = clock or SystemClock()
        found = await attachments_of(run, borrowed.plan.lab.attach, clock, borrowed.known)
        return cls(found, AttachTarget(borrowed, found, originals_of(run), clock))

    async def release(self) -> Evidence:
        """Give the proxy its own files back, and let go. Idempotent."""
        evidence = await self._target.restore_proxy()
        if evidence.ok:
            self._attachments.close()
        return evidence

    def target(self) -> Target | None:
        """Return what undos are played against."""
        return self._target
