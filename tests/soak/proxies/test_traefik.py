"""The facts of Traefik, asked of the real binary wherever it can say; what every proxy must do is in test_conformance.py."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from signal import SIGHUP, SIGTERM

import pytest

from soak.errors import LabError
from soak.proxies.base import ProcessRole, ProxyModel
from soak.proxies.traefik import ADAPTER
from soak.rundir import RunDir
from tests.soak.lab.client import fetch

from .conftest import StartLab, binary_of, model_of

EXTRA = """\
http:
  routers:
    mine:
      rule: PathPrefix(`/mine/`)
      service: noop@internal
"""


@pytest.fixture
def model(tmp_path) -> ProxyModel:
    """A model in a directory whose name needs quoting."""
    return model_of(ADAPTER, tmp_path)


def test_each_route_is_a_router_with_a_name_of_its_own(model):
    """Routers and middlewares by name; the file that a reload reads is the main one."""
    files = ADAPTER.render(replace(model, routes=1000))
    http = json.loads(files["dynamic/site.yml"])["http"]

    assert ["dynamic/site.yml", "dynamic/extra.yml", "traefik.yml"] == list(files)
    assert 1002 == len(http["routers"])
    assert "Host(`r1000.soak.test`)" == http["routers"]["r1000"]["rule"]
    assert {"X-Soak-Route": "r1000"} == http["middlewares"]["route-r1000"]["headers"]["customResponseHeaders"]


def test_a_path_that_traefik_would_read_as_a_template_is_refused(model, tmp_path):
    """Files of the file provider are templates."""
    with pytest.raises(LabError, match="reads as a template"):
        ADAPTER.render(replace(model, key=tmp_path / "a{{b"))


def test_one_that_hup_would_end_is_refused(tmp_path):
    """Before 3.0."""
    old = tmp_path / "traefik"
    old.write_text("#!/bin/sh\necho 'Version:      2.11.0'\n")
    old.chmod(0o755)

    with pytest.raises(LabError, match=r"is Traefik 2\.11\.0, which HUP does not reload"):
        ADAPTER.version(old)


def test_its_one_process_is_the_master(tmp_path):
    """Told by its command line; what it says and does not say."""
    command = ADAPTER.start_command(tmp_path / "traefik", tmp_path)

    assert ProcessRole.MASTER is ADAPTER.role(" ".join(command))
    assert ProcessRole.OTHER is ADAPTER.role("sh")
    assert (SIGHUP, SIGTERM) == (ADAPTER.reload_signal(), ADAPTER.stop_signal())
    assert ADAPTER.validate_command(tmp_path / "traefik", tmp_path) is None
    assert ADAPTER.acceptances("anything") is None
    assert {"reload", "cert_rotate", "marker", "h2", "websocket", "metrics", "tcp"} == set(
        ADAPTER.capabilities
    )


async def test_extra_is_a_dynamic_file_and_a_broken_one_is_refused_by_name(started: StartLab, run: RunDir):
    """The user's router answers (418 by the service that does nothing); a failing health check is no refusal."""
    binary_of(ADAPTER)
    lab = await started("traefik", backends=2, extra=EXTRA)
    assert (418, 200) == (
        (await fetch(lab, "/mine/x")).status,
        (await fetch(lab, "/bytes/1")).status,
    )
    await lab.backend_stop("b1", (await lab.backend_status("b1")).identity, force=True)
    log = ADAPTER.error_log(run.lab / "proxy")
    async with asyncio.timeout(30):
        while "Health check failed" not in log.read_text():
            await asyncio.sleep(0.05)
    assert [] == ADAPTER.refusals(log.read_text())
    evidence = await lab.apply_broken_config()

    assert evidence.ok
    assert all("field not found, node: soak_refuse_this" in line for line in evidence.detail["refusals"])
