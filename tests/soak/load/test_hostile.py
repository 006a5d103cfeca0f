"""What the engine makes of hostile HTTP peers: one row a behaviour, real sockets, both identities in every row."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from typing import Any

import pytest

from soak.load.traffic import pattern
from soak.model import Outcome
from tests.soak.load.rig import (
    BODY,
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
    unhurried,
    well_behaved,
)

O = Outcome  # noqa: E741 -- the table is the point


async def resets_on_accept(peer: Peer) -> None:
    peer.reset()


async def closes_on_accept(peer: Peer) -> None:
    return


async def never_answers(peer: Peer) -> None:
    await peer.request()
    await peer.hang()


async def closes_without_an_answer(peer: Peer) -> None:
    await peer.request()


async def resets_without_an_answer(peer: Peer) -> None:
    await peer.request()
    peer.reset()


def answers(*parts: bytes, status: str = "200 OK", **how: Any) -> Behaviour:
    """Answer each request with these bytes, ``ID`` replaced."""

    async def behave(peer: Peer) -> None:
        while True:
            request_id = await peer.request()
            if not parts:
                await peer.send(answer(request_id, status=status, **how))
            for part in parts:
                await peer.send(part.replace(b"ID", request_id))

    return behave


def answers_once(*parts: bytes) -> Behaviour:
    """Answer the first request with these bytes, then close."""

    async def behave(peer: Peer) -> None:
        request_id = await peer.request()
        for part in parts:
            await peer.send(part.replace(b"ID", request_id))

    return behave


def floods(head: bytes, unit: bytes) -> Behaviour:
    """Answer with a beginning and then the same bytes without end."""

    async def behave(peer: Peer) -> None:
        await peer.send(head.replace(b"ID", await peer.request()))
        while True:
            await peer.send(unit * 1000)

    return behave


async def drips(peer: Peer) -> None:
    await peer.send(answer(await peer.request(), b"", length=16))
    while True:
        await asyncio.sleep(0.05)
        await peer.send(b"x")


async def answers_for_somebody_else(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.send(answer(b"0.0.ffffff"))


async def resets_after_the_answer(peer: Peer) -> None:
    await peer.send(answer(await peer.request()))
    await asyncio.sleep(0.005)
    peer.reset()


async def resets_behind_the_answer(peer: Peer) -> None:
    await peer.send(answer(await peer.request()))
    peer.reset()


async def half_closes_after_the_answer(peer: Peer) -> None:
    await peer.send(answer(await peer.request()))
    peer.writer.write_eof()
    await peer.reader.read()


async def half_closes_without_an_answer(peer: Peer) -> None:
    await peer.request()
    peer.writer.write_eof()
    await peer.reader.read()


async def answers_before_it_is_asked(peer: Peer) -> None:
    await peer.send(answer(b"x"))
    await peer.request()
    await peer.hang()


OK_HEAD = b"HTTP/1.1 200 OK\r\nX-Soak-Id: ID\r\n"
WHOLE = OK_HEAD + b"Content-Length: 16\r\n\r\n" + BODY
CHUNKED = OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@dataclass
class Row:
    says: str
    behaviour: Behaviour
    expected: set[Outcome]
    spec: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)


QUICK = {"response_timeout_s": 0.1, "body_timeout_s": 0.2}
ROWS = [
    Row("a good answer", well_behaved, {O.OK}),
    Row("a reset right after accept", resets_on_accept, {O.CUT_BEFORE_RESPONSE, O.CONNECT_RESET}),
    Row("a close right after accept", closes_on_accept, {O.CUT_BEFORE_RESPONSE}),
    Row("no answer at all", never_answers, {O.RESPONSE_TIMEOUT}, load=QUICK),
    Row("a close instead of an answer", closes_without_an_answer, {O.CUT_BEFORE_RESPONSE}),
    Row("a reset instead of an answer", resets_without_an_answer, {O.CUT_BEFORE_RESPONSE}),
    Row("a half-close instead of an answer", half_closes_without_an_answer, {O.CUT_BEFORE_RESPONSE}),
    Row("404", answers(status="404 Not Found"), {O.STATUS_4XX}),
    Row("503", answers(status="503 Service Unavailable"), {O.STATUS_5XX}),
    Row("302", answers(status="302 Found"), {O.STATUS_UNEXPECTED}),
    Row("204, which has no body", answers_once(b"HTTP/1.1 204 No Content\r\n\r\n"), {O.STATUS_UNEXPECTED}),
    Row("a 404 that was asked for", answers(status="404 Not Found"), {O.OK}, spec={"status": 404}),
    Row("a body of the wrong length", answers(body=b"hello"), {O.BODY_MISMATCH}),
    Row("an empty 200", answers(body=b""), {O.BODY_MISMATCH}),
    Row("a body of the wrong content", answers(body=b"y" * 16), {O.BODY_MISMATCH}),
    Row(
        "a truncated body",
        answers_once(OK_HEAD + b"Content-Length: 16\r\n\r\n" + BODY[:5]),
        {O.CUT_MID_RESPONSE},
    ),
    Row("a truncated head", answers_once(b"HTTP/1.1 200 OK\r\nX-So"), {O.CUT_MID_RESPONSE}),
    Row(
        "a body without end",
        floods(OK_HEAD + b"Content-Length: 999999999\r\n\r\n", b"x" * 100),
        {O.BODY_MISMATCH},
    ),
    Row("a dripping body", drips, {O.BODY_TIMEOUT}, load=QUICK),
    Row("somebody else's answer", answers_for_somebody_else, {O.IDENTITY_MISMATCH}),
    Row("no id", answers(b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n" + BODY), {O.IDENTITY_MISMATCH}),
    Row("garbage", answers(b"\x00\xffSMTP 220 hello\r\n"), {O.PROTOCOL_ERROR}),
    Row("a header bomb", floods(OK_HEAD, b"X-Filler: yyyyyyyyyyyyyyyyyyyyyyyyy\r\n"), {O.PROTOCOL_ERROR}),
    Row("one header without end", floods(OK_HEAD + b"X-Filler: ", b"y" * 50), {O.PROTOCOL_ERROR}),
    Row("100 Continue without end", floods(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), {O.PROTOCOL_ERROR}),
    Row("trailers without end", floods(CHUNKED + b"0\r\nX-T: ", b"y" * 50), {O.PROTOCOL_ERROR}),
    Row("a chunk extension without end", floods(CHUNKED + b"1;x=", b"y" * 50), {O.PROTOCOL_ERROR}),
    Row("a chunked answer", answers(CHUNKED + b"10\r\n" + BODY + b"\r\n0\r\n\r\n"), {O.OK}),
    Row(
        "a chunked answer in one-byte chunks and many pieces",
        answers(CHUNKED, *(b"1\r\n%c\r\n" % c for c in BODY), b"0\r\n", b"\r\n"),
        {O.OK},
    ),
    Row("a garbled chunk length", answers(CHUNKED + b"zz\r\n" + BODY), {O.PROTOCOL_ERROR}),
    Row("a chunked answer that is cut", answers_once(CHUNKED + b"10\r\n" + BODY), {O.CUT_MID_RESPONSE}),
    Row(
        "1xx before the answer",
        answers(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nX-Soak-Id: no\r\n\r\n" + WHOLE),
        {O.OK},
    ),
    Row("garbage after the answer", answers(WHOLE + b"garbage"), {O.PROTOCOL_ERROR}),
    Row("two answers", answers(WHOLE + WHOLE), {O.PROTOCOL_ERROR}),
    Row("an answer that ends with the connection", answers_once(OK_HEAD + b"\r\n" + BODY), {O.OK}),
    Row("the same, cut short", answers_once(OK_HEAD + b"\r\n" + BODY[:9]), {O.BODY_MISMATCH}),
    Row("HTTP/1.0", answers_once(WHOLE.replace(b"1.1", b"1.0")), {O.OK}),
    Row("Connection: close", answers_once(answer(b"ID", headers=b"Connection: close\r\n")), {O.OK}),
    Row(
        "a protocol switch that nobody asked for",
        answers(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"),
        {O.PROTOCOL_ERROR},
    ),
    Row("a bare 101", answers(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"), {O.PROTOCOL_ERROR}),
    Row("both lengths", answers(CHUNKED[:-2] + b"Content-Length: 16\r\n\r\n" + BODY), {O.PROTOCOL_ERROR}),
    Row("a close of the idle connection", answers_once(WHOLE), {O.OK}, spec={"rate": 20}),
    Row("a reset of the idle connection", resets_after_the_answer, {O.OK}, spec={"rate": 20}),
    Row("an answer with a reset on its heels", resets_behind_the_answer, {O.OK}, spec={"rate": 20}),
    Row("a half-close after the answer", half_closes_after_the_answer, {O.OK}, spec={"rate": 20}),
    Row("an answer before the request", answers_before_it_is_asked, {O.IDENTITY_MISMATCH}),
]


def attack(row: Row) -> Result:
    """Run a row."""
    brief = {} if row.spec.get("rate") else {"seconds": 0.1}
    shape = {"rate": 100, **row.spec}
    return run(
        against(Server(row.behaviour), lambda port: slice_of(spec(port, **shape), **brief, **row.load))
    )


@pytest.mark.parametrize("row", ROWS, ids=[r.says for r in ROWS])
def test_a_peer_that_sends(row: Row) -> None:
    """Each behaviour has its outcome, for every request; the books balance; nothing raised, nothing was hoarded."""
    result = unhurried(lambda: attack(row))
    assert row.expected >= set(result.outcomes)
    assert result.total("sent") == result.total("scheduled") > 0
    assert result.total("bytes_received") < 10 * 1024 * 1024
    if O.OK not in row.expected:
        assert result.evidence
        assert all(e.error and e.done_s >= e.sent_s >= e.due_s for e in result.evidence)


def test_nobody_listens() -> None:
    """connect_refused, with the error's own words as evidence."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        result = run(_alone(sock.getsockname()[1]))
    assert {O.CONNECT_REFUSED: 10} == result.outcomes
    assert "ConnectionRefusedError" in result.evidence[0].error
    assert result.evidence[0].connection_age_s is None


async def _alone(port: int, **changes: Any) -> Result:
    load = changes.pop("load", {})
    return (await drive(slice_of(spec(port, **changes), **load))).check()


def test_a_full_backlog_is_a_connect_timeout() -> None:
    """A listener that never accepts and whose queue is full drops the SYN: the deadline ends it, no socket leaks."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        result = run(_alone(port, load={"connect_timeout_s": 0.2}))
        for filler in fillers:
            filler.close()
    assert {O.CONNECT_TIMEOUT} == set(result.outcomes)
    assert 0 == result.connections("opened")


def test_a_name_that_does_not_resolve_is_dns() -> None:
    """Nobody has this name (RFC 6761); a resolver that hangs counts as dns too."""
    result = run(_alone(80, host="no-such-host.invalid", rate=8, load={"connect_timeout_s": 3.0}))
    assert {O.DNS} == set(result.outcomes)


def test_a_name_with_several_addresses_is_tried_to_the_end() -> None:
    """``localhost`` may name ::1 first; a server on 127.0.0.1 is still found."""
    result = run(against(Server(well_behaved), lambda port: slice_of(spec(port, host="localhost"))))
    assert {O.OK} == set(result.outcomes)


def test_connections_are_kept_and_reused() -> None:
    """One connection carries a slow class; the pool is closed by us at the end, after the last report."""
    result = unhurried(lambda: run(against(Server(well_behaved), lambda port: slice_of(spec(port)))))
    opened, reused = result.connections("opened"), result.connections("reused")
    assert (10, True) == (opened + reused, reused > opened)
    assert opened == result.reports[-1].open_connections


def test_an_announced_close_is_the_peers_and_no_failure() -> None:
    """A connection whose answer said close is not reused, and counts as closed by the peer."""
    behaviour = answers(answer(b"ID", headers=b"Connection: close\r\n"))
    result = run(against(Server(behaviour), lambda port: slice_of(spec(port))))
    assert {O.OK: 10} == result.outcomes
    assert 10 == result.connections("opened")
    assert 10 == result.connections("closed_by_peer") + result.reports[-1].open_connections
    assert 0 == result.connections("closed_by_us")


def test_an_idle_connection_that_closes_is_noticed_at_once() -> None:
    """No request is ever put on a connection whose end had already come: no failure, and the peer closed it."""
    result = run(against(Server(answers_once(WHOLE)), lambda port: slice_of(spec(port, rate=20))))
    assert {O.OK: 5} == result.outcomes
    assert 5 == result.connections("closed_by_peer") + result.reports[-1].open_connections
    assert 0 == result.connections("reused")


async def closes_at_the_second_request(peer: Peer) -> None:
    await peer.send(answer(await peer.request()))
    await peer.request()


async def closes_late_at_the_second_request(peer: Peer) -> None:
    await peer.send(answer(await peer.request()))
    await peer.request()
    await asyncio.sleep(1.2)


@pytest.mark.parametrize(("method", "idempotent"), [("GET", True), ("POST", False)])
def test_a_close_that_races_a_reuse_is_stale_reuse(method: str, idempotent: bool) -> None:
    """Every second request of a connection; the non-idempotent share is told apart; nothing is retried."""
    result = unhurried(
        lambda: run(
            against(
                Server(closes_at_the_second_request),
                lambda port: slice_of(spec(port, method=method, idempotent=idempotent)),
            )
        )
    )
    first, second = result.connections("opened"), result.connections("reused")
    assert {O.OK: first, O.STALE_REUSE: second} == result.outcomes
    assert (10, True) == (first + second, second >= 1)
    assert (0 if idempotent else second) == result.total("stale_non_idempotent")
    assert all(e.reused and e.first_byte_s is None for e in result.evidence)


def test_a_peer_that_takes_a_second_to_hang_up_had_the_request() -> None:
    """cut_before_response, not stale_reuse, on a reused connection that closes 1.2 s after the send."""
    result = unhurried(
        lambda: run(
            against(Server(closes_late_at_the_second_request), lambda port: slice_of(spec(port, rate=8)))
        )
    )
    assert {O.OK: 1, O.CUT_BEFORE_RESPONSE: 1} == result.outcomes


async def talks_while_idle(peer: Peer) -> None:
    await peer.send(answer(await peer.request()))
    await asyncio.sleep(0.01)
    await peer.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    await peer.reader.read()


def test_bytes_on_an_idle_connection_end_it_and_are_an_event() -> None:
    """The connection is dropped before a request meets it; the event says which class; no failure."""
    result = run(against(Server(talks_while_idle), lambda port: slice_of(spec(port, rate=20))))
    assert {O.OK: 5} == result.outcomes
    assert "load.unsolicited_bytes" in result.notes
    assert 0 == result.connections("reused")


def test_large_bodies_both_ways_are_checked_and_not_kept() -> None:
    """An echo of 512 KiB, in many pieces, is right to the last byte."""
    size = 512 * 1024

    async def echoes(peer: Peer) -> None:
        while True:
            request_id = await peer.request()
            await peer.send(answer(request_id, pattern(size)))

    big = {"method": "POST", "request_bytes": size, "response_bytes": size, "rate": 20}
    result = run(against(Server(echoes), lambda port: slice_of(spec(port, **big))))
    assert {O.OK: 5} == result.outcomes
    assert 5 * size == result.total("bytes_received")
