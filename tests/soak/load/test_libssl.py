"""Sessions by libssl and by ``ssl`` alike: resumable ones only, no memory lost, and the known layout proved before it is used."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from types import SimpleNamespace

import pytest

from certs.authority import Authority
from soak.load import libssl
from soak.load.dial import client_context
from soak.load.libssl import TlsSession, offer, session_of
from tests.soak.load.tlspeer import V12, V13, Memory, server_context

NAME = "soak.test"
WAYS = pytest.mark.parametrize("way", ["libssl", "ssl"])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("ca") / "certs")


@pytest.fixture
def _way(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "ssl":
        monkeypatch.setattr(libssl, "_library", None)
    elif libssl._library is None:
        pytest.skip("this interpreter needs no way around its bug")


class Client:
    """A client in memory that has shaken hands."""

    def __init__(
        self, ours: ssl.SSLContext, theirs: ssl.SSLContext, session: TlsSession | None = None
    ) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = ours.wrap_bio(self.incoming, self.outgoing, server_hostname=NAME)
        if session is not None:
            offer(self.tls, session)
        server = Memory(theirs)
        for _ in range(4):
            try:
                self.tls.do_handshake()
                self.incoming.write(server.hear(self.outgoing.read()))
                self.tls.read(1)
            except ssl.SSLWantReadError:
                self.incoming.write(server.hear(self.outgoing.read()))


@WAYS
@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("version", [V12, V13], ids=["1.2", "1.3"])
def test_a_session_is_read_and_offered(authority: Authority, tmp_path: Path, version: ssl.TLSVersion) -> None:
    """Any number of times; it outlives the connection and a failure of another that offered it."""
    ours, theirs = (
        client_context(str(authority.ca_pem)),
        server_context(authority.leaf(NAME), tmp_path, version),
    )
    session = session_of(Client(ours, theirs).tls)
    assert session is not None
    assert session.ident
    assert 0 < session.life_s <= 7200
    for _ in range(3):
        resumed = Client(ours, theirs, session).tls
        assert resumed.session_reused
        with pytest.raises(ssl.SSLError):
            broken = ours.wrap_bio(bio := ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=NAME)
            offer(broken, session)
            bio.write(b"\x15\x03\x03\x00\x02\x02\x28")
            broken.do_handshake()


@WAYS
@pytest.mark.usefixtures("_way")
def test_there_is_none_before_the_handshake_nor_from_a_server_without_tickets(
    authority: Authority, tmp_path: Path
) -> None:
    """None, so that nothing is offered that OpenSSL would keep to itself."""
    ours = client_context(str(authority.ca_pem))
    fresh = ours.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=NAME)
    assert session_of(fresh) is None
    theirs = server_context(authority.leaf(NAME), tmp_path, V13, tickets=False)
    assert session_of(Client(ours, theirs).tls) is None


def test_reading_and_offering_loses_no_memory(authority: Authority, tmp_path: Path) -> None:
    """``ssl`` alone would lose 24 MiB in 4,000 reads on an interpreter with the bug."""
    assert not libssl.LEAKS
    ours, theirs = client_context(str(authority.ca_pem)), server_context(authority.leaf(NAME), tmp_path)
    tls = Client(ours, theirs).tls

    def use(times: int) -> None:
        for _ in range(times):
            session = session_of(tls)
            assert session is not None
            offer(ours.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=NAME), session)

    use(500)
    before = rss_bytes()
    use(4000)
    assert rss_bytes() - before < 8 * 1024 * 1024


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_an_unknown_layout_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the context does not lie where it should, or libssl has no such functions, or no bug calls for it."""
    monkeypatch.setattr(libssl, "_CONTEXT_AT", libssl._HEAD)
    assert libssl._reach() is None
    monkeypatch.undo()
    monkeypatch.setattr("soak.load.libssl.ctypes.CDLL", lambda _: SimpleNamespace())
    assert libssl._reach() is None
    monkeypatch.undo()
    monkeypatch.setattr(libssl, "_BUG", False)
    assert libssl._reach() is None


@pytest.mark.parametrize(
    ("hint_s", "timeout_s", "expected"), [(0, 300, 300), (60, 300, 60), (9000, 7200, 7200)]
)
def test_the_servers_word_on_the_life_of_a_session(hint_s: int, timeout_s: int, expected: int) -> None:
    """RFC 5077 section 3.3: no hint says nothing."""
    assert expected == libssl._life_s(hint_s, timeout_s)
