"""What an attached proxy is started with; that it works: test_attach.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.lab.attachedfiles import first_model, pair_of, program_of
from soak.plan import Plan
from soak.proxies.catalog import adapter

ATTACH = {
    "run": "mine",
    "proxy": {"directory": "/p", "host": "proxy", "listen": "0.0.0.0", "http_port": 80, "https_port": 443},
    "backends": [{"host": "10.0.0.1", "port": 8000}],
}


@pytest.mark.parametrize(
    ("kind", "configured", "program"),
    [
        ("nginx", None, "nginx"),
        ("varnish", None, "varnishd"),
        ("rocky", None, "node"),
        ("nginx", "/opt/nginx", "/opt/nginx"),
    ],
)
def test_the_program_is_the_configured_one_or_what_images_call_it(
    kind: str, configured: str | None, program: str
):
    """A proxy is not always called after its program."""
    assert Path(program) == program_of(adapter(kind), configured)


def test_a_first_configuration_is_generation_zero_in_the_proxys_own_directory():
    """It listens where the plan says, and its certificate lies beside it."""
    plan = Plan.model_validate({"lab": {"kind": "attach", "attach": ATTACH}})
    where = plan.lab.attach
    assert where is not None
    model = first_model(plan, where)
    assert (0, 0, "0.0.0.0", 80, 443) == (
        model.generation,
        model.full_generation,
        model.listen_host,
        model.http_port,
        model.https_port,
    )
    assert (model.certificate, model.key, model.bundle) == pair_of(where.proxy)
    assert Path("/p/site.pem") == model.certificate
    assert ["10.0.0.1"] == [one.host for one in model.backends]
