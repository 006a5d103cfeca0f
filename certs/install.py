"""Put a certificate and its key in place so that no reader ever sees half of one; read serial and fingerprint.

Proxies watch renames, modification times or inodes to decide whether a certificate changed (nginx since 1.27.4 reuses
an object whose mtime and inode are unchanged; Envoy sees only renames). So a file is never rewritten: a new one is
written beside it, synced, and renamed over it.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

_PEM_MARK = b"-----BEGIN"


def write_atomically(path: Path, data: bytes, *, mode: int) -> None:
    """Replace ``path`` by a new, synced file with this content and mode. Raises ``OSError``; then nothing changed."""
    temporary = _write_beside(path, data, mode)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def install_pair(chain_pem: bytes, key_pem: bytes, *, certificate: Path, key: Path) -> None:
    """Put a pair in place: both new files are complete and synced before the first one is renamed.

    The key is 0600. Raises ``ValueError`` when the key is not that of the first certificate, and ``OSError``; in both
    cases the old pair is still there unless the second rename failed.
    """
    _require_match(chain_pem, key_pem)
    new_key = _write_beside(key, key_pem, 0o600)
    try:
        new_certificate = _write_beside(certificate, chain_pem, 0o644)
    except OSError:
        new_key.unlink(missing_ok=True)
        raise
    try:
        new_key.replace(key)
        new_certificate.replace(certificate)
    finally:
        for leftover in (new_key, new_certificate):
            leftover.unlink(missing_ok=True)
    for directory in {key.parent, certificate.parent}:
        _sync_directory(directory)


def serial_of(certificate: bytes) -> str:
    """Return the serial of a certificate (DER, or PEM whose first block is the leaf).

    Lower-case hexadecimal without leading zeros: the one spelling of a serial in all of soak. Raises ``ValueError``.
    """
    return format(_load(certificate).serial_number, "x")


def canonical_serial(text: str) -> str:
    """Return the same spelling for what ``ssl.SSLSocket.getpeercert()`` or OpenSSL print (``0A:1B``, ``0A1B``)."""
    return format(int(text.replace(":", ""), 16), "x")


def fingerprint_of(certificate: bytes) -> str:
    """Return the SHA-256 of the leaf's DER as lower-case hexadecimal. Raises ``ValueError``."""
    return _load(certificate).fingerprint(hashes.SHA256()).hex()


def not_after_of(certificate: bytes) -> float:
    """Return when a certificate ends to be valid, in seconds since the epoch. Raises ``ValueError`` for what is none."""
    return _load(certificate).not_valid_after_utc.timestamp()


def _load(certificate: bytes) -> x509.Certificate:
    if _PEM_MARK in certificate[:4096]:
        return x509.load_pem_x509_certificate(certificate)
    return x509.load_der_x509_certificate(certificate)


def _require_match(chain_pem: bytes, key_pem: bytes) -> None:
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    promised = _load(chain_pem).public_key().public_bytes(*form)
    if load_pem_private_key(key_pem, password=None).public_key().public_bytes(*form) != promised:
        raise ValueError(
            f"the private key does not belong to the certificate with serial {serial_of(chain_pem)}; "
            "install the chain and the key of the same leaf"
        )


def _write_beside(path: Path, data: bytes, mode: int) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # created 0600
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return temporary


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
