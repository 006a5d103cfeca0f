"""The first configuration of a proxy that somebody else starts."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from soak.errors import PlanError
from soak.lab.rendering import render_first
from soak.lab.shared import Shared
from soak.plan import Plan
from soak.proxies.catalog import adapters

from .strangers import Strangers


def test_everything_that_a_start_needs_is_there(tmp_path: Path):
    """Configuration of generation 0, a pair that its CA signed, the origins' table, and the commands."""
    strangers = Strangers(tmp_path)
    rendered = strangers.render()

    assert tmp_path / "proxy" == rendered.directory
    assert ("nginx.conf", "site.pem", "site.key", "site.bundle.pem", "ca.pem") == tuple(rendered.files)
    assert all((rendered.directory / name).is_file() for name in rendered.files)
    assert 'X-Soak-Generation "0"' in (rendered.directory / "nginx.conf").read_text()
    assert 0o600 == (rendered.directory / "site.key").stat().st_mode & 0o7777
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(rendered.directory / "ca.pem")
    assert 0 == Shared.open(tmp_path / "origins.shared", 1).counters[0]
    assert "nginx" == rendered.proxy[0]
    assert rendered.output is None
    assert ["--name", "b2"] == list(rendered.origins[1])[3:5]
    assert {"--stay", "--shared", "--pid-file"} < set(rendered.origins[1])


def test_again_is_no_harm_and_a_strangers_file_is_spared(tmp_path: Path):
    """What soak rendered it may render anew; what it did not, only when forced. A table that origins may count in stays."""
    strangers = Strangers(tmp_path)
    strangers.render()
    Shared.open(tmp_path / "origins.shared", 0).counters[0] = 7
    strangers.render()
    assert 7 == Shared.open(tmp_path / "origins.shared", 0).counters[0]
    (tmp_path / "proxy" / ".rendered-by-soak").unlink()
    (tmp_path / "proxy" / "nginx.conf").write_text("mine")

    with pytest.raises(PlanError, match=r"holds nginx\.conf, which soak did not render; .* or --force"):
        strangers.render()
    assert "mine" == (tmp_path / "proxy" / "nginx.conf").read_text()
    render_first(strangers.plan, force=True)
    assert "mine" != (tmp_path / "proxy" / "nginx.conf").read_text()


def test_a_proxy_without_a_log_gets_the_file_of_its_output(tmp_path: Path):
    """Its adapter reads there."""
    strangers = Strangers(tmp_path, kind="envoy")
    ports = dict.fromkeys(getattr(adapters()["envoy"], "extra_ports", ()), 9000)
    strangers.lab["attach"]["proxy"]["ports"] = ports
    strangers.plan = Plan.model_validate({"lab": strangers.lab, "proxy": {"kind": "envoy"}})
    assert tmp_path / "proxy.out" == strangers.render().output
    assert (tmp_path / "proxy.out").is_file()


def test_a_byte_pipe_is_rendered_and_the_origins_are_told_of_it(tmp_path: Path):
    """A port of the proxy's, and TLS of the origins' own; their certificate stays when it is rendered again."""
    strangers = Strangers(tmp_path, pipe=True)
    rendered = strangers.render()

    assert {"origin.pem", "origin.key", "origin-ca.pem"} < set(rendered.files)
    where = strangers.lab["attach"]
    text = (rendered.directory / "nginx.conf").read_text()
    assert f"listen 127.0.0.1:{where['proxy']['tcp_port']} backlog=4096;\n        proxy_pass pipes;" in text
    assert f"server 127.0.0.1:{where['backends'][1]['tls_port']} max_fails=1" in text
    tls = ["--tls-port", str(where["backends"][1]["tls_port"])]
    tls += ["--certificate", f"{rendered.directory}/origin.pem", "--key", f"{rendered.directory}/origin.key"]
    assert tls == list(rendered.origins[1])[10:16]
    first = (rendered.directory / "origin.pem").read_bytes()
    strangers.render()
    assert first == (rendered.directory / "origin.pem").read_bytes()
    assert "stream {" not in (Strangers(tmp_path / "plain").render().directory / "nginx.conf").read_text()


def test_another_lab_has_nothing_to_render():
    """Its proxy is started by soak."""
    with pytest.raises(PlanError, match="the lab of this plan is local"):
        render_first(Plan())


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path):
    """Here: a file is in its way."""
    (tmp_path / "proxy").write_text("")
    with pytest.raises(PlanError, match=r"cannot be written: .*set another lab\.attach\.proxy\.directory"):
        Strangers(tmp_path).render()
