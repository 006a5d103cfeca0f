"""The facts of Caddy, asked of the real binary wherever it can say; what every proxy must do is in test_conformance.py."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from signal import SIGTERM

import pytest

from soak.errors import LabError
from soak.proxies.base import ProcessRole, ProxyModel
from soak.proxies.caddy import ADAPTER
from soak.rundir import RunDir
from tests.soak.lab.test_local import ask

from .conftest import StartLab, binary_of, model_of


@pytest.fixture
def model(tmp_path) -> ProxyModel:
    """A model in a directory whose name needs quoting."""
    return model_of(ADAPTER, tmp_path)


def check(model: ProxyModel) -> subprocess.CompletedProcess[str]:
    """Render, and let the real Caddy judge."""
    for name, text in ADAPTER.render(model).items():
        (model.directory / name).write_text(text)
    command = ADAPTER.validate_command(binary_of(ADAPTER), model.directory)
    return subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=False, cwd=model.directory.parent
    )


def test_what_is_rendered_is_accepted(model):
    """With and without routes, formatted as Caddy wants it, in a directory whose name is hostile."""
    for routes in (0, 1000):
        done = check(replace(model, routes=routes))
        assert 0 == done.returncode, done.stderr
        assert "not formatted" not in done.stderr


def test_a_broken_file_is_refused_by_name(model):
    """The directive is named."""
    done = check(replace(model, broken=True))

    assert 0 != done.returncode
    assert "unrecognized directive: soak_refuse_this" in done.stderr


def test_extra_lines_stand_in_the_site(model):
    """A site's own directive is accepted there."""
    assert 0 == check(replace(model, extra='respond /extra 204\nheader A "b"')).returncode


@pytest.mark.parametrize("character", ["{", "}", "\n"])
def test_a_path_that_caddy_would_read_as_something_else_is_refused(model, tmp_path, character):
    """Braces are placeholders."""
    with pytest.raises(LabError, match="contains braces or a line break"):
        ADAPTER.render(replace(model, key=tmp_path / f"a{character}b"))


def test_its_one_process_is_the_master(tmp_path):
    """Told by its command line."""
    command = ADAPTER.start_command(tmp_path / "caddy", tmp_path)

    assert ProcessRole.MASTER is ADAPTER.role(" ".join(command))
    assert ProcessRole.OTHER is ADAPTER.role("sh")
    assert SIGTERM is ADAPTER.stop_signal()
    assert {"reload", "cert_rotate", "marker", "h2", "websocket", "metrics"} == set(ADAPTER.capabilities)


async def test_the_same_configuration_again_reads_new_certificate_files(started: StartLab, run: RunDir):
    """Without ``must-revalidate`` Caddy would take it for unchanged and keep the old certificate."""
    binary_of(ADAPTER)
    lab = await started("caddy", backends=1)
    old = lab.serial()
    done = await lab.install_certificate(1)

    assert old != done["serial"]
    assert (done["serial"], "1") == (await ask(lab))[:2]


async def test_what_it_logs_of_a_load_is_told_apart(started: StartLab, run: RunDir):
    """One line for a load that is complete, one error for a refused one; the socket is for its owner alone."""
    binary_of(ADAPTER)
    lab = await started("caddy", backends=1)
    assert (await lab.apply_generation(2)).ok
    assert (await lab.apply_broken_config()).ok
    text = ADAPTER.error_log(run.lab / "proxy").read_text()

    assert 1 == len(ADAPTER.acceptances(text))
    (refusal,) = ADAPTER.refusals(text)
    assert "soak_refuse_this" in json.loads(refusal)["error"]
    assert 0o600 == (run.lab / "proxy" / "admin.sock").stat().st_mode & 0o777
