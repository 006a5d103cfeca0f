"""Every traffic shape through the real nginx, judged by clients and by what the origins counted."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest

from chaos.target import TargetError
from soak.lab.local import LocalLab
from soak.lab.sweep import processes_of, release
from soak.load.traffic import cache_body, pattern
from soak.rundir import RunDir

from .client import ACCEPT, Socket, close, connect, fetch, masked, read_frame
from .conftest import plan

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


async def counted(lab: LocalLab, *path: str) -> int:
    """Add up a counter over all origins: ``counted(lab, "cache", "etag", "full")``."""
    total = 0
    for name in lab.backend_names():
        value: Any = await lab.origin_stats(name)
        for key in path:
            value = value[key]
        total += value
    return total


# one backend, large bodies


async def test_single_goes_to_one_backend_and_the_rest_to_all(lab: LocalLab):
    """The prefix is taken off."""
    single = [await fetch(lab, "/single/bytes/1024") for _ in range(6)]
    balanced = [await fetch(lab, "/bytes/1024") for _ in range(6)]

    assert {(200, "b1", pattern(1024))} == {
        (got.status, got.headers["x-soak-origin"], got.body) for got in single
    }
    assert {"b1", "b2"} == {got.headers["x-soak-origin"] for got in balanced}
    assert "1" == single[0].headers["x-soak-generation"]


@pytest.mark.parametrize("n", [102_400, 1_048_576])
async def test_large_bodies_arrive_whole_and_touch_no_disk(lab: LocalLab, run: RunDir, n: int):
    """Also at a slow reader: no temporary file is ever made."""
    reader, writer = await connect(lab, tls=True)
    writer.write(f"GET /bytes/{n} HTTP/1.1\r\nHost: soak.test\r\nConnection: close\r\n\r\n".encode())
    await asyncio.sleep(0.3)
    answer = await reader.read()
    await close(writer)

    assert answer.endswith(b"\r\n\r\n" + pattern(n))
    assert [] == [path for path in (run.lab / "proxy" / "proxy").rglob("*") if path.is_file()]
    assert "temporary file" not in (run.lab / "proxy" / "error.log").read_text()


# streams


async def test_a_drip_passes_the_proxy_as_it_leaves_the_origin(lab: LocalLab):
    """Pieces over all three seconds, not one lump at their end; length known before."""
    reader, writer = await connect(lab, tls=True)
    began = monotonic_ns()
    writer.write(b"GET /drip/3000/bytes/4000 HTTP/1.1\r\nHost: soak.test\r\nX-Soak-Id: d1\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    first_s = (monotonic_ns() - began) / 1e9
    pieces: list[bytes] = []
    while sum(map(len, pieces)) < 4000:
        pieces.append(await reader.read(65_536))
    whole_s = (monotonic_ns() - began) / 1e9
    await close(writer)

    assert b"Content-Length: 4000\r\n" in head
    assert b"X-Soak-Id: d1\r\n" in head
    assert pattern(4000) == b"".join(pieces)
    assert whole_s > 2.9
    assert whole_s - first_s > 1
    assert len(pieces) >= 3
    assert 1 == await counted(lab, "drips")


async def test_many_drips_at_once_end_together_and_one_that_is_cut_is_forgotten(lab: LocalLab):
    """300 streams of a second take far less than one after the other; the origins keep no connection of the cut one."""
    reader, writer = await connect(lab)
    writer.write(b"GET /drip/60000/bytes/100000 HTTP/1.1\r\nHost: soak.test\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    began = monotonic_ns()
    got = await asyncio.gather(*(fetch(lab, "/drip/1000/bytes/1000") for _ in range(300)))
    took_s = (monotonic_ns() - began) / 1e9
    assert 1 <= await counted(lab, "connections")
    await close(writer)

    assert {(200, pattern(1000))} == {(one.status, one.body) for one in got}
    assert 0.95 < took_s < 30
    open_streams = await counted(lab, "drips")
    assert 301 == open_streams


# websockets


@pytest.mark.parametrize("tls", [False, True])
async def test_a_websocket_echoes_through_the_proxy(lab: LocalLab, tls: bool):
    """The 101 carries both identities, the generation and the proof; messages of all kinds and lengths come back."""
    async with Socket(lab, tls=tls) as socket:
        answer = socket.answer
        assert (101, ACCEPT) == (answer.status, answer.headers["sec-websocket-accept"])
        assert ("ws-1", "1") == (answer.headers["x-soak-id"], answer.headers["x-soak-generation"])
        assert answer.headers["x-soak-origin"] in lab.backend_names()
        assert (0x81, b"hello") == await socket.echo(TEXT, b"hello")
        for n in (0, 125, 126, 70_000, 600_000):
            assert (0x82, pattern(n)) == await socket.echo(BINARY, pattern(n))
        assert (0x8A, b"ping") == await socket.echo(PING, b"ping")
        socket.writer.write(masked(TEXT, b"in ", final=False) + masked(0, b"pieces"))
        assert (0x81, b"in pieces") == await read_frame(socket.reader)
        assert (1, 1) == (await counted(lab, "websockets"), await counted(lab, "websockets_open"))
        assert (0x88, b"\x03\xe8") == await socket.echo(CLOSE, b"\x03\xe8bye")
        assert b"" == await socket.reader.read()
    assert 7 == await counted(lab, "messages")
    async with asyncio.timeout(30):
        while await counted(lab, "websockets_open"):
            await asyncio.sleep(0.01)


async def test_a_websocket_lives_across_a_reload(lab: LocalLab):
    """The old worker keeps it while new connections meet the new generation."""
    async with Socket(lab, tls=True) as socket:
        assert (await lab.apply_generation(2)).ok
        async with asyncio.timeout(30):
            generation = "1"
            while generation != "2":  # an old worker may accept for a moment more
                async with Socket(lab) as other:
                    generation = other.answer.headers["x-soak-generation"]
        assert (0x81, b"still here") == await socket.echo(TEXT, b"still here")


async def test_a_client_that_breaks_the_rules_is_told_and_closed(lab: LocalLab):
    """A frame without a mask: close code 1002, then the end of the connection."""
    async with Socket(lab) as socket:
        socket.writer.write(b"\x81\x02hi")
        first, payload = await read_frame(socket.reader)
        assert (0x88, b"\x03\xea") == (first, payload[:2])
        assert b"" == await socket.reader.read()


# caches


async def test_a_hit_a_miss_and_an_expiry_are_counted_at_the_origin(lab: LocalLab):
    """Ten requests for a key cost one answer; when its time is over, one more."""
    first = [await fetch(lab, "/cache/k1/bytes/1000?ttl=60", X_Soak_Id=f"{i}") for i in range(10)]
    assert 1 == await counted(lab, "cache", "plain", "full")
    assert ["MISS", *["HIT"] * 9] == [got.cache for got in first]
    assert {cache_body("k1", "", 1000)} == {got.body for got in first}
    assert [] == [got for got in first if "x-soak-id" in got.headers]
    assert {"1"} == {got.headers["x-soak-generation"] for got in first}
    await fetch(lab, "/cache/k2/bytes/1000?ttl=1")
    assert 2 == await counted(lab, "cache", "plain", "full")
    await asyncio.sleep(2.1)
    late = await fetch(lab, "/cache/k2/bytes/1000?ttl=1", tls=True)
    assert ("EXPIRED", cache_body("k2", "", 1000)) == (late.cache, late.body)
    assert 3 == await counted(lab, "cache", "plain", "full")


async def test_an_expired_answer_is_revalidated(lab: LocalLab):
    """One full answer, then a 304 each time it has expired; the client gets the body every time."""
    path = "/cache/k1/bytes/500?etag&ttl=1"
    await fetch(lab, path)
    await asyncio.sleep(2.1)
    again = [await fetch(lab, path) for _ in range(3)]

    caches = Counter(got.cache for got in again)
    assert ("REVALIDATED", set()) == (again[0].cache, set(caches) - {"REVALIDATED", "HIT"})
    assert {(200, cache_body("k1", "", 500))} == {(got.status, got.body) for got in again}
    assert (1, caches["REVALIDATED"]) == (
        await counted(lab, "cache", "etag", "full"),
        await counted(lab, "cache", "etag", "not_modified"),
    )
    known = await fetch(lab, path, If_None_Match=again[0].headers["etag"])
    assert (304, b"") == (known.status, known.body)


async def test_variants_are_kept_apart(lab: LocalLab):
    """Each variant costs one answer and every client gets its own."""
    got = [
        (v, await fetch(lab, "/cache/k/bytes/300?vary", X_Soak_Variant=v)) for v in ("a", "b", "a", "b", "")
    ]

    assert [] == [v for v, answer in got if cache_body("k", v, 300) != answer.body]
    assert 3 == await counted(lab, "cache", "vary", "full")


async def test_what_must_not_be_stored_is_not(lab: LocalLab):
    """Every request reaches an origin, and requests that come together do not wait for each other for long."""
    await asyncio.gather(*(fetch(lab, "/cache/k/bytes/300?no-store") for _ in range(10)))

    assert 10 == await counted(lab, "cache", "no-store", "full")


async def test_requests_that_come_together_cost_one_answer(lab: LocalLab):
    """The lock of the cache."""
    got = await asyncio.gather(*(fetch(lab, "/cache/together/bytes/300") for _ in range(20)))

    assert {cache_body("together", "", 300)} == {one.body for one in got}
    assert 1 == await counted(lab, "cache", "plain", "full")


async def test_the_cache_survives_a_reload(lab: LocalLab):
    """A new generation serves what the old one stored."""
    await fetch(lab, "/cache/k/bytes/300")
    assert (await lab.apply_generation(2)).ok
    async with asyncio.timeout(30):
        while (got := await fetch(lab, "/cache/k/bytes/300")).headers["x-soak-generation"] != "2":
            await asyncio.sleep(0.01)

    assert "HIT" == got.cache
    assert 1 == await counted(lab, "cache", "plain", "full")


# at most once


async def test_an_id_that_arrives_twice_is_counted_whoever_gets_it(lab: LocalLab):
    """Once at b1, then at whichever comes next: every further delivery is a duplicate, and the answer says so."""
    first = await fetch(lab, "/single/echo", method="POST", body=b"x" * 4096, X_Soak_Id="p1")
    assert (200, b"x" * 4096) == (first.status, first.body)
    assert "x-soak-duplicate" not in first.headers
    more = [await fetch(lab, "/echo", method="POST", body=b"x" * 4096, X_Soak_Id="p1") for _ in range(4)]
    other = await fetch(lab, "/echo", method="POST", body=b"y", X_Soak_Id="p2")

    assert {"1"} == {got.headers["x-soak-duplicate"] for got in more}
    assert {"b1", "b2"} == {got.headers["x-soak-origin"] for got in more}
    assert "x-soak-duplicate" not in other.headers
    assert (6, 4) == (await counted(lab, "non_idempotent"), await counted(lab, "duplicates"))
    assert [0, 0] != [(await lab.origin_stats(name))["duplicates"] for name in ("b1", "b2")]
    repeated = await fetch(lab, "/bytes/1", X_Soak_Id="p1")
    assert "x-soak-duplicate" not in repeated.headers


async def test_counts_and_deliveries_outlive_an_origin(lab: LocalLab):
    """It is asked for while the origin is down and while it hangs, and the count goes on after the restart."""
    await fetch(lab, "/single/echo", method="POST", body=b"x", X_Soak_Id="p1")
    status = await lab.backend_status("b1")
    await lab.backend_pause("b1", status.identity)
    assert (1, 0) == await _seen(lab)
    await lab.backend_stop("b1", status.identity, force=True)
    assert (1, 0) == await _seen(lab)
    assert 0 == (await lab.origin_stats("b1"))["connections"]
    await lab.backend_start("b1")
    await fetch(lab, "/single/echo", method="POST", body=b"x", X_Soak_Id="p1")
    assert (2, 1) == await _seen(lab)
    with pytest.raises(TargetError, match="there is no backend 'b9'"):
        await lab.origin_stats("b9")


async def _seen(lab: LocalLab) -> tuple[int, int]:
    stats = await lab.origin_stats("b1")
    return stats["non_idempotent"], stats["duplicates"]


# HTTP/2


def h2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


async def test_http_2_is_offered_and_answers(lab: LocalLab):
    """ALPN, preface, settings, one request by hand (RFC 9113, RFC 7541 without Huffman), the known bytes."""
    reader, writer = await connect(lab, tls=True, alpn=["h2", "http/1.1"])
    assert "h2" == writer.get_extra_info("ssl_object").selected_alpn_protocol()

    def literal(index: bytes, *texts: bytes) -> bytes:
        return index + b"".join(bytes([len(text)]) + text for text in texts)

    fields = b"\x82\x87" + literal(b"\x04", b"/bytes/1024") + literal(b"\x01", b"soak.test")
    fields += literal(b"\x00", b"x-soak-id", b"h2-1")
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2_frame(4, 0, 0, b"") + h2_frame(1, 5, 1, fields))
    header, body, ended = b"", b"", False
    async with asyncio.timeout(30):
        while not ended:
            raw = await reader.readexactly(9)
            length, kind, flags = int.from_bytes(raw[:3], "big"), raw[3], raw[4]
            payload = await reader.readexactly(length)
            if int.from_bytes(raw[5:], "big") == 1:
                header += payload if kind == 1 else b""
                body += payload if kind == 0 else b""
                ended = bool(flags & 1)
    await close(writer)

    assert 0x88 == header[0], "the static table's :status 200"
    assert pattern(1024) == body


# routes


@pytest.fixture
async def routed(run: RunDir) -> AsyncIterator[LocalLab]:
    """A lab with 1,000 routes."""
    subject = LocalLab(run, plan(), on_event=_ignore, routes=1000)
    await subject.start()
    try:
        yield subject
    finally:
        await subject.stop()
        await release(run)
    assert [] == processes_of(run)


def _ignore(_name: str, _data: Mapping[str, Any]) -> None:
    """Take an event and do nothing."""


async def test_a_thousand_routes_answer_by_their_names_also_after_a_reload(routed: LocalLab, run: RunDir):
    """Each over plain HTTP on kept connections, some over TLS with their names verified, and the site as before."""
    names = [f"r{i}" for i in range(1, 1001)]

    async def routes(generation: str) -> None:
        reader, writer = await connect(routed)
        try:
            for name in names:
                head = f"GET /bytes/10 HTTP/1.1\r\nHost: {name}.soak.test\r\nX-Soak-Id: {name}\r\n\r\n"
                writer.write(head.encode())
                answer = await reader.readuntil(pattern(10))
                for line in (
                    f"X-Soak-Route: {name}",
                    f"X-Soak-Id: {name}",
                    f"X-Soak-Generation: {generation}",
                ):
                    assert f"\r\n{line}\r\n".encode() in answer
        finally:
            await close(writer)

    await routes("1")
    for name in (names[0], names[499], names[999]):
        got = await fetch(routed, "/bytes/10", tls=True, host=f"{name}.soak.test")
        assert (200, name) == (got.status, got.headers["x-soak-route"])
    assert "x-soak-route" not in (await fetch(routed, "/bytes/10")).headers
    processes = (await routed.vitals(0))[0].processes
    assert (await routed.apply_generation(2)).ok
    async with asyncio.timeout(30):
        while (await fetch(routed, "/bytes/1")).headers["x-soak-generation"] != "2":
            await asyncio.sleep(0.01)
    # Until they are gone, old workers may take a fresh connection; for a moment they are not even called old.
    async with asyncio.timeout(30):
        while (await routed.vitals(0))[0].processes != processes:
            await asyncio.sleep(0.05)
    await routes("2")
    assert (await routed.apply_broken_config()).ok
    assert Path(run.lab / "proxy" / "routes.conf").read_text().count("server {") == 1000
