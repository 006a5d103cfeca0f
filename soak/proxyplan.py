"""What a plan says of the proxy: which one, its binary, and raw configuration of one's own."""

from __future__ import annotations

from pydantic import Field

from soak.plantypes import Frozen


class ProxyPlan(Frozen):
    """Which proxy, and how it is started."""

    kind: str = Field("nginx", description="Adapter name: nginx, haproxy, caddy, traefik, envoy.")
    binary: str | None = Field(
        None, description="Path of the proxy's binary; default: the one from its package or on PATH."
    )
    workers: int = Field(
        2, ge=1, le=64, description="Worker processes or threads of the proxy, where it has them."
    )
    extra: str = Field("", description="Raw configuration added to the server block.")
