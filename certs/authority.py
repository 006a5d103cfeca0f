"""The run's own certificate authority: good leaves for rotations, and bad ones that a client must refuse.

A rotation can only be judged when the client verifies the chain, and a public authority cannot issue for ``soak.test``;
so each run makes its own root on trustme. This is the only module that imports trustme. It writes nothing but its own
directory (0700, keys 0600) and installs nothing: that is ``certs.install``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import trustme

from certs.install import write_atomically

CA_CERTIFICATE = "ca.pem"
CA_KEY = "ca.key"
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
_NOT_SO_LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate chain (leaf first) and the leaf's private key, both PEM."""

    chain_pem: bytes
    key_pem: bytes

    def __repr__(self) -> str:
        """Keep the key out of logs and tracebacks."""
        return f"Pair({len(self.chain_pem)} bytes of chain, key withheld)"


class Authority:
    """Issues leaves that clients of this run trust, and leaves that they must not.

    >>> authority = Authority.create(Path("/run/certs"))  # doctest: +SKIP
    >>> pair = authority.leaf("soak.test", "127.0.0.1")  # doctest: +SKIP
    >>> ssl.create_default_context(cafile=authority.ca_pem)  # doctest: +SKIP
    """

    def __init__(self, directory: Path, ca: trustme.CA) -> None:
        self._directory = directory
        self._ca = ca

    @classmethod
    def create(cls, directory: Path) -> Authority:
        """Make a new root and keep it in ``directory``. Raises ``OSError`` when it cannot be written."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        ca = trustme.CA(
            organization_name="soak", organization_unit_name=f"soak run CA {directory.parent.name}"
        )
        write_atomically(directory / CA_KEY, ca.private_key_pem.bytes(), mode=0o600)
        write_atomically(directory / CA_CERTIFICATE, ca.cert_pem.bytes(), mode=0o644)
        return cls(directory, ca)

    @classmethod
    def open(cls, directory: Path) -> Authority:
        """Reopen what ``create`` kept, from any process that may read the key.

        Raises ``OSError`` when the files are missing or unreadable and ``ValueError`` when they are not PEM.
        """
        certificate = (directory / CA_CERTIFICATE).read_bytes()
        key = (directory / CA_KEY).read_bytes()
        return cls(directory, trustme.CA.from_pem(certificate, key))

    @property
    def ca_pem(self) -> Path:
        """File with the root certificate, for clients' trust stores."""
        return self._directory / CA_CERTIFICATE

    def leaf(self, *names: str) -> Pair:
        """Issue a leaf for these DNS names and addresses, with a new key and a random serial."""
        return _pair(self._ca.issue_cert(*names, organization_name="soak"))

    def expired(self, *names: str) -> Pair:
        """Issue a leaf whose validity ended in 2001."""
        leaf = self._ca.issue_cert(
            *names, organization_name="soak", not_before=_LONG_AGO, not_after=_NOT_SO_LONG_AGO
        )
        return _pair(leaf)

    def wrong_host(self) -> Pair:
        """Issue a leaf of this root for a name that nobody asks for."""
        return self.leaf("wrong-host.invalid")

    def other_ca(self, *names: str) -> Pair:
        """Issue a leaf for these names by a root that nobody trusts."""
        return _pair(trustme.CA(organization_name="not soak").issue_cert(*names))


def _pair(leaf: trustme.LeafCert) -> Pair:
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    return Pair(chain, leaf.private_key_pem.bytes())
