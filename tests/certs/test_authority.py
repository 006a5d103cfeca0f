"""Leaves are judged by real handshakes, as clients judge them."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest

from certs.authority import Authority, Pair
from certs.install import serial_of


def handshake(pair: Pair, trust: Path, name: str, directory: Path) -> str:
    """Serve the pair to a client that trusts ``trust`` and asks for ``name``; return the serial that it saw."""
    (directory / "served.pem").write_bytes(pair.key_pem + pair.chain_pem)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(directory / "served.pem")
    client_context = ssl.create_default_context(cafile=trust)
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            with server_context.wrap_socket(theirs, server_side=True) as served:
                served.recv(1)
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client_context.wrap_socket(ours, server_hostname=name) as client:
            certificate = client.getpeercert(binary_form=True)
            client.sendall(b"x")
    finally:
        ours.close()
        thread.join()
    assert certificate is not None
    return serial_of(certificate)


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "run-7" / "certs")


def test_a_client_that_trusts_the_run_accepts_its_leaf(authority, tmp_path):
    """A leaf is verified by its root, for each of its names, and shows its own serial."""
    pair = authority.leaf("soak.test", "127.0.0.1")

    assert serial_of(pair.chain_pem) == handshake(pair, authority.ca_pem, "soak.test", tmp_path)
    assert serial_of(pair.chain_pem) == handshake(pair, authority.ca_pem, "127.0.0.1", tmp_path)


def test_each_leaf_has_its_own_serial_and_key(authority):
    """A rotation cannot be mistaken for the certificate before it."""
    first, second = authority.leaf("soak.test"), authority.leaf("soak.test")

    assert serial_of(first.chain_pem) != serial_of(second.chain_pem)
    assert first.key_pem != second.key_pem


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (lambda a: a.expired("soak.test"), "certificate has expired"),
        (lambda a: a.wrong_host(), "Hostname mismatch"),
        (lambda a: a.other_ca("soak.test"), "unable to get local issuer|self.signed"),
    ],
    ids=["expired", "wrong host", "other CA"],
)
def test_a_bad_leaf_is_refused_for_its_own_reason(authority, tmp_path, kind, words):
    """Each bad leaf fails verification in the way that it is named after."""
    with pytest.raises(ssl.SSLCertVerificationError, match=words):
        handshake(kind(authority), authority.ca_pem, "soak.test", tmp_path)


def test_another_process_can_reopen_the_authority(authority, tmp_path):
    """What is reopened from the files signs leaves that the same root verifies."""
    again = Authority.open(authority.ca_pem.parent)
    pair = again.leaf("soak.test")

    assert serial_of(pair.chain_pem) == handshake(pair, authority.ca_pem, "soak.test", tmp_path)


def test_nobody_else_can_read_the_keys(authority):
    """The directory is 0700 and the root's key 0600."""
    directory = authority.ca_pem.parent

    assert 0o700 == stat.S_IMODE(directory.stat().st_mode)
    assert 0o600 == stat.S_IMODE((directory / "ca.key").stat().st_mode)


def test_a_directory_that_was_open_to_all_is_closed(tmp_path):
    """An existing directory gets the strict mode too."""
    directory = tmp_path / "certs"
    directory.mkdir(mode=0o755)
    Authority.create(directory)

    assert 0o700 == stat.S_IMODE(directory.stat().st_mode)


def test_opening_what_is_not_there_or_not_pem_fails(tmp_path):
    """A missing authority is an OSError, garbage a ValueError."""
    with pytest.raises(FileNotFoundError):
        Authority.open(tmp_path)
    (tmp_path / "ca.pem").write_text("garbage")
    (tmp_path / "ca.key").write_text("garbage")
    with pytest.raises(ValueError):
        Authority.open(tmp_path)


def test_a_pair_does_not_print_its_key(authority):
    """Neither a log line nor a traceback can carry the key."""
    pair = authority.leaf("soak.test")

    assert "PRIVATE" not in repr(pair)
    assert "key withheld" in repr(pair)
