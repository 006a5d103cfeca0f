"""Reloads, refusals and rotations of the real nginx, judged by fresh handshakes; what its lab adds is in test_proxy.py."""

from __future__ import annotations

import asyncio

import pytest

from certs.install import fingerprint_of, serial_of
from chaos.target import TargetError
from soak.lab.local import LocalLab
from soak.proxies.nginx import ADAPTER
from soak.rundir import RunDir

from .conftest import plan
from .test_local import ask


async def sees(lab: LocalLab, generation: str) -> tuple[str, str]:
    """Wait until a fresh client sees this generation; return it with the serial."""
    async with asyncio.timeout(30):
        while True:
            serial, seen, _ = await ask(lab)
            if seen == generation:
                return serial, seen
            await asyncio.sleep(0.01)


async def test_a_reload_is_accepted_and_seen(lab: LocalLab):
    """The log says so, the generation counts on, and traffic shows it with the same certificate."""
    serial = lab.serial()
    evidence = await lab.apply_generation(2)

    assert (True, 2, "accepted") == (evidence.ok, lab.generation(), evidence.detail["said"])
    assert (serial, "2") == await sees(lab, "2")


async def test_a_broken_file_is_refused_and_a_good_one_is_still_accepted(lab: LocalLab, run: RunDir):
    """Validator and log refuse it, the old one keeps serving, and the good file is back on disk."""
    path = run.lab / "proxy" / "nginx.conf"
    before = path.read_text()
    evidence = await lab.apply_broken_config()

    assert evidence.ok
    assert evidence.detail["validator_refused"]
    assert 'unknown directive "soak_refuse_this"' in evidence.detail["refusals"][0]
    assert (before, 1) == (path.read_text(), lab.generation())
    assert (lab.serial(), "1") == await sees(lab, "1")
    assert (await lab.apply_generation(2)).ok
    assert (lab.serial(), "2") == await sees(lab, "2")


async def test_a_rotation_is_seen_by_a_fresh_handshake(lab: LocalLab, run: RunDir):
    """New serial on the wire and on disk, the old one is named."""
    old = lab.serial()
    done = await lab.install_certificate(2)
    installed = (run.certs / "site.pem").read_bytes()

    assert old == done["old_serial"] != done["serial"]
    assert (serial_of(installed), fingerprint_of(installed)) == (done["serial"], done["fingerprint"])
    assert (done["serial"], "2") == await sees(lab, "2")
    assert done["serial"] == lab.serial()


async def test_restoring_goes_back_to_what_a_client_saw_work(lab: LocalLab):
    """The certificate and generation before the last change are served again."""
    old = lab.serial()
    await lab.install_certificate(2)
    await sees(lab, "2")
    evidence = await lab.restore_proxy()

    assert (True, 1, old) == (evidence.ok, lab.generation(), lab.serial())
    assert (old, "1") == await sees(lab, "1")
    assert (await lab.restore_proxy()).ok


async def test_what_the_validator_refuses_never_goes_live(lab: LocalLab, run: RunDir, monkeypatch):
    """The file in place is untouched, and nothing was reloaded."""
    path = run.lab / "proxy" / "nginx.conf"
    before = path.read_text()
    monkeypatch.setattr(lab._proxy, "_plan", plan(extra="no_such_directive;").proxy)
    evidence = await lab.apply_generation(2)

    assert (False, 1, before) == (evidence.ok, lab.generation(), path.read_text())
    assert evidence.reason.startswith("refused by validation: nginx: [emerg] unknown directive")
    with pytest.raises(TargetError, match="the new certificate was not taken: refused by validation"):
        await lab.install_certificate(2)
    assert serial_of((run.certs / "site.pem").read_bytes()) == lab.serial()


async def test_what_only_the_reload_refuses_is_taken_back(lab: LocalLab, run: RunDir, monkeypatch):
    """When the validator is blind, the log's word counts: old file, old certificate, old generation."""
    monkeypatch.setattr(lab._proxy, "_plan", plan(extra="no_such_directive;").proxy)
    monkeypatch.setattr(ADAPTER, "validate_command", lambda _binary, _directory: None, raising=False)
    old = lab.serial()
    with pytest.raises(TargetError, match=r"the new certificate was not taken: .*\[emerg\]"):
        await lab.install_certificate(2)
    monkeypatch.setattr(lab._proxy, "_plan", plan().proxy)

    assert (old, 1) == (serial_of((run.certs / "site.pem").read_bytes()), lab.generation())
    assert (await lab.apply_generation(3)).ok
    assert (old, "3") == await sees(lab, "3")


async def test_a_proxy_that_takes_a_broken_file_is_reported(lab: LocalLab, monkeypatch):
    """If nothing refuses it, the evidence says so and the good file is loaded again."""
    monkeypatch.setattr(ADAPTER, "render", lambda model: {"nginx.conf": _unbroken(model)}, raising=False)
    evidence = await lab.apply_broken_config()

    assert (False, False) == (evidence.ok, evidence.detail["validator_refused"])
    assert "the broken configuration was not refused" == evidence.reason
    assert (lab.serial(), "1") == await sees(lab, "1")


def _unbroken(model) -> str:
    (text,) = type(ADAPTER).render(ADAPTER, model).values()
    return str(text).replace("soak_refuse_this on;", "")


async def test_a_reload_in_a_row_of_rotations_never_serves_a_wrong_pair(lab: LocalLab):
    """Ten changes, each seen with exactly its serial and generation."""
    for generation in range(2, 12):
        done = await lab.install_certificate(generation)
        assert (done["serial"], str(generation)) == await sees(lab, str(generation))
