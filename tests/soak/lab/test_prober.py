"""The prober against real TLS servers, good and bad."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from certs.authority import Authority, Pair
from certs.install import serial_of
from soak.clock import NS, RunClock, SystemClock
from soak.lab import prober as prober_module
from soak.lab.prober import Probe, ProbeError, Prober, trust
from soak.lab.topology import ProxyAddress, free_ports
from soak.load.traffic import pattern
from soak.model import Sighting, SightKind, SightVia
from soak.tasks import cancel, spawn

from .conftest import until

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "certs")


def answering(
    *, status: str = "200 OK", body: bytes = pattern(64), generation: str = "3", wrong_id: bool = False
) -> Serve:
    """Return a server that answers one request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        sent = next(line for line in request.split(b"\r\n") if line.startswith(b"X-Soak-Id"))
        echoed = b"X-Soak-Id: other" if wrong_id else sent
        marker = f"X-Soak-Generation: {generation}\r\n" if generation else ""
        writer.write(
            f"HTTP/1.1 {status}\r\nX-Soak-Origin: b1\r\n{marker}Content-Length: {len(body)}\r\n".encode()
            + echoed
            + b"\r\n\r\n"
            + body
        )
        await writer.drain()

    return serve


def raw(data: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()

    return serve


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


@asynccontextmanager
async def served(pair: Pair | None, serve: Serve, directory: Path) -> AsyncIterator[ProxyAddress]:
    """Serve on a free port; without a pair, no TLS."""
    context = None
    if pair is not None:
        (directory / "served.pem").write_bytes(pair.key_pem + pair.chain_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "served.pem")

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort() if serve is silence else writer.close()

    server = await asyncio.start_server(once, "127.0.0.1", 0, ssl=context)
    try:
        yield ProxyAddress("127.0.0.1", 0, server.sockets[0].getsockname()[1])
    finally:
        server.close()


class Seen:
    """What a prober reported."""

    def __init__(self) -> None:
        self.sightings: list[Sighting] = []
        self.failures: list[Mapping[str, Any]] = []

    def prober(self, address: ProxyAddress, authority: Authority) -> Prober:
        clock = RunClock(SystemClock(), SystemClock().monotonic_ns() - 100 * NS)
        return Prober(
            address, authority.ca_pem, "soak.test", clock, self.sightings.append, self.failures.append
        )


async def test_a_good_probe_sees_serial_and_generation(authority, tmp_path):
    """Both with the instant since run start, one sighting each."""
    pair, seen = authority.leaf("soak.test"), Seen()
    async with served(pair, answering(), tmp_path) as address:
        await seen.prober(address, authority).probe()

    serial, generation = seen.sightings
    assert (SightKind.SERIAL, serial_of(pair.chain_pem), SightVia.PROBE) == (
        serial.kind,
        serial.value,
        serial.via,
    )
    assert (SightKind.GENERATION, "3", 1) == (generation.kind, generation.value, generation.count)
    assert 100 <= serial.first_s == serial.last_s <= generation.first_s < 110
    assert [] == seen.failures


async def test_an_answer_without_a_marker_is_no_sighting_of_a_generation(authority, tmp_path):
    """Not every proxy can set one."""
    seen = Seen()
    async with served(authority.leaf("soak.test"), answering(generation=""), tmp_path) as address:
        await seen.prober(address, authority).probe()

    assert [SightKind.SERIAL] == [s.kind for s in seen.sightings]


@pytest.mark.parametrize(
    ("serve", "words"),
    [
        (answering(status="502 Bad Gateway"), "status 502 instead of 200"),
        (answering(body=b"x" * 64), "the body of 64 bytes is not the promised one of 64"),
        (answering(body=b""), "the body of 0 bytes is not the promised one"),
        (answering(wrong_id=True), "the answer carries the id 'other' instead of 'probe-"),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\nhalf"), "closed before the answer was whole"),
        (raw(b"nonsense\r\n\r\n"), "not HTTP"),
    ],
)
async def test_an_answer_that_breaks_its_promise_is_a_failure(authority, tmp_path, serve, words):
    """The handshake was still seen; the failure says what is wrong."""
    seen = Seen()
    async with served(authority.leaf("soak.test"), serve, tmp_path) as address:
        await seen.prober(address, authority).probe()

    (failure,) = seen.failures
    assert "answer" == failure["stage"]
    assert words in failure["reason"]
    assert 100 <= failure["at_s"] < 110
    assert [SightKind.SERIAL] == [s.kind for s in seen.sightings]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda a: a.expired("soak.test"), "certificate has expired"),
        (lambda a: a.wrong_host(), "Hostname mismatch"),
        (lambda a: a.other_ca("soak.test"), "issuer certificate|self.signed"),
    ],
    ids=["expired", "wrong host", "other CA"],
)
async def test_a_bad_certificate_is_a_failure_that_names_its_serial(authority, tmp_path, make, words):
    """What was served is evidence, although it cannot be trusted; it is no sighting."""
    pair, seen = make(authority), Seen()
    async with served(pair, answering(), tmp_path) as address:
        await seen.prober(address, authority).probe()

    (failure,) = seen.failures
    assert ("certificate", serial_of(pair.chain_pem)) == (failure["stage"], failure["serial"])
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(failure["reason"])
    assert [] == seen.sightings


async def test_nobody_there_is_a_failure_to_connect(authority):
    """With the address."""
    (port,) = free_ports(1)
    seen = Seen()
    await seen.prober(ProxyAddress("127.0.0.1", 0, port), authority).probe()

    assert ("connect", f"127.0.0.1:{port} refused the connection") == (
        seen.failures[0]["stage"],
        seen.failures[0]["reason"],
    )


async def test_a_server_without_tls_is_a_failed_handshake(authority, tmp_path):
    """Plain HTTP on the TLS port."""
    seen = Seen()
    async with served(None, raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"), tmp_path) as address:
        probe = Probe(address, "soak.test", trust(authority.ca_pem), connect_timeout_s=0.3)
        with pytest.raises(ProbeError, match=r"handshake: no TLS connection within 0\.3 s"):
            await probe.handshake()
    async with served(None, _garbage, tmp_path) as address:
        await seen.prober(address, authority).probe()
    assert "handshake" == seen.failures[0]["stage"]


async def _garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(10)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()


async def test_silence_after_the_handshake_is_bounded(authority, tmp_path):
    """The probe gives up by its own timeout."""
    async with served(authority.leaf("soak.test"), silence, tmp_path) as address:
        probe = Probe(address, "soak.test", trust(authority.ca_pem), answer_timeout_s=0.05)
        await probe.handshake()
        with pytest.raises(ProbeError, match=r"answer: no whole answer within 0\.05 s"):
            await probe.ask()
        probe.close()


async def test_asking_without_a_connection_is_said(authority):
    """The order of the two steps is checked."""
    probe = Probe(ProxyAddress("127.0.0.1", 0, 1), "soak.test", trust(authority.ca_pem))
    with pytest.raises(ProbeError, match="there is no connection"):
        await probe.ask()


async def test_it_probes_on_a_beat_and_faster_when_hurried(authority, tmp_path, monkeypatch):
    """A hurry wakes it at once from a long pause and shortens the beat while it lasts."""
    monkeypatch.setattr(prober_module, "_PERIOD_S", 30.0)
    monkeypatch.setattr(prober_module, "_HURRY_PERIOD_S", 0.01)
    seen = Seen()
    async with served(authority.leaf("soak.test"), answering(), tmp_path) as address:
        prober = seen.prober(address, authority)
        task = spawn(prober.run(), name="prober")
        try:
            await until(lambda: len(seen.sightings) == 2)
            await asyncio.sleep(0.1)
            assert 2 == len(seen.sightings)
            prober.hurry(60)
            await until(lambda: len(seen.sightings) >= 10)
        finally:
            await cancel(task)

    assert [] == seen.failures


async def test_each_probe_is_a_full_handshake(authority, tmp_path):
    """A resumed session would show the old certificate."""
    pair, context = authority.leaf("soak.test"), trust(authority.ca_pem)
    async with served(pair, answering(), tmp_path) as address:
        for _ in range(3):
            probe = Probe(address, "soak.test", context)
            assert serial_of(pair.chain_pem) == await probe.handshake()
            await probe.ask()
            probe.close()
