"""node-tcp-proxy: passes bytes on from a TCP port to the backends and reads none of them; the script is ``node/tcp.js``.

What a reload does here: HUP to the main process checks the configuration and hands the certificate to the workers, which
give it to the listener that ends TLS (``setSecureContext``). Nothing else can change, and no connection is touched.

It knows no HTTP, so it can mark no answer: that a reload was taken cannot be seen, but a new certificate can.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from soak.errors import LabError
from soak.proxies._nodejs import NodeScript, container_of, how_to_get_of, module_version
from soak.proxies.base import Capability, ProxyModel


class NodeTcpAdapter(NodeScript):
    """The facts of node-tcp-proxy.

    The HTTP port is a pipe to the backends' plain ports, the HTTPS port the same after TLS that ends here, the TCP port a
    pipe to their own TLS. One backend is chosen for a connection, among those that answered the last checks (every 500 ms,
    out after two failures); what was sent to a dead one before that is lost. Paths and hosts are nothing to it: there is
    no ``/single/`` and there are no routes. It heeds no back pressure, so a client that reads slowly costs memory.

    ``proxy.extra`` is JavaScript that may change ``proxy``, the options of each of its proxies (``upstream``, ``downstream``).
    """

    name = "node-tcp"
    packages = "node24"
    needed = ("node-tcp-proxy",)
    script = "tcp.js"
    title = "soak tcp"
    capabilities = frozenset(
        {Capability.RELOAD, Capability.CERT_ROTATE, Capability.WEBSOCKET, Capability.TCP}
    )
    container = container_of(name, packages, "node:24.22.1-slim")

    limits: Mapping[str, str] = {
        "marker": "it passes bytes on unread, so nothing of its configuration shows in an answer",
        "metrics": "it counts nothing",
        "h2": "it hands on what the origins speak, and those speak HTTP/1.1",
    }

    def version(self, binary: Path) -> str:
        """Return the version of node-tcp-proxy: ``0.0.28``."""
        return module_version(binary, self.modules(binary), self.needed[0], how_to_get_of(self.name))

    def render(self, model: ProxyModel) -> Mapping[str, str]:
        """Return ``config.json`` and ``extra.js``. Raises ``LabError`` for routes."""
        if model.routes:
            raise LabError(
                f"{self.name} reads no HTTP and cannot tell {model.routes} hosts apart; remove the class 'many-routes'"
            )
        return super().render(model)


ADAPTER = NodeTcpAdapter()
