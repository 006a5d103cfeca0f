"""The TLS layer, byte by byte, before a real OpenSSL server in memory: handshakes, ends, cuts, and bytes that are no TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from certs.authority import Authority
from soak.load.dial import client_context
from soak.load.libssl import TlsSession
from soak.load.tls import TlsLayer
from soak.load.traffic import pattern
from tests.soak.load.rig import run
from tests.soak.load.tlspeer import V12, V13, Above, Below, Memory, server_context, shake, taken

NAME = "soak.test"
VERSIONS = pytest.mark.parametrize("version", [V12, V13], ids=["1.2", "1.3"])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("ca") / "certs")


@pytest.fixture(scope="module")
def client(authority: Authority) -> ssl.SSLContext:
    return client_context(str(authority.ca_pem))


@pytest.fixture(scope="module")
def servers(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> dict[ssl.TLSVersion, ssl.SSLContext]:
    directory = tmp_path_factory.mktemp("server")
    return {v: server_context(authority.leaf(NAME), directory, v) for v in (V12, V13)}


class Line:
    """A layer, what is above and below it, and a server. Made inside a running loop."""

    def __init__(
        self,
        client: ssl.SSLContext,
        server: ssl.SSLContext,
        session: TlsSession | None = None,
        *,
        timeout_s: float = 5.0,
    ) -> None:
        self.above, self.below, self.server = Above(), Below(), Memory(server)
        self.kept: list[tuple[TlsSession | None, str]] = []
        self.layer = TlsLayer(
            self.above,
            client,
            NAME,
            timeout_s=timeout_s,
            session=session,
            keep=lambda s, v: self.kept.append((s, v)),
        )
        self.below.protocol = self.layer
        self.layer.connection_made(self.below)

    def shake(self) -> Line:
        shake(self.layer, self.below, self.server)
        return self

    def carry(self) -> bytes:
        """Take what the client wrote to the server; return what it reads."""
        self.server.hear(taken(self.below))
        return self.server.read()


@VERSIONS
def test_a_handshake_then_bytes_both_ways(client, servers, version):
    """A request of several records up, a MiB down in pieces of at most a record."""

    async def main() -> None:
        line = Line(client, servers[version]).shake()
        await line.layer.up
        assert ["made"] == line.above.diary
        request, body = pattern(40_000), pattern(1 << 20)
        line.layer.write(request)
        assert request[:16_384] == line.carry()
        records = line.server.say(body)
        for at in range(0, len(records), 7_001):
            line.layer.data_received(records[at : at + 7_001])
        assert body == bytes(line.above.data)
        assert line.layer.get_extra_info("ssl_object").version() == version.name.replace("_", ".")

    run(main())


@VERSIONS
def test_a_session_is_resumed(client, servers, version):
    """Both sides say so, and what is brought home can be resumed again."""

    async def main() -> None:
        session = None
        for expected in (False, True, True):
            line = Line(client, servers[version], session).shake()
            line.layer.data_received(line.server.say(b"answer"))
            assert expected is line.layer.resumed is line.server.tls.session_reused
            line.layer.close()
            (session, said) = line.kept[0]
            assert version.name.replace("_", ".") == said
            assert session is not None
            line.layer.abort()

    run(main())


@VERSIONS
def test_our_close_says_goodbye_and_waits_for_the_peers(client, servers, version):
    """close_notify, then the transport is closed when the peer's has come; nothing is written after it."""

    async def main() -> None:
        line = Line(client, servers[version]).shake()
        line.layer.close()
        line.layer.write(b"too late")
        line.server.hear(taken(line.below))
        line.server.tls.unwrap()  # would want to read, had our close_notify not come
        assert [] == line.below.done
        line.layer.data_received(line.server.outgoing.read())
        await asyncio.sleep(0)
        assert (["close"], ["made", "lost"], None) == (line.below.done, line.above.diary, line.above.lost)

    run(main())


def test_our_close_does_not_wait_for_ever(client, servers, monkeypatch):
    """A peer that never says goodbye, or never reads, holds a file for a second at most."""
    monkeypatch.setattr("soak.load.tls.CLOSE_TIMEOUT_S", 0.02)

    async def main() -> None:
        line = Line(client, servers[V13]).shake()
        line.layer.close()
        async with asyncio.timeout(5):
            while not line.below.done:
                await asyncio.sleep(0.005)
        await asyncio.sleep(0)
        assert (["abort"], "lost") == (line.below.done, line.above.diary[-1])
        deaf = Line(client, servers[V13]).shake()
        deaf.below.unread = 10
        deaf.layer.data_received(deaf.server.goodbye())
        async with asyncio.timeout(5):
            while "abort" not in deaf.below.done:
                await asyncio.sleep(0.005)

    run(main())


def test_answers_that_follow_our_close_are_of_no_interest(client, servers):
    """They reach nobody and are no error."""

    async def main() -> None:
        line = Line(client, servers[V13]).shake()
        line.layer.close()
        line.layer.data_received(line.server.say(b"late"))
        line.layer.data_received(b"not even TLS")
        await asyncio.sleep(0)
        assert (b"", None) == (bytes(line.above.data), line.above.lost)

    run(main())


@VERSIONS
def test_the_peers_goodbye_ends_in_order(client, servers, version):
    """What came before it is delivered, the session is kept, no error is told: a body may end so."""

    async def main() -> None:
        line = Line(client, servers[version]).shake()
        line.layer.data_received(line.server.say(b"whole") + line.server.goodbye())
        line.layer.eof_received()
        await asyncio.sleep(0)
        assert (b"whole", ["made", "eof", "lost"]) == (bytes(line.above.data), line.above.diary)
        assert (None, 1) == (line.above.lost, len(line.kept))

    run(main())


def test_an_end_without_goodbye_is_a_cut(client, servers):
    """RFC 9112 section 9.8: what ends so is not whole. Its session is not kept."""

    async def main() -> None:
        line = Line(client, servers[V13]).shake()
        line.layer.data_received(line.server.say(b"ha"))
        line.layer.eof_received()
        await asyncio.sleep(0)
        assert "without close_notify" in str(line.above.lost)
        assert (["made", "eof", "lost"], []) == (line.above.diary, line.kept)

    run(main())


def test_a_reset_below_is_told_above(client, servers):
    """With the reason that the transport gave."""

    async def main() -> None:
        line = Line(client, servers[V13]).shake()
        line.layer.connection_lost(ConnectionResetError("reset"))
        assert (["made", "lost"], "reset") == (line.above.diary, str(line.above.lost))
        line.layer.connection_lost(None)
        assert ["made", "lost"] == line.above.diary
        assert (0, None) == (line.layer.get_write_buffer_size(), line.layer.get_extra_info("socket"))

    run(main())


def test_a_broken_record_ends_the_connection_with_an_alert(client, servers):
    """The peer is told (bad_record_mac), above gets OpenSSL's reason, the session is not kept."""

    async def main() -> None:
        line = Line(client, servers[V13]).shake()
        record = bytearray(line.server.say(b"answer"))
        record[-1] ^= 1
        taken(line.below)
        line.layer.data_received(bytes(record))
        await asyncio.sleep(0)
        assert isinstance(line.above.lost, ssl.SSLError)
        assert (["close"], []) == (line.below.done, line.kept)
        with pytest.raises(ssl.SSLError, match="ALERT"):
            line.carry()

    run(main())


def test_a_peer_that_makes_us_talk_and_does_not_listen(client, servers):
    """Answers to TLS itself do not pile up: the connection is ended."""

    async def main() -> None:
        line = Line(client, servers[V13]).shake()
        line.layer.write(pattern(1 << 20))
        line.below.unread = 1 << 20  # what we ourselves wrote is ours to wait for
        line.layer.data_received(line.server.say(b"a"))
        assert [] == line.below.done
        line.below.unread += 300_000
        line.layer.data_received(line.server.say(b"b"))
        await asyncio.sleep(0)
        assert "abort" in line.below.done
        assert "does not read" in str(line.above.lost)

    run(main())


ENDS: list[tuple[str, Callable[[Line], object], type[Exception], str]] = [
    ("end of the stream", lambda x: x.layer.eof_received(), ConnectionResetError, "during the handshake"),
    ("loss of the connection", lambda x: x.layer.connection_lost(None), ConnectionResetError, "was lost"),
    ("reset", lambda x: x.layer.connection_lost(OSError("gone")), OSError, "gone"),
    ("no TLS", lambda x: x.layer.data_received(b"HTTP/1.1 400 Bad\r\n\r\n"), ssl.SSLError, "WRONG_VERSION"),
    ("an alert", lambda x: x.layer.data_received(b"\x15\x03\x03\x00\x02\x02\x28"), ssl.SSLError, "ALERT"),
    ("our abort", lambda x: x.layer.abort(), ConnectionAbortedError, "given up"),
    ("our close", lambda x: x.layer.close(), ConnectionAbortedError, "given up"),
]


@pytest.mark.parametrize(("says", "end", "kind", "words"), ENDS, ids=[e[0] for e in ENDS])
def test_a_handshake_that_ends_by(client, servers, *, says, end, kind, words):
    """Its waiter is told why; above hears nothing, for it never had a connection."""

    async def main() -> None:
        line = Line(client, servers[V13])
        end(line)
        with pytest.raises(kind, match=words):
            await line.layer.up
        await asyncio.sleep(0)
        line.layer.data_received(b"more")
        line.layer.write(b"more")
        assert [] == line.above.diary

    run(main())


def test_a_handshake_that_takes_too_long(client, servers):
    """TimeoutError, and the transport is gone."""

    async def main() -> None:
        line = Line(client, servers[V13], timeout_s=0.01)
        with pytest.raises(TimeoutError, match=r"longer than 0\.01 s"):
            await line.layer.up
        assert ["abort"] == line.below.done

    run(main())


def test_a_transport_that_comes_after_the_end_is_closed(client):
    """The dial was given up while the loop made the transport."""

    async def main() -> None:
        layer, below = TlsLayer(Above(), client, NAME, timeout_s=5), Below()
        layer.abort()
        layer.connection_made(below)
        assert ["abort"] == below.done

    run(main())


def test_a_certificate_that_does_not_verify_is_refused(client, authority: Authority, tmp_path: Path):
    """By chain and by name; the server gets the alert."""

    async def main() -> None:
        for pair in (authority.other_ca(NAME), authority.wrong_host(), authority.expired(NAME)):
            line = Line(client, server_context(pair, tmp_path)).shake()
            with pytest.raises(ssl.SSLCertVerificationError):
                await line.layer.up
            assert [] == line.above.diary

    run(main())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    version=st.sampled_from([V12, V13]),
    flight=st.integers(0, 5),
    at=st.integers(0, 5000),
    junk=st.binary(max_size=40),
    how=st.sampled_from(["insert", "overwrite", "cut", "swap"]),
    ending=st.sampled_from(["eof", "lost", "close", "abort"]),
)
def test_damaged_bytes_end_in_order(client, servers, *, version, flight, at, junk, how, ending):
    """Whatever a server's flights are made into: no exception leaves the layer, and above hears each thing once."""

    async def main() -> None:
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        line = Line(client, servers[version])
        for i in range(6):
            said = line.server.hear(taken(line.below))
            if line.server.shaken and line.above.diary == ["made"]:
                said += line.server.say(pattern(300))
            line.layer.data_received(damaged(said, at, junk, how) if i == flight else said)
        ends: dict[str, Callable[[], object]] = {
            "eof": line.layer.eof_received,
            "lost": lambda: line.layer.connection_lost(None),
            "close": line.layer.close,
            "abort": line.layer.abort,
        }
        ends[ending]()
        await asyncio.sleep(0)
        line.layer.abort()
        await asyncio.sleep(0)
        assert line.layer.up.done()
        assert (line.above.diary.count("made"), line.above.diary.count("lost")) in ((0, 0), (1, 1))
        assert [] == errors

    run(main())


def damaged(data: bytes, at: int, junk: bytes, how: str) -> bytes:
    """Return the bytes with something wrong at a place in them."""
    place = at % (len(data) + 1)
    head, tail = data[:place], data[place:]
    return {
        "insert": head + junk + tail,
        "overwrite": head + junk + tail[len(junk) :],
        "cut": head,
        "swap": tail + head,
    }[how]
