"""One HTTP/2 connection, fed by hand: exactly one end for each request and never an exception, whatever frames come how."""

from __future__ import annotations

import asyncio
import gc
import weakref
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soak.load import h2frames as h2
from soak.load.h2frames import Code
from soak.load.http2 import MAX_RESET
from soak.load.outcome import STALE_WINDOW_NS, Stage
from soak.model import Outcome
from tests.soak.load.h2rig import LAST, READY, Bench, answer, block, data, goaway, headers, rst

O = Outcome  # noqa: E741 -- the table is the point
FINE = headers(1, block((b"x-soak-id", b"1")))


async def test_requests_wait_for_the_peers_settings():
    """The preface goes out at once; the requests when the limit is known; a full table of ours is given up first."""
    bench = Bench(2, first=b"")
    assert [] == bench.said
    assert [Stage.BUSY] * 2 == [s.stage for s in bench.requests]
    bench.feed(h2.settings({}))
    first, second = bench.said_of(h2.HEADERS)
    assert (1, LAST, b"\x20\x82") == (first[2], first[1], first[3][:2])
    assert (3, LAST, b"\x82\x00\x09x-soak-id\x013") == (second[2], second[1], second[3])
    assert 1 == bench.lane.engine.reused


async def test_answers_come_in_any_order():
    """Interleaved frames of three streams; each gets its own."""
    bench = Bench(3)
    bench.feed(
        headers(5) + headers(1) + data(5, b"x" * 8, 0) + headers(3) + data(1), data(3) + data(5, b"x" * 8)
    )
    assert [O.OK] * 3 == [bench.end(n) for n in (1, 3, 5)]
    assert [b"1", b"3", b"5"] == sorted(bench.lane.ends)
    assert [False, True, True] == [s.reused for s in bench.requests]


STATES = [
    ("DATA on an idle stream", data(7), 1, "never opened"),
    ("HEADERS on an idle stream", headers(7), 1, "never opened"),
    ("RST_STREAM on an idle stream", rst(7), 1, "never opened"),
    ("HEADERS on a stream of the server", headers(2), 1, "never opened"),
    ("DATA on stream 0", data(0), 1, "never opened"),
    ("HEADERS on stream 0", headers(0), 1, "never opened"),
    ("RST_STREAM on stream 0", rst(0), 1, "never opened"),
    ("HEADERS on a closed stream", answer(1) + headers(1), 5, "closed"),
    ("unfinished HEADERS on a closed stream", answer(1) + headers(1, flags=0), 5, "closed"),
    ("DATA on a closed stream", answer(1) + data(1), 5, "closed"),
    ("DATA after the peer's reset", rst(1) + data(1), 5, "closed"),
    ("HEADERS after the peer's reset", rst(1) + headers(1), 5, "closed"),
    ("DATA after trailers", FINE + data(1, flags=0) + headers(1, b"", LAST) + data(1), 5, "closed"),
    ("a garbled header block", headers(1, b"\xff\xff\xff\xff\xff\xff"), 9, "larger than"),
    ("an entry that no table has", headers(1, b"\xbe"), 9, "no table"),
]


@pytest.mark.parametrize(("_", "raw", "code", "says"), STATES, ids=[s[0] for s in STATES])
async def test_frames_out_of_order_end_the_connection(_, raw, code, says):
    """The open request is a protocol_error; the one that had ended keeps its end (section 5.1)."""
    bench = Bench(2)
    bench.feed(raw)
    assert O.PROTOCOL_ERROR is bench.end(3)
    assert says in bench.text(3)
    assert Code(code).name in bench.text(3)
    assert code == h2.u32(bench.said[-1][3], 4)
    assert bench.end(1) in (O.PROTOCOL_ERROR, O.OK, O.CUT_BEFORE_RESPONSE)
    assert bench.connection.closed_by_us


async def test_what_comes_on_a_stream_that_we_reset_is_ignored():
    """Until its end; but its header block is decoded: the table is the connection's (section 4.3)."""
    bench = Bench(3)
    bench.feed(answer(5))
    bench.requests[0].give_up(O.RESPONSE_TIMEOUT, "late", monotonic_ns())
    late = headers(1, b"\x40\x01t\x01v" + block((b"x-soak-id", b"1")))
    bench.feed(late, data(1, flags=0), data(1, flags=h2.PADDED, body=b"\1x\0"), h2.window_update(1, 1))
    bench.feed(headers(3, b"\x88\xbe" + block((b"x-soak-id", b"3"))[1:]), data(3), data(1))
    assert (O.RESPONSE_TIMEOUT, O.OK) == (bench.end(1), bench.end(3))
    bench.ask()
    bench.feed(data(1))  # its end had come: this is a breach now
    assert O.PROTOCOL_ERROR is bench.end(7)


async def test_a_late_reset_of_a_stream_that_we_reset_closes_it():
    """Then frames on it are a breach as on any closed stream."""
    bench = Bench(2)
    bench.requests[0].give_up(O.RESPONSE_TIMEOUT, "late", monotonic_ns())
    bench.feed(rst(1))
    assert bench.end(3) is None
    bench.feed(headers(1, b"\x88", LAST))
    assert O.PROTOCOL_ERROR is bench.end(3)


RESETS = [
    ("refused", b"", 7, O.H2_REFUSED_STREAM, "REFUSED_STREAM"),
    ("refused after its head", FINE, 7, O.H2_REFUSED_STREAM, "REFUSED_STREAM"),
    ("an internal error", b"", 2, O.CUT_BEFORE_RESPONSE, "INTERNAL_ERROR"),
    ("calm, please", b"", 11, O.CUT_BEFORE_RESPONSE, "ENHANCE_YOUR_CALM"),
    ("no error", b"", 0, O.CUT_BEFORE_RESPONSE, "NO_ERROR"),
    ("a cancel after 1xx", headers(1, block(status=b"103")), 8, O.CUT_MID_RESPONSE, "CANCEL"),
    ("an internal error after the head", FINE, 2, O.CUT_MID_RESPONSE, "INTERNAL_ERROR"),
    ("an unknown code amid the body", FINE + data(1, b"x", 0), 0x4D2, O.CUT_MID_RESPONSE, "0x4d2"),
]


@pytest.mark.parametrize(("_", "before", "code", "expected", "says"), RESETS, ids=[r[0] for r in RESETS])
async def test_a_reset(_, before, code, expected, says):
    """One end, the code in the text, and the neighbour goes on."""
    bench = Bench(2)
    bench.feed(before, h2.frame(h2.RST_STREAM, 0, 1, code.to_bytes(4, "big")), answer(3))
    assert (expected, O.OK) == (bench.end(1), bench.end(3))
    assert says in bench.text(1)
    assert [] == bench.said_of(h2.RST_STREAM)


async def test_a_reset_after_the_answer_changes_nothing():
    """NO_ERROR after a whole answer is how a server declines the rest of a request (section 8.1)."""
    bench = Bench()
    bench.feed(answer(1), rst(1, 0))
    assert O.OK is bench.end()
    assert not bench.transport.closing


# -- GOAWAY ------------------------------------------------------------------------------------------------------------

POSITIONS = [
    ("before any answer", b"", goaway(3), answer(1) + answer(3)),
    ("between head and body", headers(1) + headers(3), goaway(3), data(1) + data(3)),
    ("amid a body", headers(1) + data(1, b"x" * 8, 0), goaway(3), data(1, b"x" * 8) + answer(3)),
    ("after an answer", answer(1), goaway(3), answer(3)),
    ("first for all, then in earnest", goaway(h2.MAX_WINDOW), goaway(3), answer(1) + answer(3)),
    ("twice the same", goaway(3), goaway(3), answer(3) + answer(1)),
]


@pytest.mark.parametrize(("_", "before", "goes", "after"), POSITIONS, ids=[p[0] for p in POSITIONS])
async def test_after_goaway_what_was_processed_may_finish(_, before, goes, after):
    """Streams above the last one are h2_goaway at once; the others end by themselves; then it closes, by the peer's wish."""
    bench = Bench(4)
    bench.feed(before, goes)
    assert (O.H2_GOAWAY, O.H2_GOAWAY) == (bench.end(5), bench.end(7))
    assert "GOAWAY NO_ERROR, last stream 3" in bench.text(7)
    assert bench.connection.retired
    assert not bench.transport.closing
    bench.feed(after)
    assert (O.OK, O.OK) == (bench.end(1), bench.end(3))
    assert bench.transport.closing
    assert not bench.connection.closed_by_us
    assert bench.lane.forgotten


async def test_goaway_on_an_idle_connection_closes_it():
    """Nothing is lost, and it was the peer who wanted it."""
    bench = Bench()
    bench.feed(answer(1), goaway(1))
    assert bench.transport.closing
    assert not bench.connection.closed_by_us
    bench.lose()
    assert [(O.OK, "")] == list(bench.lane.ends.values())


async def test_goaway_for_everybody_says_why():
    """Its code and its debug data are in the text."""
    bench = Bench(2)
    bench.feed(goaway(0, 11, b"too many requests"))
    assert (O.H2_GOAWAY, O.H2_GOAWAY) == (bench.end(1), bench.end(3))
    assert "GOAWAY ENHANCE_YOUR_CALM, last stream 0: 'too many requests'" == bench.text(1)


async def test_goaway_for_requests_that_still_wait():
    """They were never sent; they do not hang."""
    bench = Bench(3, first=h2.settings({3: 1}))
    bench.feed(goaway(1))
    assert (None, O.H2_GOAWAY, O.H2_GOAWAY) == (bench.end(1), bench.end(3), bench.end(5))
    bench.feed(answer(1))
    assert O.OK is bench.end(1)
    assert bench.transport.closing


async def test_what_is_sent_on_streams_that_goaway_excluded_is_ignored():
    """The peer may have begun to answer."""
    bench = Bench(2)
    bench.feed(goaway(1), headers(3), data(3), answer(1))
    assert (O.OK, O.H2_GOAWAY) == (bench.end(1), bench.end(3))


async def test_goaway_must_not_take_back_what_it_excluded():
    """The last stream must not grow (section 6.8)."""
    bench = Bench(2)
    bench.feed(goaway(1), goaway(3))
    assert (O.PROTOCOL_ERROR, O.H2_GOAWAY) == (bench.end(1), bench.end(3))


# -- lost connections --------------------------------------------------------------------------------------------------


async def test_a_lost_connection_ends_each_stream_in_its_own_way():
    """With or without a byte of its answer; the error's own words."""
    bench = Bench(3)
    bench.feed(answer(1), headers(3))
    bench.lose(ConnectionResetError(104, "reset"))
    assert (O.OK, O.CUT_MID_RESPONSE, O.CUT_BEFORE_RESPONSE) == (bench.end(1), bench.end(3), bench.end(5))
    assert "reset" in bench.text(3)
    assert (1, 1) == (bench.lane.opened, bench.lane.over)


async def test_a_close_that_crosses_requests_on_an_idle_connection_is_stale_reuse():
    """All that were sent since it was idle, none of which was answered."""
    bench = Bench()
    bench.feed(answer(1))
    bench.ask()
    bench.ask()
    bench.lose()
    assert (O.STALE_REUSE, O.STALE_REUSE) == (bench.end(3), bench.end(5))


async def test_a_first_request_is_never_stale():
    """A fresh connection was not idle."""
    bench = Bench(2)
    bench.lose()
    assert (O.CUT_BEFORE_RESPONSE, O.CUT_BEFORE_RESPONSE) == (bench.end(1), bench.end(3))


async def test_a_peer_that_answered_since_was_not_idle():
    """It closed a connection at work: cut_before_response."""
    bench = Bench()
    bench.feed(answer(1))
    bench.ask()
    bench.ask()
    bench.feed(headers(3))
    bench.lose()
    assert (O.CUT_MID_RESPONSE, O.CUT_BEFORE_RESPONSE) == (bench.end(3), bench.end(5))


async def test_a_peer_that_waited_had_the_requests():
    """Longer than a race can last."""
    bench = Bench()
    bench.feed(answer(1))
    bench.ask()
    bench.connection._busy_since -= STALE_WINDOW_NS + 1
    bench.lose()
    assert O.CUT_BEFORE_RESPONSE is bench.end(3)


async def test_a_close_after_goaway_is_never_stale():
    """GOAWAY says what was processed; those requests were cut."""
    bench = Bench()
    bench.feed(answer(1))
    bench.ask()
    bench.feed(goaway(3))
    bench.lose()
    assert O.CUT_BEFORE_RESPONSE is bench.end(3)
    assert "GOAWAY NO_ERROR" in bench.text(3)


async def test_an_end_of_stream_takes_no_more_requests():
    """From that moment on, before the loop reports the close."""
    bench = Bench()
    before = bench.lane.forgotten
    assert not bench.connection.eof_received()
    assert before < bench.lane.forgotten
    assert bench.connection.retired


async def test_a_peer_that_did_not_choose_h2():
    """tls_handshake for all that waited; the connection never counts as opened."""
    bench = Bench.dialing()
    bench.ask()
    bench.ask()
    bench.transport.tls = SimpleNamespace(selected_alpn_protocol=lambda: "http/1.1")
    bench.connection.connection_made(bench.transport)
    assert (O.TLS_HANDSHAKE, O.TLS_HANDSHAKE) == (bench.end(1), bench.end(3))
    assert "did not choose h2 by ALPN but 'http/1.1'" in bench.text()
    assert (0, True, 0) == (bench.lane.opened, bench.transport.aborted, len(bench.transport.written))


# -- deadlines and retirement ------------------------------------------------------------------------------------------


async def test_a_deadline_cancels_its_stream_and_leaves_the_others():
    """RST_STREAM CANCEL; a peer that answers others keeps the connection."""
    bench = Bench(2)
    bench.feed(headers(3))
    bench.requests[0].give_up(O.RESPONSE_TIMEOUT, "late", monotonic_ns())
    await bench.settle()
    assert [(h2.RST_STREAM, 0, 1, b"\0\0\0\x08")] == bench.said_of(h2.RST_STREAM)
    assert not bench.connection.retired
    bench.feed(data(3))
    assert (O.RESPONSE_TIMEOUT, O.OK) == (bench.end(1), bench.end(3))


async def test_a_connection_whose_streams_all_time_out_is_closed():
    """It takes no new requests from the first one on, so that it swallows no more of them."""
    bench = Bench(2)
    bench.requests[0].give_up(O.RESPONSE_TIMEOUT, "late", monotonic_ns())
    assert (True, False) == (bench.connection.retired, bench.transport.closing)
    bench.requests[1].give_up(O.RESPONSE_TIMEOUT, "late", monotonic_ns())
    assert bench.transport.closing
    assert bench.connection.closed_by_us
    bench.requests[1].give_up(O.RESPONSE_TIMEOUT, "again", monotonic_ns())
    assert 2 == len(bench.lane.ends)


async def test_a_deadline_before_the_settings_ends_the_wait():
    """The peer took the connection and said nothing."""
    bench = Bench(2, first=b"")
    for stream in bench.requests:
        stream.give_up(O.RESPONSE_TIMEOUT, "late", monotonic_ns())
    assert (O.RESPONSE_TIMEOUT, O.RESPONSE_TIMEOUT) == (bench.end(1), bench.end(3))
    assert bench.transport.closing


async def test_a_dial_that_is_given_up_ends_all_that_wait_for_it():
    """Those that joined later would prolong it for each other; the transport that comes too late is aborted."""
    bench = Bench.dialing()
    first, second = bench.ask(), bench.ask()
    bench.connection.stage = Stage.HANDSHAKING
    assert [Stage.HANDSHAKING] * 2 == [first.stage, second.stage]
    cancelled: list[bool] = []
    bench.connection.dial_task = SimpleNamespace(cancel=lambda: cancelled.append(True))  # type: ignore[assignment]  # a task
    first.give_up(O.TLS_TIMEOUT, "late", monotonic_ns())
    second.give_up(O.TLS_TIMEOUT, "late", monotonic_ns())
    assert (O.TLS_TIMEOUT, O.TLS_TIMEOUT, [True]) == (bench.end(1), bench.end(3), cancelled)
    bench.connection.connection_made(bench.transport)
    assert bench.transport.aborted


async def test_a_dial_that_fails_ends_all_that_wait_for_it():
    """Each with the same reason."""
    bench = Bench.dialing()
    bench.ask()
    bench.ask()
    bench.connection.dial_failed(O.CONNECT_REFUSED, "refused", monotonic_ns())
    assert [(O.CONNECT_REFUSED, "refused")] * 2 == list(bench.lane.ends.values())


async def test_a_retired_connection_finishes_and_closes_with_a_word():
    """GOAWAY NO_ERROR, then the close, by us."""
    bench = Bench()
    bench.connection.retire()
    assert not bench.transport.closing
    bench.feed(answer(1))
    assert O.OK is bench.end()
    assert (h2.GOAWAY, 0, 0, bytes(8)) == bench.said[-1]
    assert (True, True) == (bench.transport.closing, bench.connection.closed_by_us)


async def test_a_peer_that_does_not_let_us_close_is_left():
    """After a second; a transport that has closed by then is not touched."""
    bench = Bench()
    bench.connection.close()
    assert (True, False) == (bench.transport.closing, bench.transport.aborted)
    bench.connection._leave()
    assert bench.transport.aborted
    bench.lose()
    bench.connection._leave()


async def test_somebody_elses_answer_retires_the_connection():
    """Whose answer comes next is anybody's guess; what is under way may finish."""
    bench = Bench(2)
    bench.feed(headers(1, block((b"x-soak-id", b"3"))), data(1))
    assert (O.IDENTITY_MISMATCH, True) == (bench.end(1), bench.connection.retired)
    bench.feed(answer(3))
    assert O.OK is bench.end(3)
    assert bench.transport.closing


async def test_streams_that_we_reset_are_remembered_but_not_without_end():
    """Past a bound the connection is retired."""
    bench = Bench()
    for number in range(1, 2 * MAX_RESET, 2):
        bench.ask()
        bench.feed(headers(number, b"\x88"), headers(number, b"\x88"))
    assert bench.connection.retired
    assert MAX_RESET == len(bench.connection._reset)


async def test_stream_numbers_run_out_in_order():
    """The connection is retired before they do (section 5.1.1)."""
    bench = Bench(0)
    bench.connection._next_id = h2.MAX_WINDOW - 1004
    bench.ask()
    assert not bench.connection.retired
    bench.ask()
    assert bench.connection.retired


async def test_a_closed_connection_is_freed_without_the_collector():
    """Streams know their connection, and it forgets them."""
    gc.disable()
    try:
        bench = Bench(2)
        bench.feed(answer(1))
        await bench.settle()
        bench.lose()
        gone = weakref.ref(bench.connection)
        del bench
        assert gone() is None
    finally:
        gc.enable()


# -- whatever comes ----------------------------------------------------------------------------------------------------

PIECES = [
    *(answer(n) for n in (1, 3, 5)),
    headers(1),
    data(1, b"x" * 8, 0),
    data(1),
    headers(3, block(status=b"100")),
    headers(3, block((b"x-soak-id", b"3"), (b"content-length", b"5"))),
    headers(5, b"", LAST),
    headers(1, b"\x88", 0),
    h2.frame(h2.CONTINUATION, h2.END_HEADERS, 1, b"\x40\x01a\x01b"),
    headers(3, b"\xbe\x88"),
    rst(1),
    rst(3, 7),
    rst(5, 0),
    goaway(0),
    goaway(3, 11),
    goaway(h2.MAX_WINDOW),
    h2.settings({4: 0}),
    h2.settings({3: 1}),
    h2.settings({4: 100_000, 5: 20_000}),
    h2.window_update(0, 1000),
    h2.window_update(3, 70_000),
    h2.frame(h2.PING, 0, 0, b"12345678"),
    h2.frame(h2.PRIORITY, 0, 1, b"12345"),
    h2.frame(h2.PUSH_PROMISE, 4, 1, b"\0\0\0\2"),
    h2.frame(h2.DATA, h2.PADDED, 3, b"\1x\0"),
    h2.frame(99, 7, 7, b"?"),
]
Action = bytes | str
ACTIONS = st.one_of(
    st.sampled_from(PIECES), st.sampled_from(["ask", "give up", "pause", "resume", "retire", "settle"])
)


@st.composite
def conversations(draw: st.DrawFn) -> list[Action]:
    """Frames of all kinds, mutated here and there, cut anywhere, and our own acts in between."""
    out: list[Action] = []
    for action in draw(st.lists(ACTIONS, max_size=14)):
        if isinstance(action, bytes):
            raw = bytearray(action)
            if draw(st.integers(0, 5)) == 0:
                at, n = draw(st.integers(0, len(raw))), draw(st.integers(0, 3))
                raw[at : at + n] = draw(st.binary(max_size=3))
            cut = draw(st.integers(0, len(raw)))
            out += [bytes(raw[:cut]), bytes(raw[cut:])]
        else:
            out.append(action)
    return out


def act(bench: Bench, action: str) -> None:
    connection = bench.connection
    if action == "ask" and connection.load < connection.limit and not connection.retired:
        bench.ask()
    elif action == "give up":
        for stream in bench.requests[::2]:
            stream.give_up(O.RESPONSE_TIMEOUT, "late", monotonic_ns())
    elif action == "pause":
        connection.pause_writing()
    elif action == "resume":
        connection.resume_writing()
    elif action == "retire":
        connection.retire()


async def play(actions: list[Action], how: str, **lane: Any) -> Bench:
    bench = Bench(3, first=READY, **lane)
    for action in actions:
        if isinstance(action, bytes):
            bench.feed(action)
        elif action == "settle":
            await bench.settle()
        elif not bench.transport.closing:
            act(bench, action)
    if how == "timeout":
        for stream in bench.requests:
            stream.give_up(O.RESPONSE_TIMEOUT, "late", monotonic_ns())
    await bench.settle()
    bench.lose(ConnectionResetError(104, "reset") if how == "reset" else None)
    await bench.settle()
    assert {b"%d" % (2 * i + 1) for i in range(len(bench.requests))} == set(bench.lane.ends)
    assert (1, 1, 0) == (bench.lane.opened, bench.lane.over, bench.connection.load)
    assert {Stage.CLOSED} == {bench.connection.stage, *(s.stage for s in bench.requests)}
    assert len(bench.connection._rest) < 20_000
    return bench


ENDS = st.sampled_from(["close", "reset", "timeout"])


@settings(max_examples=700, deadline=None)
@given(actions=conversations(), how=ENDS, body=st.sampled_from([b"", b"x" * 70_000]))
def test_mutated_conversations_end_each_request_exactly_once(
    actions: list[Action], how: str, body: bytes
) -> None:
    """No frames, no cuts and no end make two ends, none, or an exception; the books of the connection balance."""
    asyncio.run(play(actions, how, body=body))


@settings(max_examples=200, deadline=None)
@given(pieces=st.lists(st.binary(max_size=60), max_size=8), how=ENDS)
def test_noise_ends_each_request_exactly_once(pieces: list[bytes], how: str) -> None:
    """And is never ok."""
    bench = asyncio.run(play(list(pieces), how))
    assert O.OK not in {ended for ended, _ in bench.lane.ends.values()}
