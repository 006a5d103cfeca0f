"""Nobody is asked before it is known who it is; real ones: test_attach.py by signal, test_docker.py in containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from certs.authority import Authority
from chaos.target import BackendState, TargetError
from soak.clock import SystemClock
from soak.lab.attachedproxy import AttachedProxy
from soak.lab.configured import ProxySetup
from soak.lab.originals import Originals
from soak.lab.topology import choose_topology
from soak.labplan import AttachedProxyPlan
from soak.proxies.catalog import adapter
from soak.proxyplan import ProxyPlan
from soak.rundir import RunDir

from .test_attachedproxy import ME, FakeThing

TAKEN = "1 [notice] 1#0: start worker processes"


async def test_nobody_is_asked_before_it_is_known_who_it_is(run: RunDir, tmp_path: Path):
    """Then whatever the thing is, is the proxy."""
    where = AttachedProxyPlan(directory=str(tmp_path), http_port=1, https_port=2)
    setup = ProxySetup(
        run,
        ProxyPlan(),
        choose_topology(1),
        SystemClock(),
        adapter("nginx"),
        Path("nginx"),
        Authority.create(run.certs),
        1.0,
    )
    thing = FakeThing(tmp_path / "error.log", TAKEN)
    proxy = AttachedProxy(setup, where, thing=thing, originals=Originals(tmp_path / "originals"), beside={})  # type: ignore[arg-type]  # same
    with pytest.raises(TargetError, match="the proxy is not there yet"):
        await proxy.restore_proxy()
    assert BackendState.RUNNING is await proxy._identify()
    assert (await proxy.restore_proxy()).ok
    assert ME == await proxy.proxy_identity()
