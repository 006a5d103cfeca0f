"""The local lab, whole: a real nginx and real origins, from start to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from pathlib import Path

import pytest

from chaos.target import Target
from soak.errors import LabError, PlanError
from soak.lab import local
from soak.lab.local import LocalLab
from soak.lab.prober import Probe, trust
from soak.lab.process import row_of
from soak.lab.state import read_state
from soak.lab.sweep import processes_of
from soak.proxies.catalog import adapter
from soak.rundir import RunDir

from .conftest import plan, script, until


def ignore(_name, _data) -> None:
    """Take an event and do nothing."""


async def ask(lab: LocalLab) -> tuple[str, str, str]:
    """Return serial, generation and origin as a fresh client sees them."""
    probe = Probe(lab.proxy_address, lab.server_name, trust(lab.ca_file))
    try:
        serial = await probe.handshake()
        answer = await probe.ask()
    finally:
        probe.close()
    return serial, answer.generation, answer.origin


async def test_a_started_lab_answers_through_the_proxy(lab: LocalLab):
    """Checked body, the right generation and certificate, every origin in turn; and it is a Target."""
    target: Target = lab
    answers = [await ask(lab) for _ in range(8)]

    assert {(lab.serial(), "1")} == {answer[:2] for answer in answers}
    assert set(target.backend_names()) == {answer[2] for answer in answers}
    assert 3 == len(lab.proxy_version.split("."))


async def test_plain_http_answers_too(lab: LocalLab):
    """Both listeners carry the marker."""
    address = lab.proxy_address
    reader, writer = await asyncio.open_connection(address.host, address.http_port)
    writer.write(b"GET /bytes/10 HTTP/1.1\r\nHost: soak.test\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"X-Soak-Generation: 1\r\n" in answer


async def test_what_it_can_is_said(lab: LocalLab):
    """Capabilities of the lab and of its adapter, and nothing else."""
    names = ["reload", "cert_rotate", "backend_stop", "backend_pause", "network_delay"]

    assert [True, True, True, True, False] == [lab.supports(name) for name in names]


async def test_vitals_count_the_proxy_with_its_workers_and_each_origin(lab: LocalLab):
    """Master and two workers, one process for each origin."""
    vitals = {vital.subject: vital for vital in await lab.vitals(4.0)}

    assert {"proxy": 5, "b1": 1, "b2": 1} == {name: vital.processes for name, vital in vitals.items()}
    assert all(vital.rss_bytes > 0 and vital.fds > 0 and vital.at_s == 4.0 for vital in vitals.values())


async def test_an_old_worker_is_counted_while_a_connection_lives(lab: LocalLab):
    """An answer under way keeps the worker of the earlier generation, and the census sees it go."""
    address = lab.proxy_address
    reader, writer = await asyncio.open_connection(address.host, address.http_port)
    writer.write(b"GET /drip/60000/bytes/4000 HTTP/1.1\r\nHost: soak.test\r\n\r\n")
    assert b" 200 OK" in await reader.readuntil(b"\r\n\r\n")
    await lab.apply_generation(2)

    async def old() -> int:
        return (await lab.vitals(0))[0].old_processes

    async with asyncio.timeout(30):
        while await old() != 1:
            await asyncio.sleep(0.01)
    writer.close()
    await writer.wait_closed()
    async with asyncio.timeout(30):
        while await old() != 0:
            await asyncio.sleep(0.01)


async def test_everything_is_recorded_in_the_lab(lab: LocalLab, run: RunDir):
    """The record names each process as it is, and all of them work in the lab's directory."""
    recorded = read_state(run)

    assert {"b1", "b2", "proxy"} == set(recorded.identities)
    assert [] == [
        n for n, i in recorded.identities.items() if (row := row_of(i["pid"])) is None or row.identity != i
    ]
    assert {str(run.lab)} == {os.readlink(f"/proc/{row.pid}/cwd") for row in processes_of(run)}  # noqa: PTH115
    assert ["nginx"] == [Path(executable).name for executable in recorded.executables]


async def test_keys_are_private_and_no_candidate_is_left(lab: LocalLab, run: RunDir):
    """0700 on the directory, 0600 on each key, and only the keys of the authority, of the site, and of the origins' own TLS."""
    await lab.apply_generation(2)
    keys = sorted(path.name for path in run.path.rglob("*.key"))

    assert ["ca.key", "origin.key", "site.key"] == keys
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in run.path.rglob("*.key")}
    assert 0o700 == stat.S_IMODE(run.certs.stat().st_mode)


async def test_an_origin_that_dies_by_itself_is_an_event(lab: LocalLab, events):
    """With how it ended; one that was taken away is none."""
    status = await lab.backend_status("b1")
    await lab.backend_stop("b1", status.identity, force=True)
    other = await lab.backend_status("b2")
    os.kill(other.identity["pid"], signal.SIGSEGV)
    await until(lambda: bool(events))

    ((name, data),) = events
    assert ("origin.died", "b2", "SIGSEGV", -11) == (name, data["name"], data["how"], data["exit"])


async def test_a_proxy_that_dies_by_itself_is_an_event(lab: LocalLab, events):
    """Its last words are in it; what asks for its identity is told; reloads fail with a reason."""
    identity = await lab.proxy_identity()
    os.kill(identity["pid"], signal.SIGKILL)
    await until(lambda: bool(events))

    ((name, data),) = events
    assert ("proxy.died", "SIGKILL", identity["pid"]) == (name, data["how"], data["pid"])
    assert "start worker process" in data["words"]
    evidence = await lab.apply_generation(2)
    assert (False, 1) == (evidence.ok, lab.generation())
    assert "the proxy has ended: SIGKILL" in evidence.reason


async def test_stop_leaves_nothing_and_is_no_event(run: RunDir, events):
    """Twice is the same as once."""
    lab = LocalLab(run, plan(), on_event=lambda name, data: events.append((name, data)))
    await lab.start()
    status = await lab.backend_status("b1")
    await lab.backend_pause("b1", status.identity)

    assert (await lab.stop()).ok
    assert (await lab.stop()).ok
    assert [] == processes_of(run)
    await asyncio.sleep(0)
    assert [] == events


async def test_a_lab_that_is_not_started_says_so(run: RunDir):
    """Instead of an attribute error."""
    lab = LocalLab(run, plan(), on_event=ignore)

    with pytest.raises(LabError, match="the lab is not started"):
        lab.generation()
    assert (await lab.stop()).ok


def test_a_missing_or_unknown_proxy_is_found_before_anything_starts(run: RunDir):
    """Each with the fix, and nothing is written."""
    with pytest.raises(LabError, match=r"proxy\.binary '/no/nginx' is not an executable file; install it"):
        LocalLab(run, plan(binary="/no/nginx"), on_event=ignore)
    with pytest.raises(PlanError, match="did you mean 'nginx'"):
        LocalLab(run, plan(kind="ngingx"), on_event=ignore)
    assert [] == list(run.lab.iterdir())


async def fails(run: RunDir, **proxy) -> str:
    """Start a lab that must fail; return the words of the error. Nothing may be left."""
    lab = LocalLab(run, plan(**proxy), on_event=ignore)
    with pytest.raises(LabError) as caught:
        await lab.start()
    assert [] == processes_of(run)
    return str(caught.value)


async def test_a_configuration_that_nginx_refuses_shows_its_words(run: RunDir):
    """proxy.extra with a typo."""
    assert 'unknown directive "no_such_directive"' in await fails(run, extra="no_such_directive on;")


async def test_an_nginx_that_fails_to_start_shows_its_words(run: RunDir, tmp_path: Path):
    """What it wrote on stderr and how it ended."""
    text = '#!/bin/sh\ncase "$*" in\n-v|-V) echo nginx/1.0.0 configure arguments:;;\n*-q) ;;\n*) echo "bind() failed: no luck" >&2; exit 7;;\nesac\n'
    words = await fails(run, binary=str(script(tmp_path / "unlucky", text)))

    assert " did not come up: it ended: exit status 7; it said:\nbind() failed: no luck" in words


async def test_an_nginx_that_serves_nothing_shows_what_is_missing(run: RunDir, tmp_path: Path):
    """Bounded by the lab's own timeout."""
    text = '#!/bin/sh\ncase "$*" in\n-v|-V) echo nginx/1.0.0 configure arguments:;;\n*-q) ;;\n*) exec sleep 60;;\nesac\n'
    lab = LocalLab(
        run,
        plan(binary=str(script(tmp_path / "idle", text))).model_copy(
            update={"lab": plan().lab.model_copy(update={"start_timeout": 2.0})}
        ),
        on_event=ignore,
    )
    with pytest.raises(
        LabError, match=r"not ready after 2 s \(connect: .* refused the connection\).*said nothing"
    ):
        await lab.start()
    assert [] == processes_of(run)


async def test_an_origin_that_fails_to_start_shows_its_words(run: RunDir):
    """A port that is taken."""
    lab = LocalLab(run, plan(), on_event=ignore)
    address = lab._topology.backends[1]
    server = await asyncio.start_server(lambda _r, w: w.close(), address.host, address.port)
    try:
        with pytest.raises(
            LabError,
            match=rf"(?s)the origin b2 did not come up on 127.0.0.1:{address.port}: it ended: .*cannot listen",
        ):
            await lab.start()
    finally:
        server.close()
    assert [] == processes_of(run)


async def test_a_flooded_log_is_cut_and_said(run: RunDir, events, monkeypatch):
    """An endless fault must not fill the disk."""
    monkeypatch.setattr(local, "_TEND_PERIOD_S", 0.01)
    lab = LocalLab(run, plan(), on_event=lambda name, data: events.append((name, data)))
    await lab.start()
    try:
        log = run.lab / "proxy" / "error.log"
        with log.open("ab") as file:
            file.write(b"x" * (9 * 1024 * 1024))
        await until(lambda: bool(events))
        assert (await lab.apply_generation(2)).ok
        assert log.stat().st_size < 100_000
    finally:
        await lab.stop()

    assert "proxy.log_trimmed" == events[0][0]


async def test_how_a_worker_ended_is_in_the_proxys_log(lab: LocalLab):
    """The master replaces it at once; who was there is told by identity."""
    worker = next(m for m in (await lab.vitals(0.0))[0].members if m.role == "worker")
    os.kill(worker.pid, signal.SIGSEGV)
    async with asyncio.timeout(30):
        while worker.pid not in (ends := await lab.worker_ends()):
            await asyncio.sleep(0.01)

    assert ends[worker.pid].crashed
    assert ends[worker.pid].words.startswith("exited on signal 11")


async def test_a_proxy_whose_log_says_nothing_of_workers_is_not_asked(lab: LocalLab, monkeypatch):
    """There is nothing to read."""
    monkeypatch.setattr(lab._proxy, "_adapter", adapter("haproxy"))
    assert {} == await lab.worker_ends()
