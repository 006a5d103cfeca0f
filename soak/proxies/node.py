"""Node.js: http-proxy-3 in a cluster under pm2, as a careful engineer would run it; the script is ``node/server.js``.

What a reload does here: HUP to ``node/pm2.js`` checks the configuration and then does what ``pm2 reload`` does. For each
worker pm2 starts a new one, waits until it says that it is ready, and sends INT to the old one, which takes no new
connections, closes idle ones and ends with its last; after 4 s it is killed, and websockets with it. Up to two workers
pm2 replaces one after the other, so with a websocket on each the last old one takes new connections for 4 s more. pm2
refuses a reload while one is under way, so it waits. Certificates are read by new workers.

pm2 never becomes a daemon: it runs in the process that was started, with its home in the run's directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from soak.errors import LabError
from soak.proxies._nodejs import NodeScript, container_of, how_to_get_of, node_version, path_of
from soak.proxies.base import Capability, ProcessRole

_OLDEST = 22


class NodeAdapter(NodeScript):
    """The facts of Node.js with pm2 and http-proxy-3.

    Each worker checks the backends every 500 ms, once before it is ready. A GET that failed before its answer began goes
    to the next backend; a POST is never sent twice, not even when it met a dead backend first. A hanging backend costs
    2 s. ``/cache/`` is passed on. ``proxy.extra`` is JavaScript: ``proxy.use((req, res, next) => ...)`` adds middleware, and
    ``proxy.server`` is the proxy of http-proxy-3 with its events.
    """

    name = "node"
    packages = "node24"
    needed = ("pm2", "http-proxy-3")
    script = "pm2.js"
    title = "soak node"
    capabilities = frozenset(
        {
            Capability.RELOAD,
            Capability.CERT_ROTATE,
            Capability.MARKER,
            Capability.H2,
            Capability.WEBSOCKET,
        }
    )
    container = container_of(name, packages, "node:24.22.1-slim")

    limits: Mapping[str, str] = {
        "metrics": "pm2 counts processes, not requests",
        "tcp": "http-proxy-3 reads HTTP",
    }

    def version(self, binary: Path) -> str:
        """Ask ``node --version``: ``24.22.1``. Raises ``LabError`` for one that is too old for http-proxy-3."""
        version = node_version(binary, how_to_get_of(self.name))
        if int(version.split(".")[0]) < _OLDEST:
            raise LabError(
                f"{binary} is Node.js {version}; http-proxy-3 needs {_OLDEST} or newer: {how_to_get_of(self.name)}"
            )
        return version

    def role(self, cmdline: str) -> ProcessRole:
        """Tell pm2 by its command line, workers by the titles that the script gives them."""
        return ProcessRole.MASTER if f"{path_of(self.script)} " in cmdline else super().role(cmdline)


ADAPTER = NodeAdapter()
