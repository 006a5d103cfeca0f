"""HPACK: the examples of RFC 7541 appendix C byte for byte, and every bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soak.load import hpack
from soak.load.hpack import Decoder, HpackError, huffman_decode, integer, literal, literal_head


def plain(text: str) -> list[tuple[bytes, bytes]]:
    """Fields from lines as the RFC prints them."""
    out = []
    for line in text.strip().splitlines():
        name, _, value = line.strip().lstrip(":").partition(": ")
        out.append(((b":" if line.strip().startswith(":") else b"") + name.encode(), value.encode()))
    return out


SINGLES = [
    (
        "C.2.1 with indexing",
        "400a637573746f6d2d6b65790d637573746f6d2d686561646572",
        "custom-key: custom-header",
        55,
    ),
    ("C.2.2 without indexing", "040c2f73616d706c652f70617468", ":path: /sample/path", 0),
    ("C.2.3 never indexed", "100870617373776f726406736563726574", "password: secret", 0),
    ("C.2.4 indexed", "82", ":method: GET", 0),
]


@pytest.mark.parametrize(("_", "block", "expected", "size"), SINGLES, ids=[s[0] for s in SINGLES])
def test_single_fields(_, block, expected, size):
    """RFC 7541 appendix C.2, with the size of the table that they leave."""
    decoder = Decoder()
    assert plain(expected) == decoder.decode(bytes.fromhex(block))
    assert size == decoder.table_bytes


REQUESTS = [
    """:method: GET
       :scheme: http
       :path: /
       :authority: www.example.com""",
    """:method: GET
       :scheme: http
       :path: /
       :authority: www.example.com
       cache-control: no-cache""",
    """:method: GET
       :scheme: https
       :path: /index.html
       :authority: www.example.com
       custom-key: custom-value""",
]
RESPONSES = [
    """:status: 302
       cache-control: private
       date: Mon, 21 Oct 2013 20:13:21 GMT
       location: https://www.example.com""",
    """:status: 307
       cache-control: private
       date: Mon, 21 Oct 2013 20:13:21 GMT
       location: https://www.example.com""",
    """:status: 200
       cache-control: private
       date: Mon, 21 Oct 2013 20:13:22 GMT
       location: https://www.example.com
       content-encoding: gzip
       set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1""",
]
SERIES = [
    (
        "C.3 requests",
        4096,
        REQUESTS,
        [
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ],
        [57, 110, 164],
    ),
    (
        "C.4 requests with Huffman",
        4096,
        REQUESTS,
        [
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ],
        [57, 110, 164],
    ),
    (
        "C.5 responses",
        256,
        RESPONSES,
        [
            (
                "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54"
                "6e1768747470733a2f2f7777772e6578616d706c652e636f6d"
            ),
            "4803333037c1c0bf",
            (
                "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d"
                "4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b20766572"
                "73696f6e3d31"
            ),
        ],
        [222, 222, 215],
    ),
    (
        "C.6 responses with Huffman",
        256,
        RESPONSES,
        [
            (
                "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff"
                "6e919d29ad171863c78f0b97c8e9ae82ae43d3"
            ),
            "4883640effc1c0bf",
            (
                "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd"
                "5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007"
            ),
        ],
        [222, 222, 215],
    ),
]


@pytest.mark.parametrize(("_", "limit", "lists", "blocks", "sizes"), SERIES, ids=[s[0] for s in SERIES])
def test_series_of_blocks_share_a_table(_, limit, lists, blocks, sizes):
    """RFC 7541 appendices C.3 to C.6: contents, evictions and sizes."""
    decoder = Decoder(limit)
    for fields, block, size in zip(lists, blocks, sizes, strict=True):
        assert plain(fields) == decoder.decode(bytes.fromhex(block))
        assert size == decoder.table_bytes == sum(len(n) + len(v) + 32 for n, v in decoder.table)


def test_the_last_table_of_the_responses():
    """Newest first, the evicted gone (appendix C.6.3)."""
    decoder = Decoder(256)
    for block in SERIES[3][3]:
        decoder.decode(bytes.fromhex(block))
    assert [b"set-cookie", b"content-encoding", b"date"] == [name for name, _ in decoder.table]


@pytest.mark.parametrize(
    ("value", "mask", "encoded"), [(10, 31, "0a"), (1337, 31, "1f9a0a"), (42, 255, "2a")]
)
def test_integers(value, mask, encoded):
    """RFC 7541 appendix C.1, both ways."""
    raw = bytes.fromhex(encoded)
    assert raw == integer(value, mask)
    assert (value, len(raw)) == hpack._integer(raw, 0, mask)


GARBAGE = [
    ("index 0", "80", "no table"),
    ("an index past the table", "be", "no table"),
    ("a name past the table", "7f00", "no table"),
    ("a field cut in its index", "ff", "middle"),
    ("a field cut before its value", "04", "middle"),
    ("a string past the end", "0405616263", "past the end"),
    ("an integer without end", "ffffffffffffffffffffff", "larger than"),
    ("an integer of zeros without end", "ff808080808080808000", "larger than"),
    ("a huge string", "007fffffffff0f", "larger than"),
    ("EOS in a string", "0084fffffffc0161", "EOS"),
    ("padding of zeros", "0082f1000161", "padding"),
    ("padding of a whole byte", "0082 1fff 0161", "padding"),
    ("a size update after a field", "8220", "follows"),
    ("a table larger than ours", "3fe21f", "larger than the 4096"),
]


@pytest.mark.parametrize(("_", "block", "says"), GARBAGE, ids=[g[0] for g in GARBAGE])
def test_garbage_is_refused(_, block, says):
    """With the reason, never with another exception."""
    with pytest.raises(HpackError, match=says):
        Decoder().decode(bytes.fromhex(block))


@given(st.lists(st.binary(max_size=80), max_size=4))
def test_noise_is_decoded_or_refused_within_bounds(blocks: list[bytes]):
    """No other exception; the table never outgrows its limit."""
    decoder = Decoder(200)
    try:
        for block in blocks:
            fields = decoder.decode(block)
            assert sum(len(n) + len(v) + 32 for n, v in fields) <= hpack.MAX_LIST_BYTES
            assert 0 <= decoder.table_bytes <= 200
    except HpackError:
        pass


def test_a_small_block_that_means_a_huge_list_is_refused():
    """An entry of 4 KiB, named again and again: the list is counted, not the block."""
    entry = b"\x40" + integer(1, 127) + b"a" + integer(4000, 127) + b"v" * 4000
    with pytest.raises(HpackError, match="header list"):
        Decoder().decode(entry + b"\xbe" * 20)


def test_an_entry_larger_than_the_table_empties_it():
    """RFC 7541 section 4.4: no error; and a table of no size keeps nothing."""
    decoder = Decoder(100)
    decoder.decode(b"\x40\x01a\x01b")
    assert [(b"a", b"b")] == decoder.table
    decoder.decode(b"\x40\x01a" + integer(90, 127) + b"v" * 90)
    assert ([], 0) == (decoder.table, decoder.table_bytes)
    decoder.decode(b"\x20\x40\x01a\x01b")
    assert [] == decoder.table


def test_a_smaller_table_evicts_the_oldest():
    """A size update takes effect at once."""
    decoder = Decoder()
    decoder.decode(b"\x40\x01a\x01b\x40\x01c\x01d")
    assert [] == decoder.decode(b"\x3f\x05")  # 36 bytes: one entry of 34
    assert [(b"c", b"d")] == decoder.table


@given(st.binary(max_size=200))
def test_huffman_codes_decode_to_what_they_stand_for(text: bytes):
    """Encoded by the code of the RFC, padded with ones."""
    codes = hpack._codes()
    bits = "".join(format(codes[b][0], f"0{codes[b][1]}b") for b in text)
    bits += "1" * (-len(bits) % 8)
    raw = int(bits, 2).to_bytes(len(bits) // 8, "big") if bits else b""
    assert text == huffman_decode(raw)


@pytest.mark.parametrize(
    ("symbol", "code"),
    [(ord("0"), "00000"), (ord("~"), "1111111111101"), (22, "1" * 28 + "10"), (256, "1" * 30)],
)
def test_codes_of_appendix_b(symbol, code):
    """The shortest, one in between, the last and EOS: the canonical order gives the very codes of the table."""
    assert (int(code, 2), len(code)) == hpack._codes()[symbol]


def test_remembered_strings_are_bounded():
    """A peer that invents strings fills no memory, and its strings are still right."""
    for i in range(1000):
        text = b"%04d" % i
        codes = hpack._codes()
        bits = "".join(format(codes[b][0], f"0{codes[b][1]}b") for b in text)
        bits += "1" * (-len(bits) % 8)
        raw = int(bits, 2).to_bytes(len(bits) // 8, "big")
        assert [(b"a", text)] == Decoder().decode(b"\x00\x01a" + bytes((0x80 | len(raw),)) + raw)
    assert len(hpack._remembered) <= 256


@pytest.mark.parametrize(
    "field", [(b":method", b"GET"), (b":path", b"/bytes/1"), (b"x-soak-id", b"0.0.1"), (b"a", b"v" * 300)]
)
def test_literals_read_back_and_leave_no_trace(field):
    """What we send is what a decoder reads, and no table keeps it."""
    decoder = Decoder()
    assert [field] == decoder.decode(literal(*field))
    assert [] == decoder.table
    assert [field] == decoder.decode(literal_head(field[0]) + integer(len(field[1]), 127) + field[1])


def test_round_trips_with_the_reference():
    """Blocks of the ``hpack`` package, tables of changing size and Huffman included."""
    reference = pytest.importorskip("hpack", reason="the reference implementation is not installed")
    encoder, decoder = reference.Encoder(), Decoder()
    for i in range(300):
        fields = [
            (b":status", b"%d" % (200 + i % 300)),
            (b"server", b"nginx"),
            *((b"x-%d" % (i * k % 50), b"%x" % (i * 7919**k) * (k % 4)) for k in range(i % 9)),
        ]
        if i % 40 == 39:
            encoder.header_table_size = (4096, 0, 300, 1000)[i // 40 % 4]
        assert fields == decoder.decode(encoder.encode(fields, huffman=i % 3 != 0))
