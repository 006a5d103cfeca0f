"""The facts of HAProxy, asked of the real binary wherever it can say; what every proxy must do is in test_conformance.py."""

from __future__ import annotations

import asyncio
import resource
import subprocess
from dataclasses import replace
from signal import SIGTERM, SIGUSR2

import pytest

from soak.errors import LabError
from soak.proxies.base import ProcessRole, ProxyModel, SeenProcess
from soak.proxies.haproxy import ADAPTER
from tests.soak.lab.client import Socket, fetch

from .conftest import StartLab, binary_of, model_of


@pytest.fixture
def model(tmp_path) -> ProxyModel:
    """A model in a directory whose name needs quoting."""
    return model_of(ADAPTER, tmp_path)


def check(model: ProxyModel) -> subprocess.CompletedProcess[str]:
    """Render, and let the real HAProxy judge."""
    for name, text in ADAPTER.render(model).items():
        (model.directory / name).write_text(text)
    command = ADAPTER.validate_command(binary_of(ADAPTER), model.directory)
    return subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=False, cwd=model.directory.parent
    )


def test_what_is_rendered_is_accepted_without_a_warning(model):
    """With and without routes, in a directory whose name is hostile."""
    for routes in (0, 1000):
        done = check(replace(model, routes=routes))
        assert 0 == done.returncode, done.stderr
        assert "[WARNING]" not in done.stderr
        assert "[ALERT]" not in done.stderr


def test_a_broken_file_is_refused_by_name(model):
    """The alert of the parser is the refusal."""
    done = check(replace(model, broken=True))

    assert 0 != done.returncode
    assert "unknown keyword 'soak_refuse_this' in 'frontend' section" in ADAPTER.refusals(done.stderr)[0]


def test_extra_lines_stand_in_the_frontend(model):
    """A frontend's own directive is accepted there."""
    assert 0 == check(replace(model, extra="http-request deny if { path /x }\noption nolinger")).returncode


def test_a_path_with_a_dollar_is_no_variable(model, tmp_path):
    """It is escaped; a line break cannot be."""
    odd = tmp_path / "of $HOME.pem"
    odd.write_bytes(model.bundle.read_bytes())
    assert 0 == check(replace(model, bundle=odd)).returncode
    with pytest.raises(LabError, match="contains a line break"):
        ADAPTER.render(replace(model, bundle=tmp_path / "a\nb"))


@pytest.mark.parametrize(
    ("expected", "hard"), [(10_000, resource.RLIM_INFINITY), (10_000, 1_000_000), (1792, 4096), (64, 256)]
)
def test_connections_fit_the_open_file_limit(model, monkeypatch, expected, hard):
    """It refuses to start when its connections may need more files than there are."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, hard))

    assert f"    maxconn {expected}\n" in ADAPTER.render(model)["haproxy.cfg"]


def test_one_whose_reload_does_not_answer_is_refused(tmp_path):
    """Before 2.7 ``reload`` says nothing."""
    old = tmp_path / "haproxy"
    old.write_text("#!/bin/sh\necho 'HAProxy version 2.6.12-1+deb12u2 2025/04/16 - https://haproxy.org/'\n")
    old.chmod(0o755)

    with pytest.raises(LabError, match=r"is HAProxy 2\.6\.12, whose reload does not say"):
        ADAPTER.version(old)


def test_roles_are_told_by_kinship():
    """Master, the worker of now, and one that the last reload asked to finish."""
    command = [
        "/x/haproxy",
        "-sf",
        "11",
        "-x",
        "sockpair@4",
        "-W",
        "-db",
        "-S",
        "unix@proxy/master.sock",
        "-f",
        "/c",
    ]
    processes = [
        SeenProcess(10, 1, ["/x/haproxy", "-W", "-db", "-S", "unix@proxy/master.sock", "-f", "/c"]),
        SeenProcess(11, 10, ["/x/haproxy", "-W", "-db", "-S", "unix@proxy/master.sock", "-f", "/c"]),
        SeenProcess(12, 10, command),
        SeenProcess(13, 10, ["sh"]),
    ]

    assert {
        10: ProcessRole.MASTER,
        11: ProcessRole.OLD_WORKER,
        12: ProcessRole.WORKER,
    } == ADAPTER.roles(processes)
    assert ProcessRole.WORKER is ADAPTER.role(" ".join(command))
    assert ProcessRole.OTHER is ADAPTER.role("sh")


def test_signals_and_capabilities_are_those_of_the_manual():
    """What is declared is what is rendered."""
    assert (SIGUSR2, SIGTERM) == (ADAPTER.reload_signal(), ADAPTER.stop_signal())
    assert {"reload", "cert_rotate", "marker", "h2", "websocket", "metrics", "tcp"} == set(
        ADAPTER.capabilities
    )
    assert ["[NOTICE]   (7) : Loading success."] == ADAPTER.acceptances(
        "[NOTICE]   (7) : New worker (8) forked\n[NOTICE]   (7) : Loading success.\n"
    )


async def test_an_old_worker_is_counted_while_a_connection_lives(started: StartLab):
    """A websocket keeps the worker of the earlier generation, and the census sees it go."""
    binary_of(ADAPTER)
    lab = await started("haproxy", backends=1)

    async def old() -> int:
        return (await lab.vitals(0))[0].old_processes

    async with Socket(lab):
        assert (await lab.apply_generation(2)).ok
        assert 1 == await old()
    async with asyncio.timeout(30):
        while await old():
            await asyncio.sleep(0.05)


async def test_a_routing_reload_leaves_the_worker_as_it_is(started: StartLab):
    """No process ends or begins; a full one after it starts from what the files then hold."""
    binary_of(ADAPTER)
    lab = await started("haproxy", backends=1)

    async def processes() -> tuple[int, int]:
        seen = (await lab.vitals(0))[0]
        return seen.processes, seen.old_processes

    async with Socket(lab) as socket:
        done = await lab.apply_generation(2, kind="routing")
        assert {"changed": {"generation.map": 1}} == done.detail["answer"]
        assert (2, 0) == await processes()
        assert (await lab.apply_generation(3, kind="full")).ok
        assert (3, 1) == await processes()
        assert (0x81, b"on") == await socket.echo(1, b"on")
    assert "3" == (await fetch(lab, "/bytes/1")).headers["x-soak-generation"]


async def test_a_new_worker_knows_who_is_down(started: StartLab, run):
    """The state of the servers was written down before the reload: no traffic to one that is known to be dead."""
    binary_of(ADAPTER)
    lab = await started("haproxy")
    await lab.backend_stop("b1", (await lab.backend_status("b1")).identity, force=True)
    async with asyncio.timeout(30):
        while "Server origins/b1 is DOWN" not in (run.lab / "proxy.out").read_text():
            await asyncio.sleep(0.05)
    evidence = await lab.apply_generation(2)

    assert {"answer": "Success=1", "server_state": True} == evidence.detail["answer"]
    told = (run.lab / "proxy.out").read_text()
    assert "Server origins/b1 is DOWN, changed from server-state after a reload." in told
