"""rocky: a proxy of the http-proxy family on Node.js 14, with which it needs to be run; the script is ``node/rocky.js``.

What a reload does here: HUP to the main process checks the configuration and hands it to the workers. Each builds a new
router and gives the new certificate to its listener (``setSecureContext``); no process, listener or connection is replaced.

rocky answers "socket hang up" on Node.js 16 and later, and its websockets have one backend for each instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from soak.errors import LabError
from soak.proxies._nodejs import NodeScript, container_of, how_to_get_of, module_version, node_version
from soak.proxies.base import Capability

_NEWEST = 14


class RockyAdapter(NodeScript):
    """The facts of rocky.

    Each worker checks the backends every 500 ms. Nothing is repeated: rocky's own ``retry`` asks the same backend again and
    does not work on recent versions of Node.js. So what meets a dead backend before it is known to be dead ends in 502.
    A hanging backend costs 2 s. Its HTTP/2 cannot be declared: http-proxy 1.18 passes pseudo headers on.

    ``/cache/`` is passed on. ``proxy.extra`` is JavaScript with the instance of rocky as ``proxy``, before the site's routes.
    """

    name = "rocky"
    packages = "node14"
    needed = ("rocky",)
    script = "rocky.js"
    title = "soak rocky"
    capabilities = frozenset(
        {Capability.RELOAD, Capability.CERT_ROTATE, Capability.MARKER, Capability.WEBSOCKET}
    )
    container = container_of(name, packages, "node:14.21.3-slim")

    limits: Mapping[str, str] = {
        "metrics": "it counts nothing",
        "h2": "it is made for the HTTP/1.1 server of Node.js 14",
        "tcp": "it reads HTTP",
    }

    def version(self, binary: Path) -> str:
        """Return the version of rocky: ``0.4.16``. Raises ``LabError`` for a Node.js on which it does not work."""
        how_to_get = how_to_get_of(self.name)
        version = node_version(binary, how_to_get)
        if int(version.split(".")[0]) > _NEWEST:
            raise LabError(
                f"{binary} is Node.js {version}, on which rocky fails with 'socket hang up'; it needs {_NEWEST}: {how_to_get}"
            )
        return module_version(binary, self.modules(binary), self.needed[0], how_to_get)


ADAPTER = RockyAdapter()
