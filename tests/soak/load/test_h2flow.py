"""Flow control of request bodies: every byte once, never more than the peer allows."""

from __future__ import annotations

import pytest

from soak.load import h2frames as h2
from soak.load.h2frames import Setting
from soak.load.traffic import pattern
from soak.model import Outcome
from tests.soak.load.h2rig import Bench, answer, headers, rst

O = Outcome  # noqa: E741 -- the table is the point
BODY = pattern(100_000)


def body_of(bench: Bench, number: int = 1) -> bytes:
    """What was sent of a request's body."""
    return b"".join(f[3] for f in bench.said_of(h2.DATA) if f[2] == number)


def ended(bench: Bench, number: int = 1) -> bool:
    """Whether its last frame said so."""
    return bool([f for f in bench.said_of(h2.DATA) if f[2] == number][-1][1] & h2.END_STREAM)


async def test_a_small_body_goes_with_its_head():
    """4 KiB within the first window, in one write."""
    bench = Bench(body=BODY[:4096])
    assert [(h2.HEADERS, h2.END_HEADERS, 1)] == [f[:3] for f in bench.said_of(h2.HEADERS)]
    assert [(h2.DATA, h2.END_STREAM, 1, BODY[:4096])] == bench.said_of(h2.DATA)
    bench.feed(answer(1))
    assert O.OK is bench.end()


async def test_a_body_stops_at_the_window_and_goes_on_with_it():
    """65,535 bytes first; both windows must be wide enough for more (section 6.9)."""
    bench = Bench(body=BODY)
    assert BODY[:65_535] == body_of(bench)
    bench.feed(h2.window_update(1, 50_000))
    assert BODY[:65_535] == body_of(bench)
    bench.feed(h2.window_update(0, 10_000))
    assert BODY[:75_535] == body_of(bench)
    assert not ended(bench)
    bench.feed(h2.window_update(0, 1_000_000))
    assert (BODY, True) == (body_of(bench), ended(bench))
    assert max(len(f[3]) for f in bench.said_of(h2.DATA)) == h2.MAX_FRAME_BYTES


async def test_larger_frames_are_used_when_the_peer_takes_them():
    """SETTINGS_MAX_FRAME_SIZE (section 6.5.2)."""
    first = h2.settings({Setting.MAX_FRAME_SIZE: 40_000, Setting.INITIAL_WINDOW_SIZE: 60_000})
    bench = Bench(body=BODY, first=first)
    assert [40_000, 20_000] == [len(f[3]) for f in bench.said_of(h2.DATA)]


async def test_settings_that_shrink_windows_amid_a_body_make_them_negative():
    """What was sent stays sent; nothing more goes until the window is positive again (section 6.9.2)."""
    bench = Bench(body=BODY, first=h2.settings({Setting.INITIAL_WINDOW_SIZE: 30_000}))
    assert 30_000 == len(body_of(bench))
    bench.feed(h2.settings({Setting.INITIAL_WINDOW_SIZE: 10_000}))
    bench.feed(h2.window_update(1, 20_000))
    assert 30_000 == len(body_of(bench))
    bench.feed(h2.window_update(1, 1))
    assert 30_001 == len(body_of(bench))
    bench.feed(h2.settings({Setting.INITIAL_WINDOW_SIZE: 15_000}))
    assert 35_001 == len(body_of(bench))
    assert BODY[:35_001] == body_of(bench)


async def test_streams_share_the_connections_window():
    """Two bodies of 50,000 bytes: the second gets what the first left, then the rest."""
    bench = Bench(2, body=BODY[:50_000])
    assert (50_000, 15_535) == (len(body_of(bench, 1)), len(body_of(bench, 3)))
    bench.feed(h2.window_update(0, 100_000))
    assert BODY[:50_000] == body_of(bench, 3)


async def test_a_peer_that_does_not_read_is_not_written_to():
    """While the transport is full nothing of a body is put behind what waits there."""
    bench = Bench(0, body=BODY, first=h2.settings({}) + h2.window_update(0, 1 << 24))
    bench.connection.pause_writing()
    bench.ask()
    await bench.settle()
    assert b"" == body_of(bench)
    bench.connection.resume_writing()
    await bench.settle()
    assert 65_535 == len(body_of(bench))


async def test_a_huge_body_goes_out_in_batches():
    """16 MiB are never put together at once; the transport is asked in between."""
    body = pattern(1 << 20)
    bench = Bench(
        0, body=body, first=h2.settings({Setting.INITIAL_WINDOW_SIZE: 1 << 24}) + h2.window_update(0, 1 << 24)
    )
    sizes: list[int] = []
    write = bench.transport.write

    def spy(data: bytes) -> None:
        sizes.append(len(data))
        write(data)

    bench.transport.write = spy  # type: ignore[method-assign]  # looks on
    bench.ask()
    await bench.settle()
    assert body == body_of(bench)
    assert max(sizes) < 200_000


async def test_an_answer_before_the_whole_request_counts_and_stops_the_rest():
    """The answer is judged; the stream is cancelled; a window for it later is of no interest."""
    bench = Bench(body=BODY)
    bench.feed(answer(1))
    await bench.settle()
    assert O.OK is bench.end()
    assert [(h2.RST_STREAM, 0, 1, b"\0\0\0\x08")] == bench.said_of(h2.RST_STREAM)
    bench.feed(h2.window_update(1, 100), h2.window_update(0, 100_000), rst(1, 0))
    await bench.settle()
    assert 65_535 == len(body_of(bench))
    assert not bench.transport.closing


async def test_a_reset_amid_a_body_stops_it():
    """Nothing follows, and the connection's window serves others."""
    bench = Bench(2, body=BODY)
    bench.feed(rst(1, 2), h2.window_update(0, 1_000_000), h2.window_update(3, 1_000_000))
    assert O.CUT_BEFORE_RESPONSE is bench.end(1)
    assert "INTERNAL_ERROR" in bench.text(1)
    assert (65_535, BODY) == (len(body_of(bench, 1)), body_of(bench, 3))


BREACHES = [
    ("a window of the connection past 2^31-1", h2.window_update(0, h2.MAX_WINDOW), 3),
    ("a window update by nothing", h2.window_update(0, 0), 1),
    ("an initial window past 2^31-1", h2.settings({Setting.INITIAL_WINDOW_SIZE: 1 << 31}), 3),
    ("settings that overflow a stream", h2.window_update(1, 1000) + h2.settings({4: h2.MAX_WINDOW}), 3),
    ("a frame size below the least", h2.settings({Setting.MAX_FRAME_SIZE: 16_383}), 1),
    ("a frame size above the most", h2.settings({Setting.MAX_FRAME_SIZE: 1 << 24}), 1),
    ("pushes by a server", h2.settings({Setting.ENABLE_PUSH: 1}), 1),
    ("a window for an idle stream", h2.window_update(5, 1), 1),
    ("a window for a stream of the server", h2.window_update(2, 1), 1),
]


@pytest.mark.parametrize(("_", "raw", "code"), BREACHES, ids=[b[0] for b in BREACHES])
async def test_a_breach_ends_the_connection(_, raw, code):
    """With the code of section 7 that says which."""
    bench = Bench(body=b"x")
    bench.feed(raw)
    assert O.PROTOCOL_ERROR is bench.end()
    assert code == h2.u32(bench.said_of(h2.GOAWAY)[-1][3], 4)


@pytest.mark.parametrize(("increment", "code"), [(0, 1), (h2.MAX_WINDOW, 3)])
async def test_a_breach_on_a_stream_ends_the_stream(increment, code):
    """And not its neighbour (section 6.9)."""
    bench = Bench(2, body=b"x")
    bench.feed(h2.window_update(1, increment), answer(3))
    await bench.settle()
    assert (O.PROTOCOL_ERROR, O.OK) == (bench.end(1), bench.end(3))
    assert [(h2.RST_STREAM, 0, 1, bytes((0, 0, 0, code)))] == bench.said_of(h2.RST_STREAM)


async def test_a_lower_limit_of_streams_is_obeyed():
    """Five at first, then two: the rest waits for its turn, in order; none of it is an error (section 5.1.2)."""
    bench = Bench(5, first=h2.settings({Setting.MAX_CONCURRENT_STREAMS: 2}))
    assert [1, 3] == [f[2] for f in bench.said_of(h2.HEADERS)]
    assert (2, 2) == (bench.connection.limit, bench.lane.peer_streams)
    bench.feed(answer(1), answer(3))
    assert [1, 3, 5, 7] == [f[2] for f in bench.said_of(h2.HEADERS)]
    bench.feed(answer(5) + answer(7), answer(9))
    assert [O.OK] * 5 == [bench.end(n) for n in (1, 3, 5, 7, 9)]


async def test_the_window_that_we_gave_is_replenished():
    """Long bodies do not stall: half of a window used, and it is wide again."""
    bench = Bench(max_body=1 << 40, expect_length=-1)
    bench.feed(headers(1, b"\x88"))
    piece = h2.frame(h2.DATA, 0, 1, bytes(16_384))
    for _ in range(513):
        bench.feed(piece)
    await bench.settle()
    assert [(h2.WINDOW_UPDATE, 0, 1, (513 * 16_384).to_bytes(4, "big"))] == bench.said_of(h2.WINDOW_UPDATE)


async def test_more_than_the_window_that_we_gave_is_a_breach():
    """On a stream, and on the connection; padding counts (section 6.9.1)."""
    for what in ("stream", "connection"):
        bench = Bench()
        if what == "stream":
            bench.requests[0].recv_window = 17
        else:
            bench.connection._recv_window = 17
        bench.feed(headers(1), h2.frame(h2.DATA, h2.PADDED, 1, b"\1" + bytes(16) + b"\0"))
        assert O.PROTOCOL_ERROR is bench.end()
        assert what in bench.text()
        assert 3 == h2.u32(bench.said_of(h2.GOAWAY)[-1][3], 4)


async def test_the_window_of_the_connection_is_replenished():
    """Also for what comes on streams that we reset."""
    bench = Bench()
    bench.connection._recv_window = h2.CONNECTION_WINDOW // 2 + 10
    bench.feed(answer(1))
    await bench.settle()
    assert [(h2.WINDOW_UPDATE, 0, 0)] == [f[:3] for f in bench.said_of(h2.WINDOW_UPDATE)]
    assert h2.CONNECTION_WINDOW == bench.connection._recv_window
