"""What is passed on beside the site: bytes to the backends' TLS, and one page of the admin side; asked of the real Envoy."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request

import pytest

from soak.proxies import _envoyports as ports
from soak.proxies.base import BackendAddress, ProxyModel
from soak.proxies.envoy import ADAPTER

from .conftest import StartLab, binary_of, model_of


@pytest.fixture
def model(tmp_path) -> ProxyModel:
    """A model with every port."""
    return model_of(ADAPTER, tmp_path)


def test_a_pipe_goes_to_tls_and_asks_for_health_on_the_plain_port(model: ProxyModel):
    """A handshake for each check would be the origin's to pay."""
    cluster = ports.pipe_cluster([BackendAddress("b1", "127.0.0.1", 81, 443)])
    (locality,) = cluster["load_assignment"]["endpoints"]
    (endpoint,) = locality["lb_endpoints"]

    assert 443 == endpoint["endpoint"]["address"]["socket_address"]["port_value"]
    assert 100_000 == cluster["circuit_breakers"]["thresholds"][0]["max_connections"]
    assert {"port_value": 81} == endpoint["endpoint"]["health_check_config"]
    assert model.tcp_port == ports.pipe_listener(model)["address"]["socket_address"]["port_value"]


async def test_of_the_admin_side_only_the_counters_can_be_reached(started: StartLab):
    """Whoever can scrape cannot end the proxy, nor read its configuration."""
    binary_of(ADAPTER)
    lab = await started("envoy", backends=1)
    page = lab.proxy_address.metrics_url
    base = page.removesuffix("/stats/prometheus")

    def ask(method: str, url: str) -> int:
        request = urllib.request.Request(url, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    asked = [
        ("GET", page),
        ("POST", page),
        ("POST", f"{base}/quitquitquit"),
        ("GET", f"{base}/config_dump"),
        ("GET", f"{base}/stats/prometheus/../../certs"),
    ]
    assert [200, 404, 404, 404, 404] == [await asyncio.to_thread(ask, *one) for one in asked]
