"""What the engine makes of hostile TLS peers: real handshakes with the run's own authority, and with what only looks like one."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from certs.authority import Authority, Pair
from certs.install import serial_of as serial_in_pem
from soak.model import Outcome, SightKind
from tests.soak.load.rig import (
    Behaviour,
    Peer,
    Result,
    Server,
    against,
    answer,
    run,
    slice_of,
    spec,
    well_behaved,
)

O = Outcome  # noqa: E741 -- the table is the point
NAME = "soak.test"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("ca") / "certs")


def context_of(pair: Pair, directory: Path) -> ssl.SSLContext:
    chain, key = directory / "chain.pem", directory / "key.pem"
    chain.write_bytes(pair.chain_pem)
    key.write_bytes(pair.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    return context


def handshake(
    authority: Authority, behaviour: Behaviour, tls: ssl.SSLContext | None, **changes: Any
) -> tuple[Result, Server]:
    load = {"ca_file": str(authority.ca_pem), **changes.pop("load", {})}
    server = Server(behaviour, tls)
    made = {"tls": True, "server_name": NAME, **changes}
    return run(against(server, lambda port: slice_of(spec(port, **made), **load))), server


async def sends_garbage(peer: Peer) -> None:
    await peer.reader.read(1)
    await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\nspeak plain, please")
    await peer.reader.read()


async def sends_an_alert(peer: Peer) -> None:
    await peer.reader.read(1)
    await peer.send(b"\x15\x03\x03\x00\x02\x02\x28")
    await peer.reader.read()


async def hangs(peer: Peer) -> None:
    await peer.hang()


async def closes(peer: Peer) -> None:
    await peer.reader.read(1)


async def resets(peer: Peer) -> None:
    await peer.reader.read(1)
    peer.reset()


BREAKERS: list[tuple[str, Behaviour, Outcome]] = [
    ("garbage instead of a handshake", sends_garbage, O.TLS_HANDSHAKE),
    ("an alert", sends_an_alert, O.TLS_HANDSHAKE),
    ("silence", hangs, O.TLS_TIMEOUT),
    ("a close", closes, O.TLS_HANDSHAKE),
    ("a reset", resets, O.TLS_HANDSHAKE),
]


@pytest.mark.parametrize(("says", "behaviour", "expected"), BREAKERS, ids=[b[0] for b in BREAKERS])
def test_a_handshake_that_meets(
    authority: Authority, says: str, behaviour: Behaviour, expected: Outcome
) -> None:
    """Each request is booked once, and no connection ever counts as opened."""
    result, _ = handshake(authority, behaviour, None, load={"tls_timeout_s": 0.2, "connect_timeout_s": 0.2})
    assert {expected: 10} == result.outcomes
    assert 0 == result.connections("opened") == result.connections("tls_full")


def test_the_engines_own_deadline_ends_a_handshake_too(authority: Authority) -> None:
    """When the event loop's handshake timeout would come later than the sweep's, the dial is cancelled; no socket leaks."""
    result, server = handshake(
        authority, hangs, None, load={"tls_timeout_s": 0.05, "connect_timeout_s": 0.01}
    )
    assert {O.TLS_TIMEOUT: 10} == result.outcomes
    assert 10 == server.accepted


def test_a_certificate_of_another_authority(authority: Authority, tmp_path: Path) -> None:
    """tls_certificate, with OpenSSL's reason as evidence."""
    result, _ = handshake(authority, well_behaved, context_of(authority.other_ca(NAME), tmp_path))
    assert {O.TLS_CERTIFICATE: 10} == result.outcomes
    assert "verify failed" in result.evidence[0].error


@pytest.mark.parametrize(
    "leaf", [Authority.wrong_host, lambda a: a.expired(NAME)], ids=["wrong host", "expired"]
)
def test_a_bad_leaf_of_the_right_authority(
    authority: Authority, tmp_path: Path, leaf: Callable[[Authority], Pair]
) -> None:
    """The name and the validity are checked as well."""
    result, _ = handshake(authority, well_behaved, context_of(leaf(authority), tmp_path))
    assert {O.TLS_CERTIFICATE: 10} == result.outcomes


def test_a_good_handshake_is_kept_and_its_serial_seen(authority: Authority, tmp_path: Path) -> None:
    """One full handshake for ten requests."""
    pair = authority.leaf(NAME)
    result, _ = handshake(authority, well_behaved, context_of(pair, tmp_path))
    assert {O.OK: 10} == result.outcomes
    assert 1 == result.connections("tls_full") == result.connections("opened")
    (seen,) = [s for r in result.reports for s in r.sightings if s.kind is SightKind.SERIAL]
    assert serial_in_pem(pair.chain_pem) == seen.value
    assert (1, True) == (seen.count, 0 <= seen.first_s <= seen.last_s)


def test_tls_new_shakes_hands_for_each_request(authority: Authority, tmp_path: Path) -> None:
    """As many full handshakes and sights of the serial as requests; none resumed, none reused; all closed by us."""
    pair = authority.leaf(NAME)
    result, server = handshake(authority, well_behaved, context_of(pair, tmp_path), connection="new")
    assert {O.OK: 10} == result.outcomes
    assert 10 == result.connections("tls_full") == server.accepted
    assert 0 == result.connections("tls_resumed") == result.connections("reused")
    seen = [s for r in result.reports for s in r.sightings if s.kind is SightKind.SERIAL]
    assert [(serial_in_pem(pair.chain_pem), 10)] == [(s.value, s.count) for s in seen]
    assert 0 == result.connections("closed_by_peer")


def test_a_certificate_at_the_end_of_a_byte_pipe_is_no_sighting(authority: Authority, tmp_path: Path) -> None:
    """It is the origin's: a rotation of the proxy's must not be judged by it. As evidence of a failure it is kept."""
    pair = authority.leaf(NAME)
    tls = context_of(pair, tmp_path)
    result, _ = handshake(authority, well_behaved, tls, through="l4")
    assert {O.OK: 10} == result.outcomes
    assert 1 == result.connections("tls_full")
    assert [] == [s for r in result.reports for s in r.sightings if s.kind is SightKind.SERIAL]
    cut, _ = handshake(authority, cuts_mid_answer, tls, through="l4")
    assert {O.CUT_MID_RESPONSE: 10} == cut.outcomes
    assert {serial_in_pem(pair.chain_pem)} == {e.serial for e in cut.evidence}


async def closes_after_one_answer(peer: Peer) -> None:
    await peer.send(answer(await peer.request()))


async def cuts_mid_answer(peer: Peer) -> None:
    await peer.send(answer(await peer.request(), b"half", length=16))
    peer.writer.transport.abort()


def test_an_idle_tls_connection_that_closes_is_noticed_at_once(authority: Authority, tmp_path: Path) -> None:
    """close_notify on an idle connection: never reused, never a failure."""
    tls = context_of(authority.leaf(NAME), tmp_path)
    result, _ = handshake(authority, closes_after_one_answer, tls, rate=20)
    assert {O.OK: 5} == result.outcomes
    assert 0 == result.connections("reused")


def test_a_tls_answer_that_is_cut(authority: Authority, tmp_path: Path) -> None:
    """A TCP end without close_notify in mid-answer is cut_mid_response."""
    result, _ = handshake(authority, cuts_mid_answer, context_of(authority.leaf(NAME), tmp_path))
    assert {O.CUT_MID_RESPONSE: 10} == result.outcomes
