"""An answer that was judged good once is known again, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soak.load.known import MOST_BYTES, KnownAnswers
from soak.model import Outcome
from tests.soak.load.rig import BODY, Peer, Server, against, answer, run, slice_of, spec

ID = b"0.0.1f"


def flight(**changes: Any) -> Any:
    """What the long way found in an answer."""
    found = {"status": 200, "body_length": 16, "origin": b"b1", "generation": b"7"}
    return SimpleNamespace(request_id=ID, **{**found, **changes})


def taught(data: bytes) -> KnownAnswers:
    known = KnownAnswers()
    known.learn(data, flight())
    return known


def test_same_bytes_with_another_id_are_known():
    """Also when the id is longer; what was found is told again."""
    found = taught(answer(ID)).find(answer(b"0.0.1f00"), b"0.0.1f00")
    assert found is not None
    assert (16, b"b1", b"7") == (found.body_length, found.origin, found.generation)


@given(at=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_any_other_byte_is_not_known(at, flip):
    """Wherever it is: head, id or body."""
    data = bytearray(answer(b"0.0.2"))
    data[at % len(data)] ^= flip
    assert taught(answer(ID)).find(bytes(data), b"0.0.2") is None


@given(cut=st.integers(0, 200), more=st.binary(max_size=3))
def test_a_piece_or_more_than_the_answer_is_not_known(cut, more):
    """Only the whole answer counts, and nothing behind it."""
    data = answer(b"0.0.2")
    other = data[: min(cut, len(data) - 1)] if not more else data + more
    assert taught(answer(ID)).find(other, b"0.0.2") is None


def test_somebody_elses_id_is_not_known():
    """The worst bug of a proxy must not take the short way."""
    assert taught(answer(ID)).find(answer(b"0.0.2"), b"0.0.3") is None


@pytest.mark.parametrize(
    "data",
    [
        answer(b"0.0.2"),
        answer(ID, headers=b"X-Again: " + ID + b"\r\n"),
        answer(ID, headers=b"X-Soak-Duplicate: 1\r\n"),
        answer(ID, b"x" * MOST_BYTES),
    ],
    ids=["other id", "id twice", "duplicate", "too long"],
)
def test_what_is_not_plain_is_not_learned(data):
    """No id of its own, the id in two places, an answer that is told apart, one too long."""
    assert taught(data).find(data, ID) is None


def test_lessons_are_few_until_rested():
    """A server whose answers all differ costs a few lessons, not one for each request."""
    known = KnownAnswers()
    bodies = [b"%016d" % i for i in range(50)]
    for body in bodies:
        known.learn(answer(ID, body), flight())
    assert known.find(answer(ID, bodies[-1]), ID) is None
    known.rest()
    known.learn(answer(ID, bodies[-1]), flight())
    assert known.find(answer(ID, bodies[-1]), ID) is not None


def test_oldest_is_forgotten():
    """Only the answers of the moment are kept."""
    known = KnownAnswers()
    for i in range(50):
        known.rest()
        known.learn(answer(ID, b"%016d" % i), flight())
    assert known.find(answer(ID, b"%016d" % 0), ID) is None
    assert known.find(answer(ID, b"%016d" % 49), ID) is not None


def test_what_came_again_is_told_once_also_of_one_that_was_forgotten():
    """Nothing of what was seen is lost when a newer answer takes its place."""
    known = KnownAnswers()
    for i in range(7):
        known.rest()
        known.learn(answer(ID, b"%016d" % i), flight())
        came = known.find(answer(ID, b"%016d" % i), ID)
        assert came is not None
        if i != 3:
            came.count = i + 1
    told = known.take()
    assert [1, 2, 3, 5, 6, 7] == sorted(answer.count for answer in told)
    for one in told:
        one.count = 0
    assert [] == known.take()


async def _turncoat(peer: Peer) -> None:
    """Answer well ten times, so that the answer is known, then be wrong in ten different ways, each once."""
    wrong = [
        lambda _: answer(b"0.0.ffff"),
        lambda i: answer(i, BODY[:-1] + b"!"),
        lambda i: answer(i, status="503 Busy"),
        lambda i: answer(i, BODY[:-1]),
    ]
    while True:
        request_id = await peer.request()
        n = peer.requests
        await peer.send(wrong[n % 10](request_id) if n > 10 and n % 10 < len(wrong) else answer(request_id))


def test_wrong_answers_among_known_ones_are_found():
    """Identity, body and status are judged as strictly when most answers take the short way."""

    async def main() -> None:
        result = await against(
            Server(_turncoat), lambda port: slice_of(spec(port, rate=400), seconds=0.5, max_in_flight=1)
        )
        expected = {Outcome.OK, Outcome.IDENTITY_MISMATCH, Outcome.BODY_MISMATCH, Outcome.STATUS_5XX}
        assert set(result.outcomes) - {Outcome.OK} <= expected
        assert {Outcome.OK, Outcome.IDENTITY_MISMATCH} <= set(result.outcomes)

    run(main())


async def _by_turns(peer: Peer) -> None:
    """Two origins behind one proxy: answers differ in the header that names them."""
    while True:
        request_id = await peer.request()
        origin = b"b1" if peer.requests % 2 else b"b2"
        headers = b"X-Soak-Origin: " + origin + b"\r\nX-Soak-Generation: 3\r\n"
        await peer.send(answer(request_id, headers=headers))


def test_origins_and_bytes_are_counted_on_the_short_way():
    """Sightings, lengths and reuse are booked as on the long way."""

    async def main() -> None:
        result = await against(
            Server(_by_turns), lambda port: slice_of(spec(port, rate=400), max_in_flight=1)
        )
        ok = result.outcomes[Outcome.OK]
        assert {Outcome.OK} == set(result.outcomes)
        assert ok * len(BODY) == result.total("bytes_received")
        seen = [(s.value, s.count) for r in result.reports for s in r.sightings]
        assert ok == sum(n for value, n in seen if value in ("b1", "b2"))
        assert ok == sum(n for value, n in seen if value == "3")
        assert 1 >= abs(sum(n for v, n in seen if v == "b1") - sum(n for v, n in seen if v == "b2"))

    run(main())


def test_classes_with_answers_of_their_own_learn_nothing():
    """Where one request expects another answer than the next, equal bytes prove nothing; new connections are looked at too."""

    async def main() -> None:
        from soak.load.engine import Engine

        base = spec(1)
        slices = slice_of(
            base,
            replace(base, name="routes", hosts=3),
            replace(base, name="cache", cache_keys=10),
            replace(base, name="new", connection="new"),
        )
        lanes = Engine(slices, lambda _: None).lanes
        assert [True, False, False, False] == [getattr(lane, "known", None) is not None for lane in lanes]

    run(main())
