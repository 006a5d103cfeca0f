"""Requests that differ from one to the next: who is asked for what, and how wrong answers are told."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from soak.load.engine import Engine
from soak.load.traffic import ClassSpec, cache_body
from soak.load.varied import OPTIONS, VARIANTS, CacheConnection, CacheLane, RoutesLane, draw
from soak.model import Outcome
from tests.soak.load.rig import (
    BODY,
    Behaviour,
    Peer,
    Server,
    against,
    answer,
    drive,
    run,
    slice_of,
    spec,
    well_behaved,
)

_CACHE_LINE = re.compile(rb"GET /cache/k(\d+)/bytes/(\d+)\?(\S+) HTTP/1.1")


async def head_of(peer: Peer) -> tuple[bytes, dict[bytes, bytes]]:
    """Read a request; return its first line and its fields by lower-case name."""
    head = await peer.reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].split(b"\r\n")
    return first, {name.lower(): value for name, value in (line.split(b": ", 1) for line in lines)}


# -- many routes -------------------------------------------------------------------------------------------------------


def routing(asked: list[bytes], *, wrong: int = -1, header: bool = True) -> Behaviour:
    """A proxy with a route for each host; request number ``wrong`` takes its neighbour's."""

    async def behave(peer: Peer) -> None:
        while True:
            _, fields = await head_of(peer)
            host = fields[b"host"]
            route = host.partition(b".")[0]
            if len(asked) == wrong:
                route = b"r%d" % (int(route[1:]) + 1)
            asked.append(host)
            extra = b"x-Soak-ROUTE: " + route + b"\r\n" if header else b""
            await peer.send(answer(fields[b"x-soak-id"], headers=extra))

    return behave


def routes(port: int, **changes: Any) -> ClassSpec:
    return spec(port, authority="site.test", hosts=3, **changes)


def test_hosts_are_asked_in_turn():
    """r1, r2, r3, r1, ... whatever connection carries the request."""
    asked: list[bytes] = []
    result = run(against(Server(routing(asked)), lambda port: slice_of(routes(port))))
    assert {Outcome.OK: 10} == result.outcomes
    assert [b"r%d.site.test" % (i % 3 + 1) for i in range(10)] == asked


def test_all_workers_together_go_round():
    """Worker 1 of 2 asks for the hosts that worker 0 leaves out."""
    asked: list[bytes] = []
    load = lambda port: slice_of(routes(port), worker=1, workers=2)  # noqa: E731 -- the rig wants a function

    async def both() -> None:
        async with Server(routing(asked)) as server:
            await drive(load(server.port))

    run(both())
    assert [b"r%d.site.test" % (i % 3 + 1) for i in range(1, 10, 2)] == asked


@pytest.mark.parametrize(
    ("behaviour", "wrong"),
    [(routing([], wrong=4), 1), (routing([], header=False), 10), (well_behaved, 10)],
    ids=["a neighbour's", "none named", "no routes at all"],
)
def test_an_answer_by_another_route_is_an_identity_mismatch(behaviour, wrong):
    """Also when id and body are right; the evidence names both routes."""
    result = run(against(Server(behaviour), lambda port: slice_of(routes(port))))
    expected = Counter({Outcome.IDENTITY_MISMATCH: wrong})
    expected[Outcome.OK] += 10 - wrong
    assert +expected == result.outcomes
    assert "route " in result.evidence[0].error
    assert " instead of 'r" in result.evidence[0].error


def test_a_refusal_is_told_by_its_status():
    """An error page of the proxy's own names no route: that says nothing about identity."""

    async def refuse(peer: Peer) -> None:
        while True:
            await head_of(peer)
            await peer.send(answer(b"", status="502 Bad Gateway"))

    result = run(against(Server(refuse), lambda port: slice_of(routes(port))))
    assert {Outcome.STATUS_5XX: 10} == result.outcomes


def test_identity_can_be_left_unchecked():
    """Then the route is as well."""
    result = run(against(Server(well_behaved), lambda port: slice_of(routes(port, check_identity=False))))
    assert {Outcome.OK: 10} == result.outcomes


def test_each_new_connection_is_asked_to_close():
    """The head of each host is that of the class."""
    fields: list[dict[bytes, bytes]] = []

    async def behave(peer: Peer) -> None:
        _, found = await head_of(peer)
        fields.append(found)
        route = found[b"host"].partition(b".")[0]
        await peer.send(answer(found[b"x-soak-id"], headers=b"X-Soak-Route: " + route + b"\r\n"))

    made = lambda port: slice_of(routes(port, connection="new", headers=(("A", "b"),)))  # noqa: E731 -- as above
    result = run(against(Server(behave), made))
    assert ({Outcome.OK: 10}, 10) == (result.outcomes, result.connections("opened"))
    assert {(b"close", b"b")} == {(f[b"connection"], f[b"a"]) for f in fields}


# -- a cache -----------------------------------------------------------------------------------------------------------


def objects(port: int, **changes: Any) -> ClassSpec:
    base: dict[str, Any] = {"path": "/cache", "cache_keys": 40, "response_bytes": 100, "rate": 400}
    return spec(port, **{**base, **changes})


Asked = tuple[int, str, str]
"""Key, options, variant."""


def caching(asked: list[Asked], *, spoil: str = "") -> Behaviour:
    """A cache that gives each object, or one that mixes up what ``spoil`` says; ids are those of somebody else."""

    async def behave(peer: Peer) -> None:
        while True:
            first, fields = await head_of(peer)
            found = _CACHE_LINE.fullmatch(first)
            assert found is not None, first
            key, n, options = int(found[1]), int(found[2]), found[3].decode()
            variant = fields.get(b"x-soak-variant", b"").decode()
            asked.append((key, options, variant))
            if spoil == "key":
                key += 1
            if spoil == "variant" and variant:
                variant = "a" if variant != "a" else "b"
            body = cache_body(f"k{key}", variant, n)
            await peer.send(answer(b"another", body[:-1] if spoil == "length" else body))

    return behave


def test_a_cached_answer_is_right_by_its_checksum():
    """Whoever's id it carries; each object is asked for in its kind, those that vary in a variant."""
    asked: list[Asked] = []
    result = run(against(Server(caching(asked)), lambda port: slice_of(objects(port))))
    assert {Outcome.OK: 100} == result.outcomes
    assert all(options == OPTIONS[key % 10] for key, options, _ in asked)
    assert all((variant != "") == ("vary" in options) for _, options, variant in asked)
    assert {v.decode() for v in VARIANTS} >= {v for *_, v in asked if v}


@pytest.mark.parametrize("spoil", ["key", "length"])
def test_a_wrong_object_is_a_body_mismatch(spoil):
    """The body of another key, or a body of another length."""
    result = run(against(Server(caching([], spoil=spoil)), lambda port: slice_of(objects(port))))
    assert {Outcome.BODY_MISMATCH: 100} == result.outcomes
    assert re.search(r"asked for k\d+.*; expected status 200, body 100 bytes", result.evidence[0].error)


def test_the_body_of_another_variant_is_told_as_such():
    """That is what a cache that ignores Vary does."""
    asked: list[Asked] = []
    made = lambda port: slice_of(objects(port), evidence_per_second=100)  # noqa: E731 -- as above
    result = run(against(Server(caching(asked, spoil="variant")), made))
    varying = [v for *_, v in asked if v]
    assert len(varying) > 0
    assert {Outcome.BODY_MISMATCH: len(varying), Outcome.OK: 100 - len(varying)} == result.outcomes
    assert all("the body of variant " in e.error for e in result.evidence)


def test_a_checksum_can_be_left_unchecked():
    """The length never is."""
    made = lambda port: slice_of(objects(port, check_body=False))  # noqa: E731 -- as above
    assert {Outcome.OK: 100} == run(against(Server(caching([], spoil="key")), made)).outcomes
    assert {Outcome.BODY_MISMATCH: 100} == run(against(Server(caching([], spoil="length")), made)).outcomes


@pytest.fixture
def lane_for():
    """Make the lane of a class without sending anything."""

    async def make(made: ClassSpec, **changes: Any) -> Any:
        return Engine(slice_of(made, **changes), lambda _: None).lanes[0]

    return lambda made, **changes: run(make(made, **changes))


def test_popular_objects_are_asked_for_most(lane_for):
    """In proportion to 1 / rank ** 0.9: the first of 2,000 in about 7 % of requests, the first 200 in about 60 %."""
    lane: CacheLane = lane_for(objects(1, cache_keys=2000))
    drawn = Counter(lane.choice(i)[0] for i in range(50_000))
    weights = [1 / (k + 1) ** 0.9 for k in range(2000)]
    for ranks in (range(1), range(200), range(1000)):
        expected = 50_000 * sum(weights[k] for k in ranks) / sum(weights)
        assert sum(drawn[k] for k in ranks) == pytest.approx(expected, rel=0.06)
    assert max(drawn) < 2000


def test_variants_are_asked_for_alike(lane_for):
    """A third each."""
    lane: CacheLane = lane_for(objects(1, cache_keys=2000))
    drawn = Counter(variant for key, variant in map(lane.choice, range(50_000)) if key % 10 == 8)
    assert {1, 2, 3} == set(drawn)
    assert max(drawn.values()) < 1.2 * min(drawn.values())


def test_the_same_seed_asks_for_the_same(lane_for):
    """Whatever the number of workers; another seed and another class do not."""
    one, two = lane_for(objects(1)), lane_for(objects(1), worker=1, workers=2)
    other = lane_for(objects(1), seed=2)
    chosen = [[lane.choice(i) for i in range(100)] for lane in (one, two, other)]
    assert chosen[0] == chosen[1] != chosen[2]


def test_a_single_object_is_always_the_one(lane_for):
    """The draw stays within the table at its very end."""
    lane: CacheLane = lane_for(objects(1, cache_keys=1))
    assert {0} == {lane.choice(i)[0] for i in range(1000)}


def test_remembered_sums_are_bounded(lane_for, monkeypatch):
    """A million objects take no more memory than some thousands; sums stay right."""
    monkeypatch.setattr("soak.load.varied._MOST_SUMS", 10)
    lane: CacheLane = lane_for(objects(1, cache_keys=1000))
    sums = [lane.expected_sum(key, 0) for key in range(25)]
    assert len(lane._sums) <= 10
    assert sums == [lane.expected_sum(key, 0) for key in range(25)]
    assert len(set(sums)) == 25


def test_draws_are_even_and_do_not_depend_on_each_other():
    """64 bits, by seed and place alone."""
    drawn = [draw(7, i) for i in range(4096)]
    assert drawn == [draw(7, i) for i in range(4096)]
    assert 4096 == len(set(drawn))
    for bit in range(64):
        assert 0.45 < sum(d >> bit & 1 for d in drawn) / 4096 < 0.55
    assert draw(7, 1) != draw(8, 1)


def test_classes_get_the_lanes_of_their_fields(lane_for):
    """And a class that promises no length gets objects of 8 KiB."""
    assert RoutesLane is type(lane_for(routes(1)))
    lane = lane_for(objects(1, response_bytes=None))
    assert (CacheLane, 8192) == (type(lane), lane.object_bytes)
    connection = CacheConnection(lane, 1)
    connection.assign(b"7", 0, 0, 0)
    assert lane.compose(connection).startswith(b"GET /cache/k%d/bytes/8192?" % connection.key)
    assert len(BODY) == 16
