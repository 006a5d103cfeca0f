"""The lane of a class is chosen by its protocol."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic_ns

import pytest

from soak.load.engine import Engine
from soak.load.http1lane import Http1Lane
from soak.load.traffic import ClassSpec, LoadSlice
from soak.model import Outcome
from tests.soak.load.rig import NS, Peer, Server, against, answer, drive, run, slice_of, spec


async def test_http1_classes_get_a_pool_of_connections():
    """One lane for each class, in order."""
    specs = [ClassSpec(name, 1.0, "127.0.0.1", 1, "x") for name in ("a", "b")]
    load = LoadSlice(worker=0, workers=1, t0_ns=monotonic_ns(), seconds=1, seed=1, classes=specs)
    lanes = Engine(load, lambda _: None).lanes
    assert [("a", Http1Lane), ("b", Http1Lane)] == [(lane.name, type(lane)) for lane in lanes]


def test_an_answer_that_tells_of_a_second_delivery_names_its_request():
    """One event a second with the first id, the origin, when it was sent, and how many there were."""

    async def twice(peer: Peer) -> None:
        while True:
            request_id = await peer.request()
            await peer.send(answer(request_id, headers=b"X-Soak-Origin: b2\r\nx-soak-duplicate: 1\r\n"))

    result = run(against(Server(twice), lambda port: slice_of(spec(port))))
    notes = [n for r in result.reports for n in r.notes]
    assert {Outcome.OK: 10} == result.outcomes
    assert [("load.delivered_twice", "c", "b2", 10)] == [
        (n["name"], n["traffic"], n["origin"], n["count"]) for n in notes
    ]
    assert notes[0]["request"].endswith(".0.0.1")
    assert 0 <= notes[0]["sent_s"] < 0.25


def test_ids_are_those_of_no_other_run_and_of_no_worker_before():
    """Origins remember ids: a repeated one would count as a request that was delivered twice."""
    seen: list[bytes] = []

    async def note(peer: Peer) -> None:
        while True:
            seen.append(await peer.request())
            await peer.send(answer(seen[-1]))

    async def thrice() -> None:
        async with Server(note) as server:
            first = slice_of(spec(server.port), seconds=1.25)
            await drive(first)
            began = monotonic_ns() - NS + 20_000_000
            await drive(replace(first, t0_ns=began))
            await drive(replace(first, t0_ns=began, from_second=1))

    run(thrice())
    assert len(seen) > 100
    assert len(seen) == len(set(seen))
    assert all(len(request_id) <= 64 for request_id in seen)


async def test_each_protocol_has_its_lane_and_an_unknown_one_is_refused():
    """The engine says so before anything is sent."""

    def lanes(**changes: object) -> list[str]:
        load = slice_of(spec(1, **changes))
        return [type(lane).__name__ for lane in Engine(load, lambda _: None).lanes]

    assert ["WebSocketLane"] == lanes(protocol="websocket")
    assert ["H2Lane"] == lanes(protocol="h2")
    with pytest.raises(ValueError, match="no lane speaks 'gopher'"):
        lanes(protocol="gopher")
