"""The real nginx as a child of ours, through wrappers, too; what every lab does with its proxy is in test_configured.py."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from chaos.target import TargetError
from soak.lab import proxy as proxy_module
from soak.lab import reloading
from soak.lab.local import LocalLab
from soak.lab.process import row_of
from soak.lab.sweep import processes_of
from soak.proxies.nginx import ADAPTER
from soak.rundir import RunDir

from .conftest import plan, script
from .test_configured import sees
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
    monkeypatch.setattr(reloading, "SAY_TIMEOUT_S", 0.3)
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
