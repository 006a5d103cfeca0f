"""Frames without a socket: what servers may send comes out whole, what they must not is said to be wrong."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soak.lab.websocket import EchoSocket
from soak.load.wsframes import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    FrameError,
    FrameReader,
    Received,
    accept_of,
    client_frame,
    masked,
)
from tests.soak.load.wspeer import frame


def take_all(reader: FrameReader) -> list[Received]:
    out: list[Received] = []
    while (received := reader.take()) is not None:
        out.append(received)
    return out


def test_the_accept_is_that_of_the_standard() -> None:
    """The example of RFC 6455 section 1.3."""
    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" == accept_of(b"dGhlIHNhbXBsZSBub25jZQ==")


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_the_mask_goes_over_every_byte(payload: bytes, mask: bytes) -> None:
    """Byte i with byte i mod 4, and twice is nothing."""
    hidden = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
    assert hidden == masked(payload, mask)
    assert payload == masked(hidden, mask)


@pytest.mark.parametrize("n", [0, 1, 125, 126, 65_535, 65_536, 200_000])
def test_what_we_send_an_independent_server_understands(n: int) -> None:
    """The lab's own echo unmasks it, and its echo comes back whole."""
    payload = b"x" * n
    reader = FrameReader(1 << 20)
    reader.feed(EchoSocket().feed(client_frame(TEXT, payload, b"\x01\x02\x03\x04")))
    assert [Received(TEXT, payload)] == take_all(reader)


@given(
    st.lists(st.tuples(st.sampled_from([TEXT, BINARY, PING, PONG]), st.binary(max_size=125))),
    st.integers(1, 40),
)
def test_it_does_not_matter_in_which_pieces_bytes_come(sent: list[tuple[int, bytes]], piece: int) -> None:
    """Frames come out whole and in order."""
    stream = b"".join(frame(opcode, payload) for opcode, payload in sent)
    reader = FrameReader(1000)
    out: list[Received] = []
    for at in range(0, len(stream), piece):
        reader.feed(stream[at : at + piece])
        out += take_all(reader)
    assert [Received(*one) for one in sent] == out
    assert not reader.mid_message


def test_fragments_become_one_message_and_control_frames_pass_between_them() -> None:
    """RFC 6455 section 5.4; while the message is not whole, the reader says so."""
    reader = FrameReader(1000)
    reader.feed(frame(TEXT, b"ab", fin=False) + frame(PING, b"?") + frame(CONTINUATION, b"", fin=False))
    assert [Received(PING, b"?")] == take_all(reader)
    assert reader.mid_message
    reader.feed(frame(CONTINUATION, b"c") + frame(BINARY, b"d"))
    assert [Received(TEXT, b"abc"), Received(BINARY, b"d")] == take_all(reader)
    assert not reader.mid_message


@pytest.mark.parametrize(
    ("data", "mid"), [(b"\x81", True), (b"\x81\x05he", True), (b"\x89\x05he", False), (b"", False)]
)
def test_the_first_byte_tells_a_message_from_a_control_frame(data: bytes, mid: bool) -> None:
    """Half a ping is no beginning of an echo."""
    reader = FrameReader(1000)
    reader.feed(data)
    assert [] == take_all(reader)
    assert mid is reader.mid_message


@pytest.mark.parametrize(
    ("payload", "code", "reason"),
    [(b"", None, ""), (b"\x03\xe9going away", 1001, "going away"), (b"\x0f\xa0", 4000, "")],
)
def test_a_close_frame_is_the_last_thing(payload: bytes, code: int | None, reason: str) -> None:
    """Its code and reason are read; what follows is not looked at."""
    reader = FrameReader(1000)
    reader.feed(frame(CLOSE, payload) + b"\xff\xff")
    received = reader.take()
    assert received is not None
    assert (CLOSE, code, reason) == (received.opcode, received.close_code, received.close_reason)
    reader.feed(frame(TEXT, b"x"))
    assert reader.take() is None


BROKEN = [
    ("a reserved bit", frame(TEXT, b"x", rsv=4), "reserved bit"),
    ("a reserved bit in half a frame", frame(TEXT, b"x", rsv=1)[:1], "reserved bit"),
    ("a reserved data opcode", frame(3, b"x"), "opcode 3"),
    ("a reserved control opcode", frame(11, b"x"), "opcode 11"),
    ("a mask", frame(TEXT, b"x", mask=b"abcd"), "masked"),
    ("a long ping", frame(PING, b"x" * 126), "longer than 125"),
    ("a ping in pieces", frame(PING, b"x", fin=False), "fragmented"),
    ("a continuation of nothing", frame(CONTINUATION, b"x"), "continuation of nothing"),
    ("a message inside another", frame(TEXT, b"x", fin=False) + frame(TEXT, b"y"), "inside a fragmented"),
    (
        "a message that is too long, by its head alone",
        b"\x81\x7f" + (1 << 40).to_bytes(8, "big"),
        "longer than 1000",
    ),
    (
        "fragments that are too long together",
        frame(TEXT, b"x" * 600, fin=False) * 1 + frame(0, b"y" * 600),
        "longer",
    ),
    ("a wasteful length", b"\x81\x7e\x00\x05hello", "fewest bytes"),
    ("a wasteful long length", b"\x81\x7f" + (5).to_bytes(8, "big") + b"hello", "fewest bytes"),
    ("a close with half a code", frame(CLOSE, b"\x03"), "invalid code"),
    ("a close with a code that may not be sent", frame(CLOSE, (1006).to_bytes(2, "big")), "invalid code"),
    ("a close whose reason is no text", frame(CLOSE, b"\x03\xe8\xff\xfe"), "not UTF-8"),
]


@pytest.mark.parametrize(("data", "says"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_broken_rule_is_named_once(data: bytes, says: str) -> None:
    """What came whole before it still comes out; after it nothing does."""
    reader = FrameReader(1000)
    reader.feed(frame(BINARY, b"before") + data)
    assert Received(BINARY, b"before") == reader.take()
    with pytest.raises(FrameError, match=says):
        take_all(reader)
    reader.feed(frame(TEXT, b"x"))
    assert reader.take() is None
    assert not reader.mid_message


@given(st.binary(max_size=400), st.integers(1, 30))
def test_whatever_comes_is_bounded_and_raises_nothing_else(data: bytes, piece: int) -> None:
    """Random bytes: messages, or one ``FrameError``."""
    reader = FrameReader(64)
    with contextlib.suppress(FrameError):
        for at in range(0, len(data), piece):
            reader.feed(data[at : at + piece])
            for received in take_all(reader):
                assert len(received.payload) <= 125
