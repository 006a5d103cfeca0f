"""Rotate the proxy's certificate. It counts as done when a fresh handshake presents the new serial.

Only a full, non-resumed handshake tells: a resumed session shows the certificate of the time it was opened.
"""

from __future__ import annotations

from chaos.fault import FaultContext, Finding
from chaos.faults._proxy import ProxyTransition
from chaos.model import Evidence, Undo


class CertRotate(ProxyTransition):
    """A new leaf of the same authority, installed atomically, with a reload."""

    name = "cert-rotate"
    summary = "Issues and installs a new certificate, which a fresh handshake must present."
    needs = frozenset({"cert_rotate"})

    async def apply(self, ctx: FaultContext, undo: Undo) -> Evidence:
        """Issue, install, reload; the detail holds ``serial``, ``old_serial`` and ``fingerprint``."""
        generation: int = undo.state["next_generation"]
        installed = await ctx.target.install_certificate(generation)
        return Evidence(ok=True, detail={**installed, "generation": generation})

    async def verify_effect(self, ctx: FaultContext, undo: Undo, applied: Evidence) -> Finding:
        """Wait for the first fresh handshake that presents the new serial."""
        del undo
        serial = str(applied.detail["serial"])
        seen_s = await ctx.observer.serial_seen(serial, ctx.effect_timeout_s)
        if seen_s is None:
            reason = (
                f"serial {serial} was never presented by a fresh handshake within {ctx.effect_timeout_s:g} s: "
                "the certificate is not in effect"
            )
            return Finding.failed(reason, **applied.detail)
        return Finding.verified(seen_s, **applied.detail)


FAULT = CertRotate()
