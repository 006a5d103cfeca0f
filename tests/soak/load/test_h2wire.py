"""The wire: bytes cut into frames however they come, and every breach of framing named."""

from __future__ import annotations

import pytest

from soak.load import h2frames as h2
from soak.load.h2wire import MAX_IDLE_FRAMES, MAX_UNREAD_REPLIES
from soak.model import Outcome
from tests.soak.load.h2rig import LAST, READY, Bench, answer, block, data, frames, headers

O = Outcome  # noqa: E741 -- the table is the point
OVERSIZED = (16_385 << 8 | h2.DATA).to_bytes(4, "big") + b"\0" + (1).to_bytes(4, "big")


def code_of(bench: Bench) -> int:
    """The code of the GOAWAY that we sent last."""
    kind, _, number, payload = bench.said[-1]
    assert (h2.GOAWAY, 0) == (kind, number)
    return h2.u32(payload, 4)


BREACHES = [
    ("an oversized frame", OVERSIZED, 6, "16385"),
    ("too much padding", h2.frame(h2.DATA, h2.PADDED, 1, b"\5abc"), 1, "padding"),
    ("padding without a length", h2.frame(h2.DATA, h2.PADDED, 1), 6, "padded"),
    ("too much padding of fields", h2.frame(h2.HEADERS, h2.PADDED | LAST, 1, b"\x01"), 1, "padding"),
    (
        "fields without their priority",
        h2.frame(h2.HEADERS, h2.HAS_PRIORITY | LAST, 1, b"1234"),
        6,
        "priority",
    ),
    ("PING of 7 bytes", h2.frame(h2.PING, 0, 0, b"1234567"), 6, "PING"),
    ("PING on a stream", h2.frame(h2.PING, 0, 1, b"12345678"), 1, "PING on stream 1"),
    ("SETTINGS of 5 bytes", h2.frame(h2.SETTINGS, 0, 0, b"12345"), 6, "multiple of 6"),
    ("SETTINGS on a stream", h2.frame(h2.SETTINGS, 0, 1), 1, "SETTINGS on stream 1"),
    ("an acknowledgement with content", h2.frame(h2.SETTINGS, h2.ACK, 0, b"123456"), 6, "acknowledgement"),
    ("GOAWAY of 7 bytes", h2.frame(h2.GOAWAY, 0, 0, b"1234567"), 6, "GOAWAY of 7"),
    ("GOAWAY on a stream", h2.frame(h2.GOAWAY, 0, 1, b"12345678"), 1, "GOAWAY on stream 1"),
    ("WINDOW_UPDATE of 3 bytes", h2.frame(h2.WINDOW_UPDATE, 0, 0, b"123"), 6, "WINDOW_UPDATE"),
    ("RST_STREAM of 5 bytes", h2.frame(h2.RST_STREAM, 0, 1, b"12345"), 6, "RST_STREAM"),
    ("PUSH_PROMISE", h2.frame(h2.PUSH_PROMISE, LAST, 1, b"\0\0\0\2" + block()), 1, "PUSH_PROMISE"),
    ("PRIORITY on the connection", h2.frame(h2.PRIORITY, 0, 0, b"12345"), 1, "PRIORITY"),
    ("CONTINUATION out of nowhere", h2.frame(h2.CONTINUATION, LAST, 1, block()), 1, "continues nothing"),
    ("CONTINUATION of another stream", headers(1, block(), 0) + h2.frame(9, 4, 3), 1, "continues nothing"),
    ("DATA amid a header block", headers(1, block(), 0) + data(1), 1, "interrupted"),
    (
        "PING amid a header block",
        headers(1, block(), 0) + h2.frame(h2.PING, 0, 0, b"8" * 8),
        1,
        "interrupted",
    ),
    ("an unknown frame amid a header block", headers(1, block(), 0) + h2.frame(99, 0, 1), 1, "interrupted"),
    ("a header bomb", headers(1, b"", 0) + h2.frame(9, 0, 1, b"\0" * 16_384) * 5, 11, "larger than 65536"),
    ("a header block of nothings", headers(1, b"", 0) + h2.frame(9, 0, 1) * 100, 11, "too many pieces"),
    ("a PING flood", h2.frame(h2.PING, 0, 0, b"8" * 8) * (MAX_IDLE_FRAMES + 1), 11, "carry nothing"),
    ("a SETTINGS flood", h2.settings({}) * (MAX_IDLE_FRAMES + 1), 11, "carry nothing"),
    ("a flood of unknown frames", h2.frame(77, 0, 0) * (MAX_IDLE_FRAMES + 1), 11, "carry nothing"),
    ("a flood of empty DATA", headers(1) + data(1, b"", 0) * (MAX_IDLE_FRAMES + 1), 11, "carry nothing"),
]


@pytest.mark.parametrize(("_", "raw", "code", "says"), BREACHES, ids=[b[0] for b in BREACHES])
async def test_a_breach_ends_the_connection(_, raw, code, says):
    """Every request is a protocol_error with the reason; the peer is told the code; what follows is not read."""
    bench = Bench(2)
    bench.feed(raw, answer(3))
    assert {O.PROTOCOL_ERROR} == {bench.end(1), bench.end(3)}
    assert says in bench.text(1)
    assert code == code_of(bench)
    assert bench.transport.closing
    bench.lose()
    assert 2 == len(bench.lane.ends)


FIRSTS = [
    ("HTTP/1.1", b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    ("an acknowledgement", h2.SETTINGS_ACK),
    ("PING", h2.frame(h2.PING, 0, 0, b"12345678")),
    ("GOAWAY", h2.frame(h2.GOAWAY, 0, 0, bytes(8))),
    ("an answer", answer(1)),
]


@pytest.mark.parametrize(("_", "raw"), FIRSTS, ids=[f[0] for f in FIRSTS])
async def test_the_first_frame_must_be_settings(_, raw):
    """A server's preface (section 3.4); the text shows what came."""
    bench = Bench(first=raw)
    assert O.PROTOCOL_ERROR is bench.end()
    assert "the first frame is no SETTINGS" in bench.text()
    assert [] == bench.said_of(h2.HEADERS)


IGNORED = [
    ("an unknown frame", h2.frame(200, 255, 1, b"anything")),
    ("PRIORITY", h2.frame(h2.PRIORITY, 0, 1, b"12345") + h2.frame(h2.PRIORITY, 0, 9, b"1")),
    ("an answer to a PING", h2.frame(h2.PING, h2.ACK, 0, b"12345678")),
    ("unknown settings", h2.settings({77: 1, 3: 100})),
    ("a wide window", h2.window_update(0, 1000) + h2.window_update(1, 1000)),
    ("a reserved bit", h2.HEAD.pack(h2.WINDOW_UPDATE | 4 << 8, 0, 1 << 31 | 1) + b"\x80\0\0\1"),
]


@pytest.mark.parametrize(("_", "raw"), IGNORED, ids=[i[0] for i in IGNORED])
async def test_what_does_not_concern_us_changes_nothing(_, raw):
    """Before, within and after the answer."""
    bench = Bench()
    bench.feed(raw, headers(1), raw, data(1), raw)
    assert O.OK is bench.end()
    assert not bench.transport.closing


VARIANTS = [
    ("plain", answer(1)),
    ("padded", h2.frame(h2.HEADERS, 12, 1, b"\2" + block((b"x-soak-id", b"1")) + b"\0\0") + data(1)),
    ("with priority", h2.frame(h2.HEADERS, 0x24, 1, b"12345" + block((b"x-soak-id", b"1"))) + data(1)),
    (
        "padded body",
        headers(1) + b"".join(data(1, b"\1%c\0" % c, h2.PADDED) for c in b"000000000000") + data(1, b"0000"),
    ),
    (
        "continued",
        headers(1, block((b"x-soak-id", b"1"))[:3], 0)
        + h2.frame(h2.CONTINUATION, 0, 1)
        + h2.frame(h2.CONTINUATION, h2.END_HEADERS, 1, block((b"x-soak-id", b"1"))[3:])
        + data(1),
    ),
    ("in empty pieces", headers(1) + data(1, b"", 0) + data(1, flags=0) + data(1, b"")),
    ("with trailers", headers(1) + data(1, flags=0) + headers(1, block()[1:] + b"\0\1t\1v", LAST)),
]


@pytest.mark.parametrize("size", [1, 2, 9, 13, 1 << 20])
@pytest.mark.parametrize(("_", "raw"), VARIANTS, ids=[v[0] for v in VARIANTS])
async def test_an_answer_is_the_same_however_it_is_cut(_, raw, size):
    """Byte by byte, or whole: length and outcome are those of the frames."""
    bench = Bench(first=b"")
    whole = READY + raw
    bench.feed(*(whole[i : i + size] for i in range(0, len(whole), size)))
    assert (O.OK, 16) == (bench.end(), bench.requests[0].body_length)


async def test_pings_and_settings_are_answered():
    """With the same eight bytes, and an acknowledgement for each SETTINGS."""
    bench = Bench()
    bench.feed(h2.frame(h2.PING, 0, 0, b"ABCDEFGH"), h2.settings({3: 5}))
    await bench.settle()
    assert [(h2.PING, h2.ACK, 0, b"ABCDEFGH")] == bench.said_of(h2.PING)
    assert [(h2.SETTINGS, h2.ACK, 0, b"")] * 2 == bench.said_of(h2.SETTINGS)


async def test_a_peer_that_does_not_read_its_replies_gets_no_more():
    """Past a bound of replies while the transport is full; when it reads again, the count begins anew."""
    bench = Bench()
    ping = h2.frame(h2.PING, 0, 0, b"ABCDEFGH")
    for _ in range(2):
        bench.connection.pause_writing()
        bench.feed(ping * MAX_UNREAD_REPLIES)
        assert bench.end() is None
        bench.connection.resume_writing()
    bench.connection.pause_writing()
    bench.feed(ping * (MAX_UNREAD_REPLIES + 1))
    assert O.PROTOCOL_ERROR is bench.end()
    assert "does not read" in bench.text()
    assert bench.transport.closing


async def test_all_that_is_said_in_a_turn_goes_out_together():
    """Three requests are one write."""
    bench = Bench()
    await bench.settle()
    before = len(bench.transport.written)
    for _ in range(3):
        bench.ask()
    assert before == len(bench.transport.written)
    await bench.settle()
    assert [3, 5, 7] == [number for _, _, number, _ in frames(bytes(bench.transport.written[before:]))]
