"""A real binary of each proxy, and a started lab with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from certs.authority import Authority
from certs.install import install_pair
from soak.errors import LabError
from soak.lab.local import LocalLab
from soak.lab.sweep import processes_of, release
from soak.lab.topology import free_ports
from soak.plan import Plan
from soak.planfile import load_plan
from soak.proxies.base import BackendAddress, Capability, NeedsPorts, ProxyAdapter, ProxyModel
from soak.proxies.catalog import adapter_of
from soak.proxyplan import COMMAND, ProxyPlan
from soak.rundir import RunDir
from tests.conftest import missing

StartLab = Callable[..., Awaitable[LocalLab]]


def proxy_part(kind: str) -> dict[str, Any]:
    """Return what a plan must say of a proxy of this kind: of one that only the plan knows, everything."""
    return load_plan(preset="command").proxy.model_dump(by_alias=True) if kind == COMMAND else {"kind": kind}


def adapter_named(kind: str) -> ProxyAdapter:
    """Return the adapter as the lab uses it."""
    return adapter_of(ProxyPlan.model_validate(proxy_part(kind)))


def binary_of(adapter: ProxyAdapter) -> Path:
    """Return the adapter's binary, or skip (fail, where nothing may be missing) with its own words."""
    try:
        return adapter.find_binary(None)
    except LabError as error:
        missing(str(error))


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """The directory of a run that has just been created, deeper than a Unix socket's path may be long."""
    path = tmp_path / ("deep-" * 20) / 'run "2026" of it'
    path.mkdir(parents=True)
    (path / "lab").mkdir()
    return RunDir(path)


@pytest.fixture
async def started(run: RunDir) -> AsyncIterator[StartLab]:
    """Return a function that starts a lab with a proxy; ended whatever a test did to it, and nothing is left."""
    labs: list[LocalLab] = []

    async def start(
        kind: str,
        *,
        backends: int = 3,
        routes: int = 0,
        extra: str = "",
        start_timeout: float = 20,
        binary: str | None = None,
    ) -> LocalLab:
        plan = Plan.model_validate(
            {
                "lab": {"backends": backends, "start_timeout": start_timeout},
                "proxy": {
                    **proxy_part(kind),
                    "extra": extra,
                    **({} if binary is None else {"binary": binary}),
                },
            }
        )
        lab = LocalLab(run, plan, on_event=lambda _name, _data: None, routes=routes)
        labs.append(lab)
        await lab.start()
        return lab

    yield start
    for lab in labs:
        await lab.stop()
    await release(run)
    assert [] == processes_of(run)


def model_of(adapter: ProxyAdapter, tmp_path: Path) -> ProxyModel:
    """Return a model with a real certificate, in a directory whose name needs quoting."""
    directory = tmp_path / 'a "quoted" directory; with #signs'
    directory.mkdir()
    pair = Authority.create(tmp_path / "certs").leaf("soak.test")
    certificate, key, bundle = (directory / name for name in ("site.pem", "site.key", "bundle.pem"))
    install_pair(pair.chain_pem, pair.key_pem, certificate=certificate, key=key)
    bundle.write_bytes(pair.chain_pem + pair.key_pem)
    names = adapter.extra_ports if isinstance(adapter, NeedsPorts) else ()
    http, https, tcp, one, two, *extra = free_ports(7 + len(names))
    secure = extra[len(names) :]
    return ProxyModel(
        generation=7,
        listen_host="127.0.0.1",
        http_port=http,
        https_port=https,
        server_name="soak.test",
        certificate=certificate,
        key=key,
        bundle=bundle,
        backends=[
            BackendAddress("b1", "127.0.0.1", one, secure[0]),
            BackendAddress("b2", "127.0.0.1", two, secure[1]),
        ],
        tcp_port=tcp if Capability.TCP in adapter.capabilities else 0,
        workers=2,
        directory=directory,
        ports=dict(zip(names, extra, strict=False)),
    )
