"""The TLS of attached origins, to which a byte pipe leads: a certificate that 'soak render' makes for them, and the trust in it.

Origins outlive runs, and each run has an authority of its own. So theirs is signed by another one, whose key nobody keeps: its root
lies in the proxy's directory, and clients of a run trust it beside the run's own.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

from certs.authority import Authority
from certs.install import install_pair, write_atomically
from soak.errors import LabError
from soak.lab.prober import trust
from soak.lab.topology import LOOPBACK
from soak.labplan import AttachedProxyPlan
from soak.proxies.base import SERVER_NAME, BackendAddress

_LOOK_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class OriginTls:
    """Where it lies."""

    root: Path
    """Written last: where it is, the pair is whole."""
    certificate: Path
    key: Path


def origin_tls_of(where: AttachedProxyPlan) -> OriginTls:
    """Return where the certificate of the origins behind a proxy lies."""
    directory = Path(where.directory)
    return OriginTls(directory / "origin-ca.pem", directory / "origin.pem", directory / "origin.key")


def certify(files: OriginTls) -> None:
    """Make a certificate, unless there is one: origins that run show what they read at their start. Raises ``OSError``."""
    if all(path.exists() for path in (files.root, files.certificate, files.key)):
        return
    files.root.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as apart:
        authority = Authority.create(Path(apart) / "certs")
        pair = authority.leaf(SERVER_NAME, f"*.{SERVER_NAME}", LOOPBACK, "localhost")
        install_pair(pair.chain_pem, pair.key_pem, certificate=files.certificate, key=files.key)
        write_atomically(files.root, authority.ca_pem.read_bytes(), mode=0o644)


def trust_both(root: Path, files: OriginTls, both: Path) -> None:
    """Write what clients trust: a run's root and that of the origins. Raises ``LabError`` when there is none of theirs."""
    try:
        theirs = files.root.read_bytes()
    except OSError as error:
        raise LabError(
            f"the origins' root {files.root} cannot be read ({error.strerror}); 'soak render' makes it"
        ) from error
    write_atomically(both, root.read_bytes() + theirs, mode=0o644)


async def tls_missing(address: BackendAddress, files: OriginTls) -> str | None:
    """Return why no byte pipe can lead to an origin; None when a handshake with it is verified, or none is wanted."""
    if not address.tls_port:
        return None
    try:
        context = await asyncio.to_thread(trust, files.root)
        async with asyncio.timeout(_LOOK_TIMEOUT_S):
            _, writer = await asyncio.open_connection(
                address.host, address.tls_port, ssl=context, server_hostname=SERVER_NAME
            )
    except OSError as error:  # ssl.SSLError and TimeoutError are some
        why = str(error) or f"no handshake within {_LOOK_TIMEOUT_S:g} s"
        return (
            f"{address.name} does not speak TLS on {address.host}:{address.tls_port} with {files.certificate} ({why}); "
            "start it with --tls-port, --certificate and --key, as 'soak render' says"
        )
    writer.transport.abort()
    return None
