"""What the engine makes of websocket peers, good and hostile: real sockets, both identities in every row, one end for each."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certs.authority import Authority
from soak.load import dial
from soak.load.engine import Engine
from soak.load.outcome import Stage
from soak.load.sockets import Message, WebSocketLane
from soak.load.websocket import WebSocket
from soak.load.wsframes import masked
from soak.measure.window import WorkerReport
from soak.model import Outcome
from tests.soak.load.rig import (
    Behaviour,
    Peer,
    Result,
    Server,
    against,
    drive,
    run,
    slice_of,
    spec,
    unhurried,
)
from tests.soak.load.test_hostile_tls import NAME, context_of
from tests.soak.load.wspeer import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Speak,
    WsPeer,
    echoes,
    frame,
    key_of,
    opened,
    switch,
)

O = Outcome  # noqa: E741 -- the table is the point
SHAPE: dict[str, Any] = {
    "protocol": "websocket",
    "path": "/ws",
    "connections": 4,
    "request_bytes": 64,
    "response_bytes": 64,
    "rate": 80,
    "idempotent": False,
}


def sockets(behaviour: Behaviour, load: dict[str, Any] | None = None, **changes: Any) -> Result:
    """Run a short cohort against a server whose connections all behave alike."""
    shape = {**SHAPE, **changes}
    return run(against(Server(behaviour), lambda port: slice_of(spec(port, **shape), **(load or {}))))


# -- good servers ------------------------------------------------------------------------------------------------------


def test_a_message_goes_out_for_each_slot_and_its_echo_is_ok() -> None:
    """Four sockets carry twenty messages; each socket but for its first message is reused."""
    result = sockets(opened(echoes))
    assert {O.OK: 20} == result.outcomes
    assert 4 == result.connections("opened")
    assert 16 == result.connections("reused")
    assert 20 * 64 == result.total("bytes_received")
    assert 4 == result.reports[-1].idle_connections


def test_each_message_is_the_promised_length_and_carries_its_id() -> None:
    """The id comes first; a length that is too short for it gives way."""
    seen: list[bytes] = []

    async def notes(peer: WsPeer) -> None:
        while True:
            seen.append(await peer.message())
            await peer.send(frame(TEXT, seen[-1]))

    assert {O.OK: 20} == sockets(opened(notes), request_bytes=200).outcomes
    assert {200} == {len(m) for m in seen}
    assert 20 == len({m.split(b" ")[0] for m in seen})
    seen.clear()
    assert {O.OK: 20} == sockets(opened(notes), request_bytes=0).outcomes
    assert all(m.endswith(b" ") for m in seen)


def test_large_messages_are_right_to_the_last_byte() -> None:
    """Longer than any short length and than a segment."""
    assert {O.OK: 5} == sockets(opened(echoes), request_bytes=300_000, rate=20).outcomes


def test_fragments_with_pings_between_are_one_echo_and_pings_are_answered() -> None:
    """RFC 6455 sections 5.4 and 5.5.2: the pong carries the ping's bytes."""
    pongs: list[bytes] = []

    async def in_pieces(peer: WsPeer) -> None:
        while True:
            opcode, payload = await peer.frame()
            if opcode == PONG:
                pongs.append(payload)
            elif opcode == TEXT:
                await peer.send(
                    frame(TEXT, payload[:5], fin=False),
                    frame(PING, b"are you there"),
                    frame(CONTINUATION, b"", fin=False) + frame(PONG, b"unasked"),
                    frame(CONTINUATION, payload[5:]),
                )

    assert {O.OK: 20} == sockets(opened(in_pieces)).outcomes
    assert {b"are you there"} == set(pongs)


def test_an_echo_may_come_byte_by_byte() -> None:
    """The upgrade too."""

    async def drips(peer: Peer) -> None:
        for byte in switch(await key_of(peer)):
            await peer.send(bytes([byte]))
        socket = WsPeer(peer)
        while True:
            for byte in frame(TEXT, await socket.message()):
                await peer.send(bytes([byte]))

    assert {O.OK: 4} == sockets(drips, rate=16).outcomes


def test_over_tls_the_certificate_is_checked_and_told(tmp_path: Path) -> None:
    """The same dial as every other connection: full handshakes, the serial in evidence and sightings."""
    authority = Authority.create(tmp_path / "certs")
    shape = {**SHAPE, "tls": True, "server_name": NAME}
    load = {"ca_file": str(authority.ca_pem)}

    async def cuts(peer: WsPeer) -> None:
        await peer.echo(2)
        await peer.message()

    server = Server(opened(cuts), context_of(authority.leaf(NAME), tmp_path))
    result = run(against(server, lambda port: slice_of(spec(port, **shape), **load)))
    assert {O.OK, O.CUT_MID_RESPONSE} == set(result.outcomes)
    assert 4 <= result.connections("tls_full")
    assert all(e.serial for e in result.evidence)


def test_a_handshake_that_hangs_is_a_tls_timeout(tmp_path: Path) -> None:
    """The peer accepts and says nothing."""
    authority = Authority.create(tmp_path / "certs")

    async def mute(peer: Peer) -> None:
        await peer.hang()

    load = {"ca_file": str(authority.ca_pem), "connect_timeout_s": 0.1, "tls_timeout_s": 0.1}
    result = sockets(mute, load, tls=True, server_name=NAME)
    assert {O.TLS_TIMEOUT: 20} == result.outcomes


# -- hostile servers ---------------------------------------------------------------------------------------------------


def answers(*frames: bytes) -> Speak:
    """Answer each message with these frames."""

    async def speak(peer: WsPeer) -> None:
        while True:
            await peer.message()
            await peer.send(*frames)

    return speak


async def changes_a_byte(peer: WsPeer) -> None:
    while True:
        message = await peer.message()
        await peer.send(frame(TEXT, message[:-1] + b"#"))


async def echoes_as_binary(peer: WsPeer) -> None:
    while True:
        await peer.send(frame(BINARY, await peer.message()))


async def hangs(peer: WsPeer) -> None:
    await peer.peer.hang()


async def begins_and_hangs(peer: WsPeer) -> None:
    await peer.message()
    await peer.send(b"\x81\x40half")
    await peer.peer.hang()


async def pings_without_end(peer: WsPeer) -> None:
    await peer.message()
    while True:
        await peer.send(frame(PING, b"x" * 125) * 1000)


async def sends_empty_fragments_without_end(peer: WsPeer) -> None:
    await peer.message()
    await peer.send(frame(TEXT, b"", fin=False))
    while True:
        await peer.send(frame(CONTINUATION, b"", fin=False) * 1000)
        await asyncio.sleep(0.01)


def refuses(data: bytes) -> Behaviour:
    """Answer the request for an upgrade with these bytes, then wait."""

    async def behave(peer: Peer) -> None:
        key = await key_of(peer)
        await peer.send(data.replace(b"SWITCH", switch(key)[:-2]))
        await peer.hang()

    return behave


async def closes_at_the_upgrade(peer: Peer) -> None:
    await key_of(peer)


async def closes_in_the_upgrade(peer: Peer) -> None:
    await key_of(peer)
    await peer.send(b"HTTP/1.1 101 Swi")


async def floods_the_upgrade(peer: Peer) -> None:
    await key_of(peer)
    await peer.send(b"HTTP/1.1 101 Switching Protocols\r\n")
    while True:
        await peer.send(b"X-Filler: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n" * 100)


def denies(status: str) -> Behaviour:
    return refuses(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno".encode())


@dataclass
class Row:
    says: str
    behaviour: Behaviour
    expected: set[Outcome]
    load: dict[str, Any] = field(default_factory=dict)
    error: str = ""


QUICK = {"response_timeout_s": 0.15, "body_timeout_s": 0.1}
LONG = frame(TEXT, b"x" * 70_000)
ROWS = [
    Row("a changed echo", opened(changes_a_byte), {O.BODY_MISMATCH}, error="echo of 64 bytes"),
    Row("an echo of another kind", opened(echoes_as_binary), {O.BODY_MISMATCH}, error="opcode 2"),
    Row(
        "a stranger's echo",
        opened(answers(frame(TEXT, b"0.0.fff x"))),
        {O.IDENTITY_MISMATCH},
        error="0.0.fff",
    ),
    Row("an empty echo", opened(answers(frame(TEXT, b""))), {O.IDENTITY_MISMATCH}),
    Row("no echo", opened(hangs), {O.RESPONSE_TIMEOUT}, QUICK, "given up with all its messages"),
    Row("half an echo", opened(begins_and_hangs), {O.BODY_TIMEOUT}, {"body_timeout_s": 0.1}),
    Row(
        "a masked frame", opened(answers(frame(TEXT, b"x", mask=b"abcd"))), {O.PROTOCOL_ERROR}, error="masked"
    ),
    Row(
        "a reserved bit", opened(answers(frame(TEXT, b"x", rsv=4))), {O.PROTOCOL_ERROR}, error="reserved bit"
    ),
    Row("a reserved opcode", opened(answers(frame(7, b"x"))), {O.PROTOCOL_ERROR}, error="opcode 7"),
    Row("a loose continuation", opened(answers(frame(CONTINUATION, b"x"))), {O.PROTOCOL_ERROR}),
    Row("a message that is too long", opened(answers(LONG)), {O.PROTOCOL_ERROR}, error="longer than 65536"),
    Row("HTTP inside", opened(answers(b"HTTP/1.1 400 Bad Request\r\n\r\n")), {O.PROTOCOL_ERROR}),
    Row("pings without end", opened(pings_without_end), {O.PROTOCOL_ERROR, O.RESPONSE_TIMEOUT}, QUICK),
    Row(
        "fragments without end",
        opened(sends_empty_fragments_without_end),
        {O.BODY_TIMEOUT},
        {"body_timeout_s": 0.1},
    ),
    Row("404", denies("404 Not Found"), {O.STATUS_4XX}, error="answered with status 404"),
    Row("503", denies("503 Busy"), {O.STATUS_5XX}),
    Row("200", denies("200 OK"), {O.STATUS_UNEXPECTED}),
    Row("302", denies("302 Found"), {O.STATUS_UNEXPECTED}),
    Row(
        "404 and garbage",
        refuses(b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        {O.STATUS_4XX},
    ),
    Row(
        "101 for another key",
        refuses(switch(b"c29tZWJvZHkgZWxzZSdzIQ==")),
        {O.PROTOCOL_ERROR},
        error="Accept is",
    ),
    Row(
        "101 without a key",
        refuses(b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"),
        {O.PROTOCOL_ERROR},
    ),
    Row(
        "a bare 101",
        refuses(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
        {O.PROTOCOL_ERROR},
        error="without an upgrade",
    ),
    Row(
        "101 to something else",
        refuses(switch(b"x", upgrade=b"h2c")),
        {O.PROTOCOL_ERROR},
        error="without an upgrade",
    ),
    Row(
        "an extension",
        opened(echoes, extra=b"Sec-WebSocket-Extensions: x\r\n"),
        {O.PROTOCOL_ERROR},
        error="nobody offered",
    ),
    Row("garbage", refuses(b"\x00\xffSMTP 220 hello\r\n"), {O.PROTOCOL_ERROR}),
    Row(
        "1xx before 101",
        refuses(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nSWITCH\r\n"),
        {O.RESPONSE_TIMEOUT},
        QUICK,
    ),
    Row("a header bomb", floods_the_upgrade, {O.PROTOCOL_ERROR}),
    Row("a close instead of an upgrade", closes_at_the_upgrade, {O.CUT_BEFORE_RESPONSE}),
    Row(
        "a close in the upgrade",
        closes_in_the_upgrade,
        {O.CUT_MID_RESPONSE},
        error="while asking for the upgrade",
    ),
    Row("no answer to the upgrade", refuses(b""), {O.RESPONSE_TIMEOUT}, QUICK),
]


@pytest.mark.parametrize("row", ROWS, ids=[r.says for r in ROWS])
def test_a_peer_that_sends(row: Row) -> None:
    """Each behaviour has its outcome, for every message; the books balance; nothing raised, nothing was hoarded."""
    result = unhurried(lambda: sockets(row.behaviour, load=row.load))
    assert row.expected >= set(result.outcomes)
    assert result.total("sent") + result.total("dropped") == result.total("scheduled") == 20
    assert result.total("sent") >= 16
    assert result.evidence
    assert all(e.error and e.done_s >= e.sent_s >= e.due_s for e in result.evidence)
    assert any(row.error in e.error for e in result.evidence)


def test_what_comes_with_the_grant_is_taken_for_frames() -> None:
    """A ping in the same bytes as the 101 is answered; a message is one that nobody asked for."""
    assert {O.OK: 20} == sockets(opened(echoes, early=frame(PING, b"hi"))).outcomes
    ahead = {"t0_ns": monotonic_ns() + 800_000_000}  # all sockets are open before the first slot
    result = sockets(opened(hangs, early=frame(TEXT, b"welcome")), ahead, rate=16)
    assert {O.PROTOCOL_ERROR: 4} == result.outcomes
    assert any("nobody asked for" in e.error for e in result.evidence)
    result = sockets(
        opened(hangs, early=b"\x81\x05we"), {**ahead, "t0_ns": monotonic_ns() + 800_000_000}, rate=16
    )
    assert {O.PROTOCOL_ERROR: 4} == result.outcomes
    assert any("began that nobody asked for" in e.error for e in result.evidence)


# -- cuts --------------------------------------------------------------------------------------------------------------


def cuts_after(echoed: int, how: str, *, waiting: bool) -> Speak:
    """Cut the socket after some echoes: when a message waits, or when none does."""

    async def speak(peer: WsPeer) -> None:
        await peer.echo(echoed)
        if waiting:
            await peer.message()
        if how == "reset":
            peer.peer.reset()
        elif how == "close frame":
            await peer.send(frame(CLOSE, (1001).to_bytes(2, "big") + b"going away"))
            opcode, payload = await peer.frame()
            while opcode == TEXT:  # on its way before the client knew
                opcode, payload = await peer.frame()
            assert (CLOSE, b"\x03\xe9") == (opcode, payload)
            await peer.peer.hang()

    return speak


@pytest.mark.parametrize("how", ["eof", "reset", "close frame"])
def test_a_cut_while_a_message_waits_ends_it_with_the_age_of_its_socket(how: str) -> None:
    """cut_mid_response; the close code is in the text; the socket is opened again for the next message."""
    cuts = opened(cuts_after(2, how, waiting=True))
    result = unhurried(lambda: sockets(cuts, connections=1, rate=20))
    assert {O.OK: 4, O.CUT_MID_RESPONSE: 1} == result.outcomes
    (cut,) = result.evidence
    assert cut.connection_age_s is not None
    assert 0.05 <= cut.connection_age_s < 5
    assert f"cut after {cut.connection_age_s:.1f} s" in cut.error
    assert cut.reused
    assert ("close frame 1001 going away" in cut.error) is (how == "close frame")
    assert 2 == result.connections("opened")
    assert 1 == result.connections("closed_by_peer")


@pytest.mark.parametrize("how", ["eof", "reset", "close frame"])
def test_a_cut_of_an_idle_socket_is_told_once_at_its_next_slot(how: str) -> None:
    """One cut, one outcome, with the age that the socket had when it was cut, not when that was told."""
    cuts = opened(cuts_after(2, how, waiting=False))
    result = unhurried(lambda: sockets(cuts, {"seconds": 0.5}, connections=1, rate=12))
    assert {O.OK: 4, O.CUT_MID_RESPONSE: 2} == result.outcomes
    assert "load.socket_lost" in result.notes
    first, second = result.evidence
    for cut in (first, second):
        assert cut.connection_age_s is not None
        assert f"cut after {cut.connection_age_s:.1f} s" in cut.error
        assert "before this message was due" in cut.error
    # It came up when the first cut was told, and was cut a slot before the second one was.
    assert second.connection_age_s is not None
    assert second.connection_age_s < second.done_s - first.done_s - 0.01
    assert 1 <= result.connections("closed_by_peer") <= 2


def test_with_several_messages_in_flight_all_of_them_end_with_the_cut() -> None:
    """In order, each exactly once."""

    async def swallows_three(peer: WsPeer) -> None:
        for _ in range(3):
            await peer.message()

    result = unhurried(lambda: sockets(opened(swallows_three), connections=1, rate=36))
    assert {O.CUT_MID_RESPONSE: 9} == result.outcomes
    assert 3 == len({e.connection for e in result.evidence})


def test_echoes_come_in_the_order_of_the_messages() -> None:
    """Three at once are answered in order; swapped ones are somebody else's."""

    async def three_at_once(peer: WsPeer) -> None:
        while True:
            messages = [await peer.message() for _ in range(3)]
            await peer.send(b"".join(frame(TEXT, m) for m in messages))

    async def swapped(peer: WsPeer) -> None:
        a, b = await peer.message(), await peer.message()
        await peer.send(frame(TEXT, b) + frame(TEXT, a))
        await peer.peer.hang()

    assert {O.OK: 9} == sockets(opened(three_at_once), connections=1, rate=36).outcomes
    result = unhurried(lambda: sockets(opened(swapped), connections=1, rate=40))
    assert {O.IDENTITY_MISMATCH: 5, O.PROTOCOL_ERROR: 5} == result.outcomes
    assert any("on which a wrong echo came" in e.error for e in result.evidence)


def test_a_socket_on_which_too_many_wait_drops_further_messages() -> None:
    """Dropped, counted, never queued; other sockets go on."""
    served = 0

    async def one_hangs(peer: WsPeer) -> None:
        nonlocal served
        served += 1
        await (hangs if served == 1 else echoes)(peer)

    load = {"response_timeout_s": 0.6, "seconds": 0.5}

    def attempt() -> Result:
        nonlocal served
        served = 0
        return sockets(opened(one_hangs), load, connections=2, rate=40)

    result = unhurried(attempt)
    # Ten slots are the hanging socket's: it may hold 0.6 s x 20/s of them.
    assert 10 == result.outcomes[O.OK]
    assert 10 == result.outcomes[O.RESPONSE_TIMEOUT]
    result = sockets(opened(hangs), {"response_timeout_s": 0.05, "seconds": 0.1}, connections=1, rate=200)
    assert 20 == result.total("scheduled") == result.total("sent") + result.total("dropped")
    assert result.total("dropped") > 0


def test_nobody_listens() -> None:
    """Every slot ends as connect_refused, those that meet a pause too; the seat is tried again by itself, with pauses."""

    async def alone() -> Result:
        with socket.socket() as held:  # bound, so that nobody else listens there either
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
            return (await drive(slice_of(spec(port, **SHAPE), seconds=1.0))).check()

    result = run(alone())
    assert {O.CONNECT_REFUSED: 80} == result.outcomes
    assert any("will try again" in e.error for e in result.evidence)
    assert 0 == result.connections("opened")
    assert "load.socket_not_connected" in result.notes


def test_a_connect_that_hangs_is_given_up_and_leaves_no_socket() -> None:
    """A listener whose queue is full drops the SYN: connect_timeout for the messages that wait, and for those after them."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))

        async def alone() -> Result:
            return (await drive(slice_of(spec(port, **SHAPE), connect_timeout_s=0.2))).check()

        result = run(alone())
    assert {O.CONNECT_TIMEOUT: 20} == result.outcomes
    assert 0 == result.connections("opened")


def test_a_server_that_comes_back_is_found_again() -> None:
    """Refused while it is away, ok again within the pause, without a slot in between that is not told."""

    async def away_and_back() -> Result:
        ours = socket.socket()
        ours.bind(("127.0.0.1", 0))  # the port is ours from now on, and until it listens it refuses
        port = ours.getsockname()[1]
        shape = {**SHAPE, "connections": 2}

        async def comes_back(engine: Engine) -> None:
            await asyncio.sleep(0.3)
            async with Server(opened(echoes), listener=ours):
                while not engine._finished.done():
                    await asyncio.sleep(0.01)

        result = await drive(slice_of(spec(port, **shape), seconds=1.2), comes_back)
        return result.check()

    result = run(away_and_back())
    assert {O.CONNECT_REFUSED, O.OK} == set(result.outcomes)
    assert 96 == sum(result.outcomes.values())
    assert result.outcomes[O.OK] >= 30 - 80 * sum(r.stats.loop_gap_s for r in result.reports)


# -- fed by hand -------------------------------------------------------------------------------------------------------


class FakeTransport(asyncio.Transport):
    """Takes bytes, and never gets rid of them when it is ``stuck``."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.stuck = False
        self.closing = False

    def write(self, data: Any) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return len(self.written) if self.stuck else 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True


class Bench:
    """One seat of a real lane in a real engine; the wire is a fake, and nothing dials."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dials: list[WebSocket] = []
        monkeypatch.setattr(dial, "start", lambda _lane, socket: self._dialled(socket))
        self.reports: list[WorkerReport] = []
        load = slice_of(spec(1, **{**SHAPE, "connections": 1}))
        self.engine = Engine(load, self.reports.append)
        (lane,) = self.engine.lanes
        assert isinstance(lane, WebSocketLane)
        self.lane = lane
        self.transport = FakeTransport()

    def _dialled(self, socket: WebSocket) -> None:
        socket.dialed_ns = monotonic_ns()
        self.dials.append(socket)

    def close(self) -> None:
        self.engine._timer.close()
        self.engine._meter.close()

    @property
    def socket(self) -> WebSocket:
        return self.dials[-1]

    def fire(self) -> None:
        now = monotonic_ns()
        self.lane.fire(now, now)
        self.lane.pacer.advance()

    def come_up(self) -> None:
        """Connect the newest dial to a new wire."""
        self.transport = FakeTransport()
        self.socket.connection_made(self.transport)

    def feed(self, data: bytes) -> None:
        """As a real transport would: not after a close."""
        if data and not self.transport.closing:
            self.socket.data_received(data)

    def open(self) -> None:
        self.come_up()
        key = bytes(self.transport.written).split(b"Sec-WebSocket-Key: ")[1].split(b"\r\n")[0]
        self.feed(switch(key))
        assert self.socket.stage is Stage.IDLE

    @property
    def outcomes(self) -> dict[Outcome, int]:
        out = {O.OK: self.lane.row.ok} if self.lane.row.ok else {}
        return {**out, **self.lane.row.outcomes}

    def balanced(self) -> bool:
        done = sum(self.outcomes.values())
        return (
            self.lane.row.sent == done + self.lane.in_flight and self.engine.in_flight == self.lane.in_flight
        )


def payloads(written: bytes) -> list[bytes]:
    """The short messages that a client wrote after its request for an upgrade."""
    data, out = written.split(b"\r\n\r\n", 1)[1], []
    while data:
        n = data[1] & 0x7F
        if data[0] & 0x0F == TEXT:
            out.append(masked(data[6 : 6 + n], data[2:6]))
        data = data[6 + n :]
    return out


PIECES = [
    b"ECHO",
    b"ECHO",
    frame(PING, b"?"),
    frame(PONG, b"!"),
    frame(TEXT, b"0.0.1 x"),
    frame(TEXT, b"a", fin=False),
    frame(CONTINUATION, b"b"),
    frame(CLOSE, b"\x03\xe9"),
    frame(CLOSE, b""),
    frame(TEXT, b"x" * 130),
    b"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00",
    b"FIRE",
    b"FIRE",
]


@settings(max_examples=150, deadline=None)
@given(
    script=st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=20)), max_size=12),
    piece=st.integers(1, 50),
    end=st.sampled_from(["eof", "reset", "timeout", "lost"]),
    grant=st.one_of(st.just(b""), st.binary(max_size=60)),
)
def test_whatever_bytes_come_however_every_message_ends_once(
    script: list[bytes], piece: int, end: str, grant: bytes
) -> None:
    """Never an exception; sent is always what ended and what is in flight; after the end of the wire nothing is in flight."""

    async def go() -> None:
        with pytest.MonkeyPatch.context() as patch:
            bench = Bench(patch)
            try:
                _play(bench, script, piece, end, grant)
            finally:
                bench.close()

    asyncio.run(go())


def _play(bench: Bench, script: list[bytes], piece: int, end: str, grant: bytes) -> None:
    bench.fire()
    if grant:
        bench.come_up()
        bench.feed(grant)
    else:
        bench.open()
    for step in script:
        if step == b"FIRE":
            bench.fire()
        data = step
        if step == b"ECHO":
            waiting = bench.socket.queue
            data = frame(TEXT, waiting[0].payload) if waiting else b""
        for at in range(0, len(data), piece):
            bench.feed(data[at : at + piece])
        assert bench.balanced()
    _finish(bench, end)
    assert bench.balanced()
    assert 0 == bench.engine.in_flight
    assert not bench.engine.busy
    assert not bench.lane.dying
    assert len(bench.transport.written) < 100_000
    assert 0 == bench.engine.internal_errors


def _finish(bench: Bench, end: str) -> None:
    """The wire ends, and every dial that is still out."""
    if end == "timeout":
        for flight in tuple(bench.engine.busy):
            flight.give_up(O.RESPONSE_TIMEOUT, "late", monotonic_ns())
    elif end == "eof" and not bench.transport.closing:
        assert not bench.socket.eof_received()
    for dialled in bench.dials:
        if dialled.transport is not None:
            dialled.connection_lost(ConnectionResetError(104, "reset") if end == "reset" else None)
        elif dialled.stage is not Stage.CLOSED:
            dialled.stage = Stage.CLOSED
            dialled.dial_failed(O.CONNECT_REFUSED, "refused", monotonic_ns())


async def test_pings_whose_answers_nobody_reads_end_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers do not pile up: 64 KiB, then the peer has broken the peace."""
    bench = Bench(monkeypatch)
    bench.fire()
    bench.open()
    bench.transport.stuck = True
    for _ in range(2000):
        bench.feed(frame(PING, b"x" * 125))
    assert {O.PROTOCOL_ERROR: 1} == bench.outcomes
    assert len(bench.transport.written) < 70_000
    bench.close()


async def test_a_close_that_the_peer_does_not_take_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """One second after a close frame whose connection lingers, it is aborted."""
    bench = Bench(monkeypatch)
    bench.fire()
    bench.open()
    bench.feed(frame(CLOSE, b"\x03\xf4"))
    assert {O.CUT_MID_RESPONSE: 1} == bench.outcomes
    assert payloads(bytes(bench.transport.written))
    bench.transport.closing = False
    now = monotonic_ns()
    bench.lane.tidy(now)
    assert not bench.transport.closing
    bench.lane.tidy(now + 1_100_000_000)
    assert bench.transport.closing
    bench.close()


async def test_messages_that_wait_follow_their_socket_through_its_stages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A message is given up as what its connection was doing; all that wait with it end the same way."""
    bench = Bench(monkeypatch)
    bench.fire()
    bench.fire()
    messages = list(bench.socket.queue)
    assert all(isinstance(m, Message) for m in messages)
    assert [Stage.RESOLVING] * 2 == [m.stage for m in messages]
    bench.socket.stage = Stage.HANDSHAKING
    assert [Stage.HANDSHAKING] * 2 == [m.stage for m in messages]
    assert (0, False, "") == (messages[0].connected_ns, messages[0].reused, messages[0].serial)
    messages[0].give_up(O.TLS_TIMEOUT, "gave up while handshaking", monotonic_ns())
    messages[1].give_up(O.TLS_TIMEOUT, "gave up while handshaking", monotonic_ns())
    assert {O.TLS_TIMEOUT: 2} == bench.outcomes
    assert bench.balanced()
    late = FakeTransport()
    bench.socket.connection_made(late)  # the handshake finished just then
    assert late.closing
    bench.close()
