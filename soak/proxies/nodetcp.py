"""node-tcp-proxy: passes bytes on from a TCP port to the backends and reads none of them; the script is ``node/tcp.js``.

What a reload does here: HUP to the main process checks the configuration and hands the certificate to the workers, which
give it to the listener that ends TLS (``setSecureContext``). Nothing else can change, and no connection is touched.

It knows no HTTP, so it can mark no answer: that a reload was taken cannot be seen, but a new certificate can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGHUP, SIGTERM, Signals

from soak.errors import LabError
from soak.proxies._nodejs import (
    acceptances_in,
    checking,
    find_node,
    how_to_get_of,
    module_version,
    modules_of,
    refusals_in,
    rendered,
    script,
)
from soak.proxies.base import Capability, ProcessRole, ProxyModel, output_of

_PACKAGES = "node24"
_NEEDED = ("node-tcp-proxy",)


class NodeTcpAdapter:
    """The facts of node-tcp-proxy.

    The HTTP port is a pipe to the backends' plain ports, the HTTPS port the same after TLS that ends here, the TCP port a
    pipe to their own TLS. One backend is chosen for a connection, among those that answered the last checks (every 500 ms,
    out after two failures); what was sent to a dead one before that is lost. Paths and hosts are nothing to it: there is
    no ``/single/`` and there are no routes. It heeds no back pressure, so a client that reads slowly costs memory.

    ``proxy.extra`` is JavaScript that may change ``proxy``, the options of each of its proxies (``upstream``, ``downstream``).
    """

    name = "node-tcp"
    capabilities = frozenset(
        {Capability.RELOAD, Capability.CERT_ROTATE, Capability.WEBSOCKET, Capability.TCP}
    )

    limits: Mapping[str, str] = {
        "marker": "it passes bytes on unread, so nothing of its configuration shows in an answer",
        "metrics": "it counts nothing",
        "h2": "it hands on what the origins speak, and those speak HTTP/1.1",
    }

    def find_binary(self, configured: str | None) -> Path:
        """Return the configured Node.js, or the installed one; raises ``LabError`` also when the module is missing."""
        return find_node(self.name, _PACKAGES, _NEEDED, configured)

    def version(self, binary: Path) -> str:
        """Return the version of node-tcp-proxy: ``0.0.28``."""
        modules = modules_of(binary, _PACKAGES, _NEEDED)
        return module_version(binary, modules, _NEEDED[0], how_to_get_of(self.name))

    def render(self, model: ProxyModel) -> Mapping[str, str]:
        """Return ``config.json`` and ``extra.js``. Raises ``LabError`` for routes."""
        if model.routes:
            raise LabError(
                f"{self.name} reads no HTTP and cannot tell {model.routes} hosts apart; remove the class 'many-routes'"
            )
        return rendered(model)

    def validate_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return ``node config.js DIRECTORY``."""
        return checking(binary, directory)

    def start_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return the main process in the foreground."""
        return [str(binary), script("tcp.js"), str(directory), str(modules_of(binary, _PACKAGES, _NEEDED))]

    def reload_signal(self) -> Signals:
        """HUP to the main process."""
        return SIGHUP

    def stop_signal(self) -> Signals:
        """TERM: all workers are killed."""
        return SIGTERM

    def error_log(self, directory: Path) -> Path:
        """Return the file of its output."""
        return output_of(directory)

    def refusals(self, log_text: str) -> Sequence[str]:
        """Return what the check refused."""
        return refusals_in(log_text)

    def acceptances(self, log_text: str) -> Sequence[str]:
        """Return the lines that come when all workers have the certificate."""
        return acceptances_in(log_text)

    def role(self, cmdline: str) -> ProcessRole:
        """Tell processes by the titles that the script gives them; none is ever old."""
        if cmdline.startswith("soak tcp main"):
            return ProcessRole.MASTER
        return ProcessRole.WORKER if cmdline.startswith("soak tcp worker") else ProcessRole.OTHER


ADAPTER = NodeTcpAdapter()
