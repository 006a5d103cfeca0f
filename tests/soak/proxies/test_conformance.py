"""What every adapter must pass: the real proxy in the real lab, from start to stop. A new file in the package is asked, too."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import pytest

from certs.install import serial_of
from chaos.model import FaultRecord, Source
from chaos.target import TargetError
from soak.errors import LabError
from soak.lab.local import LocalLab
from soak.lab.prober import ProbeError
from soak.lab.process import row_of
from soak.lab.sweep import processes_of
from soak.load.traffic import cache_body, pattern
from soak.proxies.base import (
    Capability,
    HasMetrics,
    ProxyAdapter,
    ReloadKind,
    reload_kinds_of,
)
from soak.proxies.catalog import adapters
from soak.rundir import RunDir
from soak.workerwatch import WorkerWatch, told_of
from tests.soak.lab.client import (
    Got,
    Socket,
    close,
    connect,
    connect_pipe,
    fetch,
    h2_body,
    parse,
    request_text,
)
from tests.soak.lab.test_local import ask

from .conftest import StartLab, adapter_named, binary_of
from .counting import counted, page_of

pytestmark = pytest.mark.xdist_group("each")  # nothing is shared: as many at once as there are workers
TEXT = 1
UNMARKED_UPGRADES = {
    "rocky": "it lets nobody see the origin's answer to an upgrade",
    "traefik": "it hands the origin's 101 on as it is, past its header middleware",
    "varnish": "a websocket is piped: the origin's 101 passes as the bytes that it is",
}
"""Proxies that cannot put the generation on the answer that opens a websocket, and why."""
ENDS_WITH_A_WORKER = {"haproxy": "its master ends when a worker fails, and that is the death of the proxy"}
"""Proxies that replace no worker."""
CUT_UPGRADES = {"node": "pm2 replaces two workers one after the other and kills what is left of the old one"}
"""Proxies that have cut websockets by the time at which all of the new generation serves, and why."""


@pytest.fixture(params=sorted(adapters()))
def adapter(request: pytest.FixtureRequest) -> ProxyAdapter:
    """Each adapter whose binary is here."""
    found = adapter_named(request.param)
    if Capability.MARKER not in found.capabilities:
        pytest.skip(f"{found.name} reads no HTTP: a test file of its own holds it to what it can")
    binary_of(found)
    return found


def needs(adapter: ProxyAdapter, capability: Capability) -> None:
    """Skip what a proxy does not claim: that is no gap in the machine."""
    if capability not in adapter.capabilities:
        pytest.skip(f"{adapter.name} does not declare {capability}")


async def sees(lab: LocalLab, generation: int, serial: str) -> None:
    """Wait until fresh clients see this generation and certificate, several in a row: old workers may still accept for a moment."""
    seen, in_a_row = None, 0
    try:
        async with asyncio.timeout(30):
            while in_a_row < 5:
                with suppress(ProbeError):
                    seen = (await ask(lab))[:2]
                in_a_row = in_a_row + 1 if seen == (serial, str(generation)) else 0
    except TimeoutError:
        pytest.fail(f"generation {generation} with {serial} was not seen, but {seen}")


async def statuses(lab: LocalLab, count: int) -> Counter[tuple[int, str]]:
    """Ask on fresh connections; returns how often each status came from each origin."""
    got = [await fetch(lab, "/bytes/10") for _ in range(count)]
    return Counter((one.status, one.headers.get("x-soak-origin", "")) for one in got)


def is_marked(got: Got, generation: int) -> bool:
    """Whether an answer names this generation, once."""
    return str(generation) == got.headers.get("x-soak-generation")


async def test_every_shape_is_served_with_the_right_body_and_the_generation(
    adapter: ProxyAdapter, started: StartLab
):
    """Plain and TLS, one backend and all, large, echoed, dripped, cacheable, and errors of the origin."""
    lab = await started(adapter.name)
    paths = {
        "/bytes/1024": (200, pattern(1024)),
        "/bytes/1048576": (200, pattern(1_048_576)),
        "/single/bytes/100": (200, pattern(100)),
        "/delay/100/bytes/10": (200, pattern(10)),
        "/cache/k/bytes/300?ttl=1": (200, cache_body("k", "", 300)),
        "/status/404": (404, b"404 Not Found\n"),
    }
    for tls in (False, True):
        for path, expected in paths.items():
            got = await fetch(lab, path, tls=tls, X_Soak_Id="c1")
            assert expected == (got.status, got.body), path
            assert is_marked(got, 1), path
            assert ("x-soak-id" in got.headers) is ("/cache/" not in path), path
        got = await fetch(lab, "/echo", tls=tls, method="POST", body=b"x" * 4096, X_Soak_Id=f"p{tls}")
        assert (200, b"x" * 4096) == (got.status, got.body)
        assert "x-soak-duplicate" not in got.headers
    balanced = await statuses(lab, 12)
    assert {(200, name) for name in lab.backend_names()} == set(balanced)
    single = {(await fetch(lab, "/single/bytes/10")).headers["x-soak-origin"] for _ in range(6)}
    assert {"b1"} == single


async def test_a_drip_passes_as_it_leaves_the_origin(adapter: ProxyAdapter, started: StartLab):
    """The head comes at once and the body in pieces, not one lump at its end."""
    lab = await started(adapter.name, backends=1)
    reader, writer = await connect(lab, tls=True)
    writer.write(b"GET /drip/3000/bytes/4000 HTTP/1.1\r\nHost: soak.test\r\n\r\n")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await reader.readuntil(b"\r\n\r\n")
    headed = loop.time()
    body, pieces = b"", 0
    while len(body) < 4000:
        body += await reader.read(65_536)
        pieces += 1
    ended = loop.time()
    await close(writer)

    assert pattern(4000) == body
    assert ended - began > 2.9
    assert ended - headed > 1
    assert pieces >= 3


async def test_connections_to_backends_are_kept(adapter: ProxyAdapter, started: StartLab):
    """Sixty requests on fresh connections do not leave sixty connections at the origin."""
    lab = await started(adapter.name, backends=1)
    assert {(200, "b1"): 60} == await statuses(lab, 60)

    assert 1 <= (await lab.origin_stats("b1"))["connections"] <= 16


async def test_h2_is_offered_and_answers(adapter: ProxyAdapter, started: StartLab):
    """By ALPN, with the known bytes."""
    needs(adapter, Capability.H2)
    lab = await started(adapter.name, backends=1)

    async with asyncio.timeout(30):
        assert pattern(1024) == await h2_body(lab, "/bytes/1024")


async def test_a_websocket_echoes_and_is_still_there_after_a_reload(adapter: ProxyAdapter, started: StartLab):
    """Plain and TLS; the 101 carries the generation."""
    needs(adapter, Capability.WEBSOCKET)
    lab = await started(adapter.name, backends=1)
    async with Socket(lab) as plain, Socket(lab, tls=True) as secure:
        for socket in (plain, secure):
            marked = None if adapter.name in UNMARKED_UPGRADES else "1"
            assert (101, marked) == (socket.answer.status, socket.answer.headers.get("x-soak-generation"))
            assert (0x81, b"hello") == await socket.echo(TEXT, b"hello")
        assert (await lab.apply_generation(2)).ok
        await sees(lab, 2, lab.serial())
        for socket in () if adapter.name in CUT_UPGRADES else (plain, secure):
            assert (0x81, b"still here") == await socket.echo(TEXT, b"still here")


async def test_routes_answer_by_their_names_also_after_a_reload(adapter: ProxyAdapter, started: StartLab):
    """A thousand hosts with a name each, plain and over TLS; the site itself is no route."""
    lab = await started(adapter.name, backends=1, routes=1000)
    for generation in (1, 2):
        for tls, name in ((False, "r1"), (True, "r500"), (True, "r1000")):
            got = await fetch(lab, "/bytes/10", tls=tls, host=f"{name}.soak.test")
            assert (200, pattern(10), name) == (got.status, got.body, got.headers.get("x-soak-route"))
            assert is_marked(got, generation)
        assert "x-soak-route" not in (await fetch(lab, "/bytes/10")).headers
        if generation == 1:
            assert (await lab.apply_generation(2)).ok
            await sees(lab, 2, lab.serial())


async def test_reloads_and_rotations_are_seen_and_a_broken_file_is_refused(
    adapter: ProxyAdapter, started: StartLab, run: RunDir
):
    """The marker for each reload, the serial for each rotation; after a refusal the next good one is still taken."""
    lab = await started(adapter.name)
    first = lab.serial()
    assert (await lab.apply_generation(2)).ok
    await sees(lab, 2, first)
    refused = await lab.apply_broken_config()
    assert refused.ok, refused.reason
    await sees(lab, 2, first)
    assert (await lab.apply_generation(3)).ok
    await sees(lab, 3, first)
    serials = {first}
    for generation in (4, 5):
        done = await lab.install_certificate(generation)
        await sees(lab, generation, done["serial"])
        serials.add(done["serial"])
        assert done["serial"] == serial_of((run.certs / "site.pem").read_bytes())
    assert 3 == len(serials)
    assert (await lab.restore_proxy()).ok
    await sees(lab, lab.generation(), lab.serial())


async def test_what_is_in_extra_wrongly_is_refused_with_words(adapter: ProxyAdapter, started: StartLab):
    """Whoever writes nonsense into ``proxy.extra`` is told by the proxy what or where, and nothing is left running."""
    with pytest.raises(LabError, match=r"no_such|line \d+"):
        await started(adapter.name, extra="no_such_thing on", start_timeout=4)


@pytest.mark.parametrize("how", ["stop", "pause"])
async def test_a_backend_goes_and_comes_back_without_help(adapter: ProxyAdapter, started: StartLab, how: str):
    """Nobody sees it go for long, a reload meanwhile does not send traffic to it, and it is used again once it answers."""
    lab = await started(adapter.name)
    status = await lab.backend_status("b1")
    if how == "stop":
        await lab.backend_stop("b1", status.identity, force=False)
    else:
        await lab.backend_pause("b1", status.identity)
    await asyncio.sleep(2)  # what it may take to notice
    await lab.apply_generation(2)
    await sees(lab, 2, lab.serial())
    async with asyncio.timeout(30):  # a new configuration may have to find out for itself that one hangs
        while {(200, "b2"), (200, "b3")} != set(await statuses(lab, 12)):
            assert how == "pause", "a backend that refuses is passed over by every request"
    if how == "stop":
        await lab.backend_start("b1")
    else:
        await lab.backend_resume("b1", status.identity)
    async with asyncio.timeout(30):
        while (200, "b1") not in await statuses(lab, 6):
            await asyncio.sleep(0.05)


SLOW_PIPES = {"traefik": "it tries no second server when one refuses, until a check has seen that one down"}
"""Proxies whose byte pipe loses connections to a dead backend for a moment, and why."""


def pipe_of(lab: LocalLab) -> None:
    """Skip a binary that was built without a byte pipe: the adapter says so of it."""
    if not lab.proxy_address.tcp_port:
        pytest.skip(f"{lab.proxy_binary} was built without a byte pipe")


async def piped(lab: LocalLab, count: int) -> Counter[str]:
    """Ask on fresh connections through the byte pipe; returns how often each origin answered, "" for a lost connection."""
    seen: Counter[str] = Counter()
    for _ in range(count):
        try:
            got = await fetch(lab, "/bytes/10", pipe=True)
        except OSError:  # ssl.SSLError is one
            seen[""] += 1
        else:
            assert (200, pattern(10)) == (got.status, got.body)
            seen[got.headers["x-soak-origin"]] += 1
    return seen


async def test_a_byte_pipe_ends_at_the_origins_own_tls(adapter: ProxyAdapter, started: StartLab, run: RunDir):
    """Their certificate, their bytes, no word of the proxy's; one that is open outlives a reload, a rotation is nothing to it."""
    needs(adapter, Capability.TCP)
    lab = await started(adapter.name)
    pipe_of(lab)
    own = serial_of((run.certs / "origin.pem").read_bytes())
    reader, writer = await connect_pipe(lab)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    assert own == serial_of(shown) != lab.serial()
    long = await fetch(lab, "/bytes/1048576", pipe=True, X_Soak_Id="c1")
    assert (200, pattern(1_048_576), "c1") == (long.status, long.body, long.headers["x-soak-id"])
    assert "x-soak-generation" not in long.headers
    echo = await fetch(lab, "/echo", pipe=True, method="POST", body=b"x" * 4096)
    assert (200, b"x" * 4096) == (echo.status, echo.body)
    assert set(lab.backend_names()) == set(await piped(lab, 12))

    assert (await lab.apply_generation(2)).ok
    await sees(lab, 2, lab.serial())
    writer.write(request_text("GET", "/bytes/10", "soak.test", {"Connection": "close"}, b""))
    assert pattern(10) == parse(await reader.read()).body
    await close(writer)
    done = await lab.install_certificate(3)
    await sees(lab, 3, done["serial"])
    _, writer = await connect_pipe(lab)
    assert own == serial_of(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
    await close(writer)


async def test_a_byte_pipe_passes_over_a_backend_that_refuses(adapter: ProxyAdapter, started: StartLab):
    """At the connect, so nobody notices; and it is used again once it is back."""
    needs(adapter, Capability.TCP)
    lab = await started(adapter.name)
    pipe_of(lab)
    await lab.backend_stop("b1", (await lab.backend_status("b1")).identity, force=True)
    async with asyncio.timeout(30):
        while {"b2", "b3"} != set(await piped(lab, 12)):
            assert adapter.name in SLOW_PIPES, "a backend that refuses is passed over by every connection"
    await lab.backend_start("b1")
    async with asyncio.timeout(30):
        while "b1" not in await piped(lab, 6):
            await asyncio.sleep(0.05)


async def test_every_kind_of_reload_that_it_knows_is_seen(adapter: ProxyAdapter, started: StartLab):
    """By the generation; one that spares connections answers on an open one. Another kind is refused and touches nothing."""
    needs(adapter, Capability.RELOAD)
    lab = await started(adapter.name, backends=1)
    kinds = reload_kinds_of(adapter)
    for generation, kind in enumerate(kinds, 2):
        reader, writer = await connect(lab)
        evidence = await lab.apply_generation(generation, kind=kind)
        assert (True, kind) == (evidence.ok, evidence.detail["kind"])
        await sees(lab, generation, lab.serial())
        if kind is ReloadKind.ROUTING:
            writer.write(request_text("GET", "/bytes/10", "soak.test", {"Connection": "close"}, b""))
            assert is_marked(parse(await reader.read()), generation)
            assert 0 == (await lab.vitals(1.0))[0].old_processes
        await close(writer)
    refused = await lab.apply_generation(9, kind="sideways")
    assert (False, f"{adapter.name} knows no reload of kind 'sideways'; it knows {', '.join(kinds)}") == (
        refused.ok,
        refused.reason,
    )
    await sees(lab, 1 + len(kinds), lab.serial())
    assert {f"reload:{kind}" for kind in kinds} == {
        f"reload:{kind}" for kind in ReloadKind if lab.supports(f"reload:{kind}")
    }


async def test_its_own_metrics_count_requests(adapter: ProxyAdapter, started: StartLab):
    """The endpoint answers within its deadline, in its format, and counts what went through."""
    needs(adapter, Capability.METRICS)
    lab = await started(adapter.name, backends=1)
    if not lab.proxy_address.metrics_url:
        pytest.skip(f"{lab.proxy_binary} was built without metrics")
    assert isinstance(adapter, HasMetrics)
    before = counted(await page_of(lab), adapter.metrics_format)
    for _ in range(20):
        assert 200 == (await fetch(lab, "/bytes/10")).status
    after = counted(await page_of(lab), adapter.metrics_format)
    assert any(after[name] - before.get(name, 0) >= 20 for name in after), after


async def test_errors_of_the_proxy_itself_carry_the_generation(adapter: ProxyAdapter, started: StartLab):
    """With no backend left the answer is 502, 503 or 504, and marked."""
    lab = await started(adapter.name, backends=1)
    await lab.backend_stop("b1", (await lab.backend_status("b1")).identity, force=True)
    got = await fetch(lab, "/bytes/10")

    assert got.status in (502, 503, 504)
    assert is_marked(got, 1)


async def test_its_processes_are_known_and_nothing_is_left(
    adapter: ProxyAdapter, started: StartLab, run: RunDir
):
    """A version, roles for the census, a death that is told, and an empty process table after the end."""
    lab = await started(adapter.name)
    assert re.fullmatch(r"\d+\.\d+\.\d+", lab.proxy_version)
    vital = (await lab.vitals(1.0))[0]
    roles = vital.detail["roles"]
    assert 1 == roles["master"] if "master" in roles else roles == {"other": vital.processes}
    assert vital.rss_bytes > 1_000_000
    assert 0 == vital.old_processes
    identity = await lab.proxy_identity()
    os.kill(identity["pid"], signal.SIGKILL)
    while (row := row_of(identity["pid"])) is not None and row.alive:
        await asyncio.sleep(0.01)
    evidence = await lab.apply_generation(2)
    assert (False, True) == (evidence.ok, evidence.reason.startswith("the proxy has ended"))
    with pytest.raises(TargetError, match="the proxy has ended"):
        await lab.proxy_identity()
    assert (await lab.stop()).ok
    assert [] == processes_of(run)


async def test_a_worker_that_is_killed_is_missed_and_those_that_a_reload_replaces_are_not(
    adapter: ProxyAdapter, started: StartLab
):
    """By the roles that the adapter tells, in looks five seconds apart; nobody but the killed one is missed."""
    lab = await started(adapter.name, backends=1)
    watch = WorkerWatch(60.0)
    reload = FaultRecord(1, "reload", "proxy", Source.SCHEDULE, 0.0, injected_s=0.0)

    async def look(at_s: float, *faults: FaultRecord) -> Sequence[int]:
        missing = watch.look((await lab.vitals(at_s))[0], faults)
        told = None if missing is None else told_of(missing, await lab.worker_ends())
        return [] if told is None else told["pids"]

    assert [] == await look(0)
    if not watch.known:
        pytest.skip(f"{adapter.name} has no workers")
    if adapter.name in ENDS_WITH_A_WORKER:
        pytest.skip(f"{adapter.name}: {ENDS_WITH_A_WORKER[adapter.name]}")
    assert (await lab.apply_generation(2)).ok
    await sees(lab, 2, lab.serial())
    assert [[], [], []] == [await look(5, reload), await look(10), await look(15)]
    workers = [member for member in (await lab.vitals(15.0))[0].members if member.role == "worker"]
    worker = max(workers, key=lambda member: member.started)
    os.kill(worker.pid, signal.SIGKILL)
    while (row := row_of(worker.pid)) is not None and row.alive and row.started == worker.started:
        await asyncio.sleep(0.01)

    assert [worker.pid] == await look(20)
    assert [] == await look(25)


def test_what_is_missing_says_how_to_get_it(adapter: ProxyAdapter, tmp_path):
    """A configured binary that is not there, and one that is no such proxy."""
    with pytest.raises(LabError, match=r"proxy\.binary '.*/none' is not an executable file; install it"):
        adapter.find_binary(str(tmp_path / "none"))
    fake = tmp_path / "fake"
    fake.write_text("#!/bin/sh\necho something else\n")
    fake.chmod(0o755)
    with pytest.raises(LabError, match="something else"):
        adapter.version(fake)
