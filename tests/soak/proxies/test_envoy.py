"""The facts of Envoy, asked of the real binary wherever it can say; what every proxy must do is in test_conformance.py."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from signal import SIGHUP, SIGTERM

import pytest
import yaml

from soak.errors import LabError
from soak.proxies import envoy
from soak.proxies.base import ProcessRole, ProxyModel, ReloadContext
from soak.proxies.envoy import ADAPTER
from soak.rundir import RunDir
from tests.soak.lab.client import fetch
from tests.soak.lab.test_local import ask

from .conftest import StartLab, binary_of, model_of

EXTRA = """\
- match: {path: /mine}
  direct_response: {status: 204}
"""


@pytest.fixture
def model(tmp_path) -> ProxyModel:
    """A model in a directory whose name needs quoting."""
    return model_of(ADAPTER, tmp_path)


def test_the_bootstrap_is_accepted(model):
    """By Envoy's own validation, in a directory whose name is hostile."""
    for name, text in ADAPTER.render(model).items():
        path = model.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        ADAPTER.validate_command(binary_of(ADAPTER), model.directory),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=model.directory.parent,
    )

    assert 0 == done.returncode, done.stderr


def test_routes_are_virtual_hosts_with_headers_of_their_own(model):
    """YAML with the user's routes before the site's; one bundle for chain and key."""
    files = ADAPTER.render(replace(model, routes=1000, extra=EXTRA))
    (resource,) = yaml.safe_load(files["routes.yaml"])["resources"]
    *hosts, site = resource["virtual_hosts"]
    (secret,) = json.loads(files["secrets.json"])["resources"]

    assert (1000, ["r1000.soak.test", "r1000.soak.test:*"]) == (len(hosts), hosts[-1]["domains"])
    assert {"path": "/mine"} == site["routes"][0]["match"]
    assert "X-Soak-Generation" == resource["response_headers_to_add"][0]["header"]["key"]
    assert [{"filename": str(model.bundle)}] * 2 == list(secret["tls_certificate"].values())


def test_its_one_process_is_the_master(tmp_path):
    """Told by its command line; what it says and does not say."""
    command = ADAPTER.start_command(tmp_path / "envoy", tmp_path)

    assert ProcessRole.MASTER is ADAPTER.role(" ".join(command))
    assert ProcessRole.OTHER is ADAPTER.role("sh")
    assert (SIGHUP, SIGTERM) == (ADAPTER.reload_signal(), ADAPTER.stop_signal())
    assert ADAPTER.acceptances("anything") is None
    assert [] == ADAPTER.refusals("[warning][main] There is no configured limit\n")
    assert {"reload", "cert_rotate", "marker", "h2", "websocket", "metrics", "tcp"} == set(
        ADAPTER.capabilities
    )


async def test_a_reload_is_proven_by_the_counters_of_both_subscriptions(started: StartLab):
    """Routes and certificate, each at the version that was asked for; also the same version with a new certificate."""
    binary_of(ADAPTER)
    lab = await started("envoy", backends=1, extra=EXTRA)
    assert 204 == (await fetch(lab, "/mine")).status
    evidence = await lab.apply_generation(2)
    answer = evidence.detail["answer"]

    assert ("2", "2") == (answer["rds.soak.version_text"], answer["sds.site.version_text"])
    done = await lab.install_certificate(2)
    assert (done["serial"], "2") == (await ask(lab))[:2]


async def test_a_refusal_names_what_was_refused(started: StartLab):
    """In the words of the subscription."""
    binary_of(ADAPTER)
    lab = await started("envoy", backends=1)
    evidence = await lab.apply_broken_config()

    assert evidence.ok
    assert "Filesystem config update rejected" in evidence.detail["refusals"][0]
    assert {"rds.soak.update_rejected"} <= set(evidence.detail["answer"])


async def test_an_admin_page_that_errs_is_told(tmp_path, monkeypatch):
    """Its status and words."""

    async def err(*_args):
        return 503, "busy"

    monkeypatch.setattr(envoy, "ask_http", err)
    (tmp_path / "proxy.out").touch()
    with pytest.raises(LabError, match="admin page answered 503: busy"):
        await ADAPTER.reload(ReloadContext(tmp_path / "proxy", 1, {}, 1.0))


async def test_its_socket_is_for_its_owner_alone(started: StartLab, run: RunDir):
    """Whoever can open it may change everything."""
    binary_of(ADAPTER)
    await started("envoy", backends=1)

    assert 0o600 == (run.lab / "proxy" / "admin.sock").stat().st_mode & 0o777


async def test_only_a_full_reload_replaces_the_listeners(started: StartLab):
    """Told by the listener manager; a connection of the old ones is told to go, one that came by a routing reload is not."""
    binary_of(ADAPTER)
    lab = await started("envoy", backends=1)
    modified = "listener_manager.listener_modified"
    routing = await lab.apply_generation(2, kind="routing")
    assert modified not in routing.detail["answer"]
    full = await lab.apply_generation(3, kind="full")
    assert "3" == full.detail["answer"][modified]
    assert modified not in (await lab.apply_generation(4)).detail["answer"]
    assert (await lab.restore_proxy()).ok
