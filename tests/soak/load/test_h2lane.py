"""Which connection a request takes, and when a slot is dropped; then real peers over real sockets, honest and not."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic_ns
from typing import Any, cast

import pytest

from certs.authority import Authority
from soak.load import dial
from soak.load import h2frames as h2
from soak.load.engine import Engine
from soak.load.h2lane import H2Lane
from soak.load.hpack import Decoder
from soak.load.outcome import Stage
from soak.load.traffic import pattern
from soak.model import Outcome
from tests.soak.load.h2rig import (
    SETTINGS,
    FakeTransport,
    H2Behaviour,
    H2Peer,
    answer,
    block,
    data,
    goaway,
    headers,
    rst,
    speaking_h2,
)
from tests.soak.load.rig import (
    Peer,
    Result,
    Server,
    against,
    drive,
    run,
    slice_of,
    spec,
    unhurried,
    well_behaved,
)

O = Outcome  # noqa: E741 -- the table is the point
NAME = "soak.test"


# -- room --------------------------------------------------------------------------------------------------------------


class Desk:
    """A lane whose dials are only noted; connections come up when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, workers: int = 1, **changes: Any) -> None:
        self.dialed: list[Any] = []
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(dial, "start", lambda _, connection: self._note(connection))
        one = spec(1, protocol="h2", **changes)
        load = replace(slice_of(one), workers=workers, max_lag_s=0.5)
        self.engine = Engine(load, lambda _: None)
        self.lane = cast("H2Lane", self.engine.lanes[0])

    def _note(self, connection: Any) -> None:
        connection.dialed_ns = monotonic_ns()
        self.dialed.append(connection)

    def fire(self, n: int = 1) -> None:
        """So many slots that are due now."""
        for _ in range(n):
            now = monotonic_ns()
            self.lane.fire(now, now)

    def bring_up(self, connection: Any, settings: bytes = SETTINGS) -> FakeTransport:
        """Have a dial succeed."""
        transport = FakeTransport()
        connection.connection_made(transport)
        connection.data_received(settings)
        return transport

    @property
    def loads(self) -> list[int]:
        """Requests on each connection that was ever dialed."""
        return [connection.load for connection in self.dialed]

    @property
    def counts(self) -> tuple[int, int, int]:
        """Sent, dropped, missed."""
        return self.lane.row.sent, self.lane.row.dropped, self.lane.row.missed


async def test_slots_wait_for_a_dial_up_to_its_streams_then_dial_again_then_are_dropped(monkeypatch):
    """Two connections of three streams: six wait, the rest is dropped before it counts as sent."""
    desk = Desk(monkeypatch, connections=2, streams=3)
    desk.fire(8)
    assert [3, 3] == desk.loads
    assert (6, 2, 0) == desk.counts
    assert 6 == desk.engine.in_flight == len(desk.engine.busy)


async def test_an_open_connection_with_room_is_preferred_to_one_that_is_being_dialed(monkeypatch):
    """Then the least loaded of those that are open."""
    desk = Desk(monkeypatch, connections=3, streams=2)
    desk.fire(4)
    desk.bring_up(desk.dialed[0]).closing = False
    desk.dialed[0].data_received(answer_to(desk, 0))
    desk.fire()
    assert [2, 2] == desk.loads
    desk.bring_up(desk.dialed[1])
    for index in (0, 1):
        desk.dialed[index].data_received(answer_to(desk, index))
    desk.fire(2)
    assert [2, 2] == desk.loads
    desk.fire()
    assert [2, 2, 1] == desk.loads


def answer_to(desk: Desk, index: int) -> bytes:
    """A good answer to the oldest request of a connection."""
    number, stream = next(iter(desk.dialed[index].streams.items()))
    return headers(number, block((b"x-soak-id", stream.request_id))) + data(number)


async def test_a_late_slot_is_missed_rather_than_dropped(monkeypatch):
    """Though there is no room either."""
    desk = Desk(monkeypatch, connections=1, streams=1)
    desk.fire(2)
    now = monotonic_ns()
    desk.lane.fire(now - 600_000_000, now)
    assert (1, 1, 1) == desk.counts


async def test_the_peers_limit_counts_and_is_remembered(monkeypatch):
    """One stream of sixteen: the next slot dials, and as many wait for that dial as the last peer took."""
    desk = Desk(monkeypatch, connections=2, streams=16)
    desk.fire()
    desk.bring_up(desk.dialed[0], h2.settings({3: 1}))
    desk.fire(3)
    assert [1, 1] == desk.loads
    assert (2, 2, 0) == desk.counts


async def test_a_peer_that_allows_no_stream_gets_none(monkeypatch):
    """SETTINGS_MAX_CONCURRENT_STREAMS 0: what waited still waits, new slots go elsewhere or are dropped."""
    desk = Desk(monkeypatch, connections=1, streams=4)
    desk.fire(2)
    transport = desk.bring_up(desk.dialed[0], h2.settings({3: 0}))
    desk.fire()
    assert (2, 1, 0) == desk.counts
    assert h2.opening() == transport.written[: len(h2.opening())]
    desk.dialed[0].data_received(h2.settings({3: 4}))
    assert [Stage.BUSY] * 2 == [s.stage for s in desk.dialed[0].streams.values()]


async def test_after_goaway_the_next_slot_dials(monkeypatch):
    """Connections that only finish do not count against the limit."""
    desk = Desk(monkeypatch, connections=1, streams=4)
    desk.fire(2)
    desk.bring_up(desk.dialed[0])
    desk.dialed[0].data_received(goaway(1))
    desk.fire()
    assert [1, 1] == desk.loads
    assert {O.H2_GOAWAY: 1} == desk.lane.row.outcomes


async def test_old_connections_are_retired_and_idle_ones_closed(monkeypatch):
    """An old one that carries something closes when that ends; none that is being dialed is touched."""
    desk = Desk(monkeypatch, connections=3, streams=1)
    desk.fire(3)
    transports = [desk.bring_up(c) for c in desk.dialed[:2]]
    desk.dialed[0].data_received(answer_to(desk, 0))
    assert 1 == desk.lane.idle_connections
    desk.lane.tidy(monotonic_ns() + desk.lane.idle_timeout_ns + 1)
    assert [True, False] == [t.closing for t in transports]
    desk.lane.tidy(monotonic_ns() + 2 * desk.lane.max_age_ns)
    assert (True, False) == (desk.dialed[1].retired, transports[1].closing)
    desk.dialed[1].data_received(answer_to(desk, 1))
    assert transports[1].closing
    assert [desk.dialed[2]] == desk.lane.connections


@pytest.mark.parametrize(("connections", "workers", "expected"), [(16, 1, 16), (16, 3, 6), (1, 4, 1)])
async def test_workers_share_the_connections(monkeypatch, connections, workers, expected):
    """Together they have as many as the class; each has at least one."""
    assert expected == Desk(monkeypatch, workers=workers, connections=connections).lane.most


async def test_the_head_is_encoded_once_without_what_http2_does_not_allow(monkeypatch):
    """Pseudo-fields first, names in lower case, no connection-specific fields (RFC 9113 section 8.2.2)."""
    extra = (("X-Extra", "Yes"), ("Connection", "close"), ("Host", "other"))
    desk = Desk(monkeypatch, method="POST", path="/echo?x=1", request_bytes=10, headers=extra)
    desk.fire()
    (stream,) = desk.engine.busy
    assert [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/echo?x=1"),
        (b":authority", b"127.0.0.1:1"),
        (b"x-extra", b"Yes"),
        (b"content-length", b"10"),
        (b"x-soak-id", stream.request_id),
    ] == Decoder().decode(desk.lane.compose(stream))


@pytest.mark.parametrize("changes", [{"connection": "new"}, {"headers": (("a", "v" * 17_000),)}])
async def test_what_cannot_be_sent_is_refused_at_the_start(monkeypatch, changes):
    """With the class in the sentence."""
    with pytest.raises(ValueError, match=r"^c: "):
        Desk(monkeypatch, **changes)


# -- real peers --------------------------------------------------------------------------------------------------------


async def honest(peer: H2Peer) -> None:
    while True:
        await peer.answer(*await peer.request())


async def silent(peer: H2Peer) -> None:
    await peer.request()
    await peer.peer.hang()


def sends(*raw: bytes, close: bool = False) -> H2Behaviour:
    """Answer the first request with these frames (on stream 1), then hang or close."""

    async def behave(peer: H2Peer) -> None:
        await peer.request()
        for piece in raw:
            await peer.peer.send(piece)
        if not close:
            await peer.peer.hang()

    return behave


def floods(raw: bytes) -> H2Behaviour:
    """Answer with the same bytes without end."""

    async def behave(peer: H2Peer) -> None:
        await peer.request()
        while True:
            await peer.peer.send(raw)

    return behave


def resets_each(code: int) -> H2Behaviour:
    async def behave(peer: H2Peer) -> None:
        while True:
            number, _ = await peer.request()
            await peer.peer.send(rst(number, code))

    return behave


async def goes_away_after_three(peer: H2Peer) -> None:
    for _ in range(2):
        await peer.answer(*await peer.request())
    number, request_id = await peer.request()
    await peer.peer.send(goaway(number))
    await peer.answer(number, request_id)
    await peer.peer.hang()


async def resets_the_connection(peer: H2Peer) -> None:
    await peer.request()
    peer.peer.reset()


async def closes_at_the_second(peer: H2Peer) -> None:
    await peer.answer(*await peer.request())
    await peer.request()


@dataclass
class Row:
    says: str
    behaviour: H2Behaviour
    expected: set[Outcome]
    spec: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)


QUICK = {"response_timeout_s": 0.15, "body_timeout_s": 0.2}
ROWS = [
    Row("good answers", honest, {O.OK}),
    Row("no answer", silent, {O.RESPONSE_TIMEOUT}, load=QUICK),
    Row("half an answer", sends(headers(1)), {O.BODY_TIMEOUT, O.RESPONSE_TIMEOUT}, load=QUICK),
    Row("REFUSED_STREAM", resets_each(7), {O.H2_REFUSED_STREAM}),
    Row("INTERNAL_ERROR", resets_each(2), {O.CUT_BEFORE_RESPONSE}),
    Row("GOAWAY for all", sends(goaway(0, 11), close=True), {O.H2_GOAWAY}),
    Row("GOAWAY after three", goes_away_after_three, {O.OK, O.H2_GOAWAY}),
    Row("a close", sends(close=True), {O.CUT_BEFORE_RESPONSE}),
    Row("a reset of the connection", resets_the_connection, {O.CUT_BEFORE_RESPONSE}),
    Row("a close amid the body", sends(headers(1), close=True), {O.CUT_MID_RESPONSE, O.CUT_BEFORE_RESPONSE}),
    Row("a close at the second request", closes_at_the_second, {O.OK, O.STALE_REUSE}, spec={"rate": 24}),
    Row("garbage", sends(b"\xff" * 9), {O.PROTOCOL_ERROR}),
    Row("somebody else's answers", sends(answer(1)), {O.IDENTITY_MISMATCH, O.RESPONSE_TIMEOUT}, load=QUICK),
    Row("PING without end", floods(h2.frame(h2.PING, 0, 0, b"8" * 8) * 100), {O.PROTOCOL_ERROR}),
    Row("1xx without end", floods(headers(1, block(status=b"103")) * 50), {O.PROTOCOL_ERROR}),
    Row(
        "a header block without end",
        floods(h2.frame(h2.CONTINUATION, 0, 1, b"\0" * 9000)),
        {O.PROTOCOL_ERROR},
    ),
]


def attack(row: Row) -> Result:
    """Run a row over plain TCP (prior knowledge): the frames are the same without TLS."""
    shape = {"rate": 100, "protocol": "h2", **row.spec}
    brief = {} if row.spec else {"seconds": 0.1}
    server = Server(speaking_h2(row.behaviour))
    return run(against(server, lambda port: slice_of(spec(port, **shape), **brief, **row.load)))


@pytest.mark.parametrize("row", ROWS, ids=[r.says for r in ROWS])
def test_a_peer_that_sends(row: Row) -> None:
    """Each behaviour has its outcome, for every request; the books balance; nothing raised, nothing was hoarded."""
    result = attack(row)
    assert row.expected >= set(result.outcomes)
    assert result.total("sent") == result.total("scheduled") > 0
    if O.OK not in row.expected:
        assert all(e.error and e.done_s >= e.sent_s >= e.due_s for e in result.evidence)


def test_a_peer_that_never_says_settings() -> None:
    """It takes the connection and is silent: response_timeout, and the connection is closed by us."""

    async def mute(peer: Peer) -> None:
        await peer.hang()

    result = run(against(Server(mute), lambda port: slice_of(spec(port, protocol="h2"), **QUICK)))
    assert {O.RESPONSE_TIMEOUT: 10} == result.outcomes


def test_a_peer_that_speaks_http1() -> None:
    """protocol_error, and the text shows what it said."""

    async def old(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    result = run(against(Server(old), lambda port: slice_of(spec(port, protocol="h2"))))
    assert {O.PROTOCOL_ERROR: 10} == result.outcomes
    assert "HTTP/1.1 400" in result.evidence[0].error


def test_nobody_listens() -> None:
    """Every request is told, also those that waited for the same dial."""

    async def main() -> Result:
        async with Server(well_behaved) as server:
            port = server.port
        return (await drive(slice_of(spec(port, protocol="h2", rate=1000), seconds=0.1))).check()

    assert {O.CONNECT_REFUSED: 100} == run(main()).outcomes


def test_one_connection_carries_many_requests_and_is_closed_by_us_at_the_end() -> None:
    """Ten requests, nine of them reused; the close comes after the last report."""
    result = run(against(Server(speaking_h2(honest)), lambda port: slice_of(spec(port, protocol="h2"))))
    assert {O.OK: 10} == result.outcomes
    assert (1, 9) == (result.connections("opened"), result.connections("reused"))
    assert (1, 1) == (result.reports[-1].open_connections, result.reports[-1].idle_connections)


def test_no_more_streams_than_allowed_are_ever_open() -> None:
    """Against a slow peer, two connections of two streams: four in flight, the other slots dropped, none queued."""
    excess: list[bool] = []
    over = asyncio.Event()

    async def slow(peer: H2Peer) -> None:
        asked = [await peer.request(), await peer.request()]
        async with asyncio.TaskGroup() as group:
            third = group.create_task(peer.request())
            await over.wait()
            excess.append(third.done())
            for number, request_id in asked:
                await peer.answer(number, request_id)

    async def patient(peer: H2Peer) -> None:
        try:
            await slow(peer)
        except* EOFError:  # the client is done
            pass

    shape = {"protocol": "h2", "rate": 100, "connections": 2, "streams": 2}

    async def paced(engine: Engine) -> None:
        while engine._pacing:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # for a third request that must not come
        over.set()

    async def main() -> Result:
        async with Server(speaking_h2(patient)) as server:
            return (await drive(slice_of(spec(server.port, **shape)), paced)).check()

    result = run(main())
    assert [False, False] == excess
    assert {O.OK: 4} == result.outcomes
    assert (4, 21, 0) == tuple(result.total(w) for w in ("sent", "dropped", "missed"))


def test_goaway_makes_a_new_connection_and_loses_only_what_it_excluded() -> None:
    """Three requests a connection, closed by the peer's wish; what crossed the GOAWAY is h2_goaway, nothing else fails."""
    result = run(
        against(
            Server(speaking_h2(goes_away_after_three)),
            lambda port: slice_of(spec(port, protocol="h2", rate=60), seconds=0.5),
        )
    )
    assert 30 == result.outcomes[O.OK] + result.outcomes[O.H2_GOAWAY]
    assert 3 * result.connections("opened") >= result.outcomes[O.OK] >= 15
    assert 0 == result.connections("closed_by_us")


def test_max_age_turns_connections_over_without_a_loss() -> None:
    """An old one takes no new requests and closes when it is idle."""
    result = unhurried(
        lambda: run(
            against(
                Server(speaking_h2(honest)),
                lambda port: slice_of(spec(port, protocol="h2", rate=100), seconds=0.8, max_age_s=0.1),
            )
        )
    )
    assert {O.OK: 80} == result.outcomes
    assert result.connections("opened") >= 3
    assert result.connections("closed_by_us") >= 2


def test_our_close_says_goodbye() -> None:
    """The last frame that a peer gets from a retired connection is GOAWAY NO_ERROR, then the end of the stream."""
    last: list[tuple[int, bytes]] = []

    async def listens(peer: H2Peer) -> None:
        await peer.answer(*await peer.request())
        try:
            while True:
                kind, _, _, payload = await peer.frame()
                last.append((kind, payload))
        except asyncio.IncompleteReadError as error:
            last.append((-1, error.partial))

    load = {"seconds": 0.5, "max_age_s": 0.05}
    result = run(
        against(
            Server(speaking_h2(listens)), lambda port: slice_of(spec(port, protocol="h2", rate=2), **load)
        )
    )
    assert {O.OK: 1} == result.outcomes
    assert [(h2.GOAWAY, bytes(8)), (-1, b"")] == last[-2:]


def test_a_peer_that_does_not_read_our_goodbye_is_left() -> None:
    """Its window full of a request's body, it breaks the protocol and reads nothing: after a second its socket is gone."""
    gone: list[float] = []

    async def deaf(peer: Peer) -> None:
        await peer.reader.readexactly(24)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a read transport too
        await peer.send(h2.settings({4: 1 << 30}) + h2.window_update(0, 1 << 30))
        await asyncio.sleep(0.1)
        turns = 0  # not time: this process may have stood still meanwhile
        await peer.send(h2.frame(h2.PUSH_PROMISE, 0, 1))
        try:
            while True:
                await asyncio.sleep(0.02)
                turns += 1
                await peer.send(b"\0" * 100_000)
        except OSError:
            gone.append(turns * 0.02)
            raise

    async def main() -> Result:
        async with Server(deaf) as server:
            big = {"protocol": "h2", "method": "POST", "request_bytes": 1 << 24, "rate": 4}
            result = (await drive(slice_of(spec(server.port, **big)))).check()
            async with asyncio.timeout(30):
                while not gone:
                    await asyncio.sleep(0.02)
            return result

    assert {O.PROTOCOL_ERROR: 1} == run(main()).outcomes
    assert gone[0] < 3


def test_large_bodies_both_ways_are_checked_and_not_kept() -> None:
    """512 KiB up through the peer's windows and down through ours, right to the last byte."""
    size = 512 * 1024

    async def echoes(peer: H2Peer) -> None:
        while True:
            number, request_id = await peer.request()
            await peer.answer(number, request_id, pattern(peer.bodies[number]))

    big = {"method": "POST", "request_bytes": size, "response_bytes": size, "rate": 20, "protocol": "h2"}
    result = run(against(Server(speaking_h2(echoes)), lambda port: slice_of(spec(port, **big))))
    assert {O.OK: 5} == result.outcomes
    assert 5 * size == result.total("bytes_received")


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("ca") / "certs")


def over_tls(authority: Authority, directory: Path, alpn: list[str], behave: H2Behaviour = honest) -> Result:
    """Run against a TLS server that offers these protocols."""
    pair = authority.leaf(NAME)
    chain, key = directory / "chain.pem", directory / "key.pem"
    chain.write_bytes(pair.chain_pem)
    key.write_bytes(pair.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    if alpn:
        context.set_alpn_protocols(alpn)
    made = {"tls": True, "server_name": NAME, "protocol": "h2"}
    load = {"ca_file": str(authority.ca_pem)}
    server = Server(speaking_h2(behave), context)
    return run(against(server, lambda port: slice_of(spec(port, **made), **load)))


def test_h2_is_agreed_on_by_alpn(authority: Authority, tmp_path: Path) -> None:
    """One handshake, many requests, the certificate seen."""
    result = over_tls(authority, tmp_path, ["h2", "http/1.1"])
    assert {O.OK: 10} == result.outcomes
    assert (1, 1) == (result.connections("opened"), result.connections("tls_full"))


@pytest.mark.parametrize("alpn", [[], ["http/1.1"]])
def test_a_server_without_h2_is_an_outcome(authority: Authority, tmp_path: Path, alpn: list[str]) -> None:
    """tls_handshake with a clear text; no connection counts as opened."""
    result = over_tls(authority, tmp_path, alpn)
    assert {O.TLS_HANDSHAKE: 10} == result.outcomes
    assert "the peer did not choose h2 by ALPN but None" == result.evidence[0].error
    assert 0 == result.connections("opened")


def test_a_cut_amid_an_answer_over_tls(authority: Authority, tmp_path: Path) -> None:
    """A TCP end without close_notify: each stream has an outcome of its own, by what it had got until then."""

    async def cuts(peer: H2Peer) -> None:
        number, _ = await peer.request()
        await peer.peer.send(headers(number))
        peer.peer.writer.transport.abort()

    result = over_tls(authority, tmp_path, ["h2"], cuts)
    assert 10 == result.total("sent")
    assert {O.CUT_MID_RESPONSE, O.CUT_BEFORE_RESPONSE} >= set(result.outcomes)
    assert result.connections("opened") == result.outcomes[O.CUT_MID_RESPONSE], (
        "one of each connection was answered"
    )
