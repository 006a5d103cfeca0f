"""HTTP/2 frames as bytes, against the layouts of RFC 9113."""

from __future__ import annotations

import pytest

from soak.load import h2frames as h2
from soak.load.h2frames import Code, H2Error
from tests.soak.load.h2rig import frames


def test_a_frame_has_nine_bytes_of_head():
    """Length of 24 bits, type, flags, stream (section 4.1)."""
    assert bytes.fromhex("000008 06 01 00000000") + b"12345678" == h2.frame(h2.PING, h2.ACK, 0, b"12345678")
    assert bytes.fromhex("000004 03 00 00000007 00000008") == h2.rst_stream(7, Code.CANCEL)
    assert bytes.fromhex("000004 08 00 00000000 00010000") == h2.window_update(0, 65536)


def test_the_opening_is_preface_settings_and_a_wide_window():
    """No pushes; what we announce is what we enforce (sections 3.4 and 6.5.2)."""
    opening = h2.opening()
    assert opening.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    (settings, update) = frames(opening[24:])
    assert (h2.SETTINGS, 0, 0) == settings[:3]
    assert [(2, 0), (4, h2.STREAM_WINDOW), (6, 65536)] == h2.parse_settings(settings[3])
    assert (h2.WINDOW_UPDATE, 0, 0) == update[:3]
    assert h2.CONNECTION_WINDOW == h2.DEFAULT_WINDOW + h2.u32(update[3])


def test_goaway_says_why_and_little_more():
    """No stream of the peer was processed; debug data is bounded (section 6.8)."""
    ((kind, _, number, payload),) = frames(h2.goaway(Code.PROTOCOL_ERROR, b"x" * 1000))
    assert (h2.GOAWAY, 0) == (kind, number)
    assert (0, 1, 256) == (h2.u32(payload), h2.u32(payload, 4), len(payload) - 8)


def test_settings_come_in_sixes():
    """Anything else is a frame of a wrong size."""
    with pytest.raises(H2Error, match="multiple of 6") as error:
        h2.parse_settings(b"1234567")
    assert Code.FRAME_SIZE_ERROR is error.value.code


@pytest.mark.parametrize(
    ("expected", "payload", "flags"),
    [
        (b"abc", b"abc", 0),
        (b"abc", b"\0abc", h2.PADDED),
        (b"abc", b"\3abc\0\0\0", h2.PADDED),
        (b"", b"\3\0\0\0", h2.PADDED),
    ],
)
def test_padding_is_taken_off(expected, payload, flags):
    """A frame may be all padding (section 6.1)."""
    assert expected == h2.unpadded(payload, flags)


@pytest.mark.parametrize(
    ("code", "payload"), [(Code.PROTOCOL_ERROR, b"\4\0\0\0"), (Code.FRAME_SIZE_ERROR, b"")]
)
def test_more_padding_than_payload_is_refused(code, payload):
    """As long as the payload is too long already."""
    with pytest.raises(H2Error, match="padd") as error:
        h2.unpadded(payload, h2.PADDED)
    assert code is error.value.code


def test_codes_have_names_and_unknown_ones_their_number():
    """What a person reads in an error text."""
    assert ("ENHANCE_YOUR_CALM", "error code 0x4d2") == (h2.code_name(11), h2.code_name(1234))
