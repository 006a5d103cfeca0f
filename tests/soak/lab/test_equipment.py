"""What a binary can decides which ports a lab has."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.errors import LabError
from soak.lab.equipment import equipped
from soak.plan import Plan
from soak.proxies.base import Capability
from soak.proxies.nginx import ADAPTER

BINARY = Path("/opt/nginx")
L4 = Plan.model_validate({"traffic": {"classes": [{"shape": "l4", "share": 1}]}}).traffic.classes


def test_what_the_binary_has_gets_its_ports():
    """A pipe, and a page of metrics whose address is told."""
    lab = equipped(ADAPTER, ADAPTER.capabilities, backends=2, classes=L4, binary=BINARY)

    assert lab.proxy.tcp_port
    assert all(b.tls_port for b in lab.backends)
    assert f"http://127.0.0.1:{lab.ports['metrics']}/status" == lab.proxy.metrics_url


def test_what_it_lacks_gets_none():
    """No port, so that the adapter renders nothing for it."""
    lab = equipped(
        ADAPTER, frozenset({Capability.RELOAD}), backends=1, classes=Plan().traffic.classes, binary=BINARY
    )

    assert (0, "", {}) == (lab.proxy.tcp_port, lab.proxy.metrics_url, dict(lab.ports))
    assert 0 == lab.backends[0].tls_port


def test_traffic_that_it_cannot_carry_is_refused():
    """Before anything starts, with the binary's name."""
    able = ADAPTER.capabilities - {Capability.TCP}
    with pytest.raises(LabError, match="l4 goes through l4, and /opt/nginx was built without it"):
        equipped(ADAPTER, able, backends=1, classes=L4, binary=BINARY)
