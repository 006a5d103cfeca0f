"""What a proxy that somebody else runs is started with: its program, the files in its directory, the model of its first configuration."""

from __future__ import annotations

from pathlib import Path

from soak.lab.attachments import topology_of
from soak.labplan import AttachedProxyPlan, AttachLabPlan
from soak.plan import Plan
from soak.proxies.base import SERVER_NAME, ProxyAdapter, ProxyModel, RunsInContainer

RENDERED_GENERATION = 0
"""What 'soak render' gives the proxy to start with."""


def pair_of(where: AttachedProxyPlan) -> tuple[Path, Path, Path]:
    """Return where its certificate, its key, and both together are."""
    directory = Path(where.directory)
    return directory / "site.pem", directory / "site.key", directory / "site.bundle.pem"


def program_of(adapter: ProxyAdapter, configured: str | None) -> Path:
    """Return the program that somebody else starts: the configured one, or what images call it."""
    return Path(
        configured or (adapter.container.binary if isinstance(adapter, RunsInContainer) else adapter.name)
    )


def first_model(plan: Plan, where: AttachLabPlan) -> ProxyModel:
    """Return what the proxy starts with."""
    proxy, topology = where.proxy, topology_of(where)
    certificate, key, bundle = pair_of(proxy)
    return ProxyModel(
        generation=RENDERED_GENERATION,
        full_generation=RENDERED_GENERATION,
        listen_host=proxy.listen or proxy.host,
        http_port=proxy.http_port,
        https_port=proxy.https_port,
        server_name=SERVER_NAME,
        certificate=certificate,
        key=key,
        bundle=bundle,
        backends=topology.backends,
        workers=plan.proxy.workers,
        directory=Path(proxy.directory),
        extra=plan.proxy.extra,
        ports=topology.ports,
        tcp_port=topology.proxy.tcp_port,
    )
