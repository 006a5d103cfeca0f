"""Reloads, refusals and rotations of the real nginx, judged by fresh handshakes."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from certs.install import fingerprint_of, serial_of
from chaos.target import TargetError
from soak.lab import proxy as proxy_module
from soak.lab.local import LocalLab
from soak.lab.process import row_of
from soak.lab.sweep import processes_of
from soak.proxies.nginx import ADAPTER
from soak.rundir import RunDir

from .conftest import plan, script
from .test_local import ask, ignore

SWALLOWS_SIGNALS = """\
#!/bin/sh
case "$*" in *-v|*-q) exec {nginx} "$@";; esac
trap "" HUP
setsid=no
{nginx} "$@" &
trap "kill -TERM $!" TERM
wait
"""
PASSES_SIGNALS = """\
#!/bin/sh
case "$*" in *-v|*-q) exec {nginx} "$@";; esac
{nginx} "$@" &
trap "kill -HUP $!" HUP
trap "kill -TERM $!; exit 0" TERM
while kill -0 $! 2>/dev/null; do wait; done
"""


async def sees(lab: LocalLab, generation: str) -> tuple[str, str]:
    """Wait until a fresh client sees this generation; return it with the serial."""
    async with asyncio.timeout(20):
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


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/no/such/validator"], "'/no/such/validator' does not run: No such file"),
        (["sleep", "60"], "'sleep 60' did not end within 0.2 s"),
        (["false"], "'false' ended with exit status 1 and said nothing"),
    ],
)
async def test_a_validator_that_fails_is_a_refusal(lab: LocalLab, monkeypatch, command, words):
    """Whatever the reason, what could not be validated does not go live."""
    monkeypatch.setattr(proxy_module, "VALIDATE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(ADAPTER, "validate_command", lambda _binary, _directory: command, raising=False)
    evidence = await lab.apply_generation(2)

    assert (False, 1) == (evidence.ok, lab.generation())
    assert words in evidence.reason


async def wrapped(run: RunDir, tmp_path: Path, text: str) -> LocalLab:
    binary = script(tmp_path / "wrapper", text.format(nginx=ADAPTER.find_binary(None)))
    lab = LocalLab(run, plan(binary=str(binary)), on_event=ignore)
    await lab.start()
    return lab


async def test_a_wrapper_that_passes_signals_on_works_like_nginx(run: RunDir, tmp_path: Path):
    """The census covers its whole tree; reload, refusal and rotation work through it; stop ends all of it."""
    lab = await wrapped(run, tmp_path, PASSES_SIGNALS)
    try:
        assert 6 == (await lab.vitals(0))[0].processes
        assert (await lab.apply_generation(2)).ok
        assert (await lab.apply_broken_config()).ok
        done = await lab.install_certificate(3)
        assert (done["serial"], "3") == await sees(lab, "3")
    finally:
        assert (await lab.stop()).ok
    assert [] == processes_of(run)


async def test_a_wrapper_that_swallows_the_signal_is_not_believed(run: RunDir, tmp_path: Path, monkeypatch):
    """The log says nothing and traffic keeps the old generation: the planted defect that a verdict must find."""
    monkeypatch.setattr(proxy_module, "SAY_TIMEOUT_S", 0.3)
    lab = await wrapped(run, tmp_path, SWALLOWS_SIGNALS)
    try:
        old = lab.serial()
        evidence = await lab.apply_generation(2)
        assert ("nothing", []) == (evidence.detail["said"], evidence.detail["log"])
        done = await lab.install_certificate(3)
        assert (old, "1") == (await ask(lab))[:2]
        assert done["serial"] != old
        assert (await lab.apply_broken_config()).detail["said"] == "nothing"
        restored = await lab.restore_proxy()
        assert (old, 1) == (restored.detail["serial"], lab.generation())
    finally:
        assert (await lab.stop()).ok


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


async def test_a_dead_proxy_cannot_be_restored(lab: LocalLab):
    """It is said, not raised, and its identity is refused."""
    identity = await lab.proxy_identity()
    os.kill(identity["pid"], signal.SIGKILL)
    while (row := row_of(identity["pid"])) is not None and row.alive:
        await asyncio.sleep(0.01)

    evidence = await lab.restore_proxy()
    assert not evidence.ok
    assert "the proxy has ended" in evidence.reason
    with pytest.raises(TargetError, match="the proxy has ended"):
        await lab.proxy_identity()


async def test_a_reload_in_a_row_of_rotations_never_serves_a_wrong_pair(lab: LocalLab):
    """Ten changes, each seen with exactly its serial and generation."""
    for generation in range(2, 12):
        done = await lab.install_certificate(generation)
        assert (done["serial"], str(generation)) == await sees(lab, str(generation))
