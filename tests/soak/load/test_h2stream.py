"""What an answer on a stream may look like; a malformed one ends its stream and no other."""

from __future__ import annotations

from typing import Any, cast

import pytest

from soak.load import h2frames as h2
from soak.load.h2stream import MAX_HEAD_BYTES
from soak.load.hpack import literal
from soak.model import Outcome
from tests.soak.load.h2rig import LAST, Bench, answer, block, data, headers

O = Outcome  # noqa: E741 -- the table is the point
ID = (b"x-soak-id", b"1")


def fields(*pairs: tuple[bytes, bytes]) -> bytes:
    """A header block without a status of its own."""
    return b"".join(literal(*pair) for pair in pairs)


MALFORMED = [
    ("no status", headers(1, fields(ID)) + data(1), "status"),
    ("two statuses", headers(1, block((b":status", b"200"), ID)) + data(1), "status"),
    ("a status behind a field", headers(1, fields(ID, (b":status", b"200"))) + data(1), "status"),
    ("a status that is none", headers(1, block(ID, status=b"2xx")) + data(1), "2xx"),
    ("a status of four digits", headers(1, block(ID, status=b"2000")) + data(1), "2000"),
    ("a status below 100", headers(1, block(ID, status=b"099")) + data(1), "099"),
    ("a request's pseudo-field", headers(1, block((b":path", b"/"), ID)) + data(1), ":path"),
    ("an upper-case name", headers(1, block((b"X-Soak-Id", b"1"))) + data(1), "X-Soak-Id"),
    ("an empty name", headers(1, block((b"", b"1"))) + data(1), "not allow"),
    ("a name with a space", headers(1, block((b"a b", b"1"))) + data(1), "a b"),
    ("Connection", headers(1, block((b"connection", b"close"), ID)) + data(1), "connection"),
    ("Transfer-Encoding", headers(1, block((b"transfer-encoding", b"chunked"), ID)) + data(1), "transfer"),
    ("a split response", headers(1, block((b"a", b"b\r\nc: d"), ID)) + data(1), "CR or LF"),
    ("a NUL", headers(1, block((b"a", b"b\0"), ID)) + data(1), "NUL"),
    ("a garbled length", headers(1, block((b"content-length", b"+16"), ID)) + data(1), "content-length"),
    ("a huge length", headers(1, block((b"content-length", b"9" * 19), ID)) + data(1), "content-length"),
    (
        "two lengths",
        headers(1, block((b"content-length", b"16"), (b"content-length", b"17"), ID)) + data(1),
        "content-length",
    ),
    ("less than promised", headers(1, block((b"content-length", b"17"), ID)) + data(1), "16 bytes instead"),
    ("more than promised", headers(1, block((b"content-length", b"15"), ID)) + data(1, flags=0), "more than"),
    ("no body at all", headers(1, block((b"content-length", b"16"), ID), LAST), "0 bytes instead"),
    ("DATA before fields", data(1), "before"),
    ("an end without an answer", headers(1, block(status=b"100"), LAST), "100 that ends"),
    ("DATA after 1xx", headers(1, block(status=b"103")) + data(1), "before"),
    ("101", headers(1, block(status=b"101")), "switches"),
    ("100 without end", headers(1, block(status=b"100") * 1) * 4000, "header blocks"),
    ("large 1xx", headers(1, block((b"a", b"v" * 16_000), status=b"103")) * 5, "header blocks"),
    ("trailers that go on", headers(1) + data(1, flags=0) + headers(1, fields((b"t", b"v"))), "do not end"),
    ("trailers with a status", headers(1) + data(1, flags=0) + headers(1, block(), LAST), ":status"),
    ("trailers with CR", headers(1) + data(1, flags=0) + headers(1, fields((b"t", b"\r")), LAST), "trailer"),
]


@pytest.mark.parametrize(("_", "raw", "says"), MALFORMED, ids=[m[0] for m in MALFORMED])
async def test_a_malformed_answer_ends_its_stream_only(_, raw, says):
    """protocol_error with the reason, RST_STREAM to the peer; the neighbour's answer still counts."""
    bench = Bench(2)
    bench.feed(raw, answer(3))
    await bench.settle()
    assert (O.PROTOCOL_ERROR, O.OK) == (bench.end(1), bench.end(3))
    assert says in bench.text(1)
    assert [(h2.RST_STREAM, 0, 1, b"\0\0\0\1")] == bench.said_of(h2.RST_STREAM)
    assert not bench.transport.closing


JUDGED = [
    ("204", block(ID, status=b"204"), b"", O.STATUS_UNEXPECTED),
    (
        "304 with the length of what it stands for",
        block(ID, (b"content-length", b"16"), status=b"304"),
        b"",
        O.STATUS_UNEXPECTED,
    ),
    ("404", block(ID, status=b"404"), b"no", O.STATUS_4XX),
    ("503", block(status=b"503"), b"", O.STATUS_5XX),
    ("no length", block(ID), b"x" * 16, O.OK),
    (
        "the same length twice",
        block((b"content-length", b"16"), (b"content-length", b"16"), ID),
        b"x" * 16,
        O.OK,
    ),
    ("a body of the wrong length", block(ID), b"x" * 15, O.BODY_MISMATCH),
    ("no id", block(), b"x" * 16, O.IDENTITY_MISMATCH),
    ("somebody else's id", block((b"x-soak-id", b"3")), b"x" * 16, O.IDENTITY_MISMATCH),
]


@pytest.mark.parametrize(("_", "head", "body", "expected"), JUDGED, ids=[j[0] for j in JUDGED])
async def test_a_whole_answer_is_judged(_, head, body, expected):
    """By the same rules as HTTP/1.1; an empty body ends with its head or with an empty frame."""
    for raw in (headers(1, head) + data(1, body), *([headers(1, head, LAST)] if not body else [])):
        bench = Bench()
        bench.feed(raw)
        assert expected is bench.end()


async def test_what_an_answer_says_of_itself_is_kept():
    """Origin and generation are the final answer's, not those of an early hint; first byte and status too."""
    bench = Bench()
    hint = headers(1, block((b"x-soak-id", b"no"), (b"x-soak-origin", b"no"), status=b"103"))
    head = block(ID, (b"x-soak-origin", b"b2"), (b"x-soak-generation", b"7"), (b"content-length", b"16"))
    bench.feed(hint)
    stream = bench.requests[0]
    first = stream.first_byte
    bench.feed(headers(1, head), data(1))
    assert (O.OK, b"b2", b"7", 200) == (bench.end(), stream.origin, stream.generation, stream.status)
    assert 0 < first == stream.first_byte


async def test_an_answer_that_tells_of_a_second_delivery_names_its_request():
    """Told by its class as soon as the origin says so; the answer itself may be good."""
    bench = Bench(2)
    told: list[bytes] = []
    cast("Any", bench.lane).delivered_twice = lambda stream: told.append(stream.request_id)
    bench.feed(headers(3, block((b"x-soak-id", b"3"), (b"x-soak-duplicate", b"1"))), data(3), answer(1))
    assert (O.OK, O.OK, [b"3"]) == (bench.end(1), bench.end(3), told)


async def test_a_body_without_end_is_cut_off():
    """Longer than anything promised: body_mismatch and CANCEL, before more of it comes."""
    bench = Bench()
    head = headers(1, block(ID))
    bench.feed(head, *[data(1, b"x" * 16_384, flags=0)] * 5)
    await bench.settle()
    assert O.BODY_MISMATCH is bench.end()
    assert "longer than" in bench.text()
    assert [(h2.RST_STREAM, 0, 1, b"\0\0\0\x08")] == bench.said_of(h2.RST_STREAM)


async def test_a_head_may_be_as_large_as_in_http1():
    """Just below the bound, in one answer with hints."""
    big = block((b"a", b"v" * 15_000), status=b"103")
    bench = Bench()
    assert 4 * len(big) < MAX_HEAD_BYTES
    bench.feed(headers(1, big) * 4, answer(1))
    assert O.OK is bench.end()


async def test_names_that_a_peer_invents_are_judged_but_not_hoarded():
    """Past the bound of remembered names a wrong one is still wrong."""
    bench = Bench(2, streams=16)
    many = headers(1, block(ID, *((b"n%d" % i, b"") for i in range(700))))
    bench.feed(many, data(1), headers(3, block((b"x-soak-id", b"3"), (b"BAD", b""))), data(3))
    assert (O.OK, O.PROTOCOL_ERROR) == (bench.end(1), bench.end(3))
