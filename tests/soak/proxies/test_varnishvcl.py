"""What is rendered, as the real varnishd reads it; what it then does is in test_varnish.py and test_conformance.py."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from soak.proxies._varnishvcl import render_vcl
from soak.proxies.base import ProxyModel
from soak.proxies.varnish import ADAPTER

from .conftest import binary_of, model_of


@pytest.fixture
def model(tmp_path) -> ProxyModel:
    """A model in a directory whose name needs quoting."""
    return model_of(ADAPTER, tmp_path)


def check(model: ProxyModel) -> subprocess.CompletedProcess[str]:
    """Render, and let the real varnishd and its compiler judge."""
    for name, text in render_vcl(model).items():
        (model.directory / name).write_text(text)
    command = ADAPTER.validate_command(binary_of(ADAPTER), model.directory)
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
        cwd=model.directory.parent,
    )


@pytest.mark.parametrize("routes", [0, 1, 33, 1000])
def test_what_is_rendered_is_accepted(model, routes):
    """Without routes, in one subroutine, and in many; nothing is left of the check."""
    done = check(replace(model, routes=routes))

    assert 0 == done.returncode, done.stderr[-1000:]
    assert not (model.directory / "work").exists()


def test_a_broken_file_is_refused_by_name(model):
    """The complaint of the compiler is the refusal, in one line and without its hints."""
    done = check(replace(model, broken=True))
    (refusal,) = ADAPTER.refusals(done.stdout + done.stderr)

    assert 0 != done.returncode
    assert "Found: 'soak_refuse_this' at" in refusal
    assert "\n" not in refusal


def test_extra_stands_before_our_own_subroutines(model):
    """A subroutine of the user's runs first, and one of the same name is no clash."""
    extra = (
        'acl office { "127.0.0.1"; }\nsub vcl_recv {\n    if (client.ip ~ office) { return (synth(403)); }\n}'
    )
    text = render_vcl(replace(model, extra=extra))["main.vcl"]

    assert 0 == check(replace(model, extra=extra)).returncode
    assert text.index("synth(403)") < text.index("unset req.http.X-Soak-Route")


def test_each_route_is_there_once(model):
    """And each is asked for in the subroutine that has it."""
    routes = render_vcl(replace(model, routes=70))["routes.vcl"]

    assert 70 == routes.count("set req.backend_hint = origins.backend();")
    assert 3 == routes.count("call soak_routes_")
    assert 1 == routes.count('== "r70.soak.test"')
    assert r"|r64)\.soak\.test$" in routes
