"""The rules of RFC 6455, one by one, without a socket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soak.lab.websocket import MAX_MESSAGE_BYTES, EchoSocket, accept_of, frame, unmasked

from .client import ACCEPT, KEY, masked

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def test_the_accept_is_that_of_the_standard():
    """The example of RFC 6455 section 1.3, and the key that these tests use."""
    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" == accept_of(b"dGhlIHNhbXBsZSBub25jZQ==")
    assert ACCEPT.encode() == accept_of(KEY.encode())


@pytest.mark.parametrize("key", [b"", b"short", b"bm90IHNpeHRlZW4=", b"dGhlIHNhbXBsZSBub25jZQ==\xff"])
def test_a_key_that_is_not_sixteen_bytes_is_none(key):
    """Missing, not base64, too short."""
    assert accept_of(key) is None


@pytest.mark.parametrize("n", [0, 1, 125, 126, 65_535, 65_536, MAX_MESSAGE_BYTES])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_a_message_of_each_length_spelling_is_echoed(n, opcode):
    """Same opcode, same bytes, unmasked, the length in its shortest form."""
    socket = EchoSocket()
    echo = socket.feed(masked(opcode, b"x" * n))

    assert (0x80 | opcode, 1, False) == (echo[0], socket.messages, socket.closed)
    assert echo.endswith(b"x" * n)
    assert (2 if n < 126 else 4 if n < 65_536 else 10) == len(echo) - n


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_masking_is_undone(payload, mask):
    """Byte i with byte i mod 4 of the mask."""
    hidden = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))

    assert payload == unmasked(hidden, mask)


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5), st.integers(1, 50))
def test_it_does_not_matter_how_bytes_arrive(messages, piece):
    """Whole frames come back in order, however they were cut on the way."""
    socket = EchoSocket()
    stream = b"".join(masked(BINARY, message) for message in messages)
    out = b"".join(socket.feed(stream[i : i + piece]) for i in range(0, len(stream), piece))

    assert b"".join(frame(BINARY, message) for message in messages) == out
    assert len(messages) == socket.messages


def test_fragments_are_echoed_as_one_message_and_may_be_interrupted_by_a_ping():
    """RFC 6455 section 5.4."""
    socket = EchoSocket()
    out = socket.feed(masked(TEXT, b"gr\xc3", final=False))
    assert b"" == out
    assert frame(PONG, b"still there?") == socket.feed(masked(PING, b"still there?"))
    assert b"" == socket.feed(masked(0, b"\xbc", final=False))

    assert frame(TEXT, "grün".encode()) == socket.feed(masked(0, b"n"))
    assert 1 == socket.messages


def test_a_pong_is_not_answered():
    """Unsolicited ones are allowed (section 5.5.3)."""
    assert b"" == EchoSocket().feed(masked(PONG, b"hello"))


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"", b"\x88\x00"),
        ((1000).to_bytes(2, "big") + b"bye", b"\x88\x02\x03\xe8"),
        ((4999).to_bytes(2, "big"), b"\x88\x02\x13\x87"),
    ],
)
def test_a_close_is_answered_with_its_code(sent, answered):
    """Then nothing more is read."""
    socket = EchoSocket()

    assert answered == socket.feed(masked(CLOSE, sent) + masked(TEXT, b"too late"))
    assert (True, False, 0) == (socket.closed, socket.broken, socket.messages)
    assert b"" == socket.feed(masked(TEXT, b"too late"))


@pytest.mark.parametrize(
    ("code", "sent"),
    [
        (1002, frame(TEXT, b"not masked")),
        (1002, b"\xc1\x80\x00\x00\x00\x00"),  # reserved bit
        (1002, masked(3, b"")),  # reserved opcode
        (1002, masked(0, b"continues nothing")),
        (1002, masked(TEXT, b"a", final=False) + masked(TEXT, b"b")),
        (1002, masked(PING, b"x" * 126)),
        (1002, masked(PING, b"x", final=False)),
        (1002, masked(CLOSE, b"\x03")),
        (1002, masked(CLOSE, (1005).to_bytes(2, "big"))),
        (1002, masked(CLOSE, (999).to_bytes(2, "big"))),
        (1007, masked(TEXT, b"\xff")),
        (1007, masked(CLOSE, (1000).to_bytes(2, "big") + b"\xff")),
        (1009, b"\x82\xff" + (MAX_MESSAGE_BYTES + 1).to_bytes(8, "big")),
        (1009, b"\x82\xff" + (2**63).to_bytes(8, "big")),
        (1009, masked(BINARY, b"x" * MAX_MESSAGE_BYTES, final=False) + masked(0, b"y")),
    ],
)
def test_a_broken_rule_ends_it_with_its_code(code, sent):
    """Protocol error, not text, too big: section 7.4.1. A reason that a person can read."""
    socket = EchoSocket()
    out = socket.feed(sent)

    assert 0x88 == out[0]
    assert code.to_bytes(2, "big") == out[2:4]
    assert len(out) > 10
    assert (True, True) == (socket.closed, socket.broken)


def test_a_ping_between_the_pieces_of_a_full_message_is_no_excess():
    """The bound is on messages; control frames have their own."""
    socket = EchoSocket()
    socket.feed(masked(BINARY, b"x" * MAX_MESSAGE_BYTES, final=False))

    assert frame(PONG, b"x") == socket.feed(masked(PING, b"x"))


@given(st.binary(max_size=2000))
def test_noise_never_raises_and_never_grows(noise):
    """Whatever comes is answered, waited for or refused."""
    socket = EchoSocket()
    for _ in range(3):
        socket.feed(noise)

    assert len(socket._buffer) + len(socket._fragments) <= MAX_MESSAGE_BYTES + 6000
