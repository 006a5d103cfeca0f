"""The certificate of attached origins, shown by a real origin; through a real byte pipe: test_attach.py."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from certs.authority import Authority
from certs.install import serial_of
from soak.errors import LabError
from soak.lab.attachedtls import OriginTls, certify, origin_tls_of, tls_missing, trust_both
from soak.labplan import AttachedProxyPlan
from soak.proxies.base import BackendAddress

from .running import end, start


@pytest.fixture
def files(tmp_path: Path) -> OriginTls:
    return origin_tls_of(AttachedProxyPlan(directory=str(tmp_path), http_port=1, https_port=2))


@pytest.fixture
def address(files: OriginTls) -> Iterator[BackendAddress]:
    """An origin that shows the certificate."""
    certify(files)
    running = start(0, "--tls-port", "0", "--certificate", str(files.certificate), "--key", str(files.key))
    yield BackendAddress("b1", "127.0.0.1", running.port, running.tls_port)
    end(running)


async def test_a_handshake_with_the_origin_is_verified(files: OriginTls, address: BackendAddress):
    """Nothing is missing then, nor where no pipe is wanted."""
    assert await tls_missing(address, files) is None
    assert await tls_missing(BackendAddress("b2", "127.0.0.1", 9), files) is None


async def test_what_an_origin_does_not_speak_is_said_with_the_reason(
    files: OriginTls, address: BackendAddress
):
    """Nobody listens; another certificate; no root; and how to start it."""
    how = "start it with --tls-port, --certificate and --key, as 'soak render' says"
    deaf = await tls_missing(BackendAddress("b1", "127.0.0.1", 9, 9), files)
    plain = await tls_missing(BackendAddress("b1", "127.0.0.1", 9, address.port), files)
    files.root.unlink()
    rootless = await tls_missing(address, files)
    certify(files)
    strange = await tls_missing(address, files)
    assert deaf is not None
    assert deaf.startswith(f"b1 does not speak TLS on 127.0.0.1:9 with {files.certificate} (")
    for words, why in (
        (deaf, "Connect call failed"),
        (plain, "SSL"),
        (rootless, "No such file"),
        (strange, "verify"),
    ):
        assert words is not None
        assert why in words
        assert words.endswith(how)


@pytest.mark.parametrize("lost", ["root", "certificate", "key"])
def test_a_certificate_stays_until_a_part_of_it_is_lost(files: OriginTls, lost: str):
    """Origins that run have read it; the rest of it is of no use to one that starts."""
    certify(files)
    first = serial_of(files.certificate.read_bytes())
    certify(files)
    assert first == serial_of(files.certificate.read_bytes())
    assert 0o600 == files.key.stat().st_mode & 0o777
    getattr(files, lost).unlink()
    certify(files)
    assert first != serial_of(files.certificate.read_bytes())


def test_clients_trust_the_runs_root_and_that_of_the_origins(files: OriginTls, tmp_path: Path):
    """Both in one file; without the origins' there is a sentence."""
    root = Authority.create(tmp_path / "certs").ca_pem
    with pytest.raises(
        LabError, match=r"origin-ca\.pem cannot be read \(No such file.*; 'soak render' makes it"
    ):
        trust_both(root, files, tmp_path / "both.pem")
    certify(files)
    trust_both(root, files, tmp_path / "both.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(tmp_path / "both.pem")
    assert 2 == len(context.get_ca_certs())
