"""Node.js: http-proxy-3 in a cluster under pm2, as a careful engineer would run it; the script is ``node/server.js``.

What a reload does here: HUP to ``node/pm2.js`` checks the configuration and then does what ``pm2 reload`` does. For each
worker pm2 starts a new one, waits until it says that it is ready, and sends INT to the old one, which takes no new
connections, closes idle ones and ends with its last; after 4 s it is killed, and websockets with it. Up to two workers
pm2 replaces one after the other, so with a websocket on each the last old one takes new connections for 4 s more. pm2
refuses a reload while one is under way, so it waits. Certificates are read by new workers.

pm2 never becomes a daemon: it runs in the process that was started, with its home in the run's directory.
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
    modules_of,
    node_version,
    refusals_in,
    rendered,
    script,
)
from soak.proxies.base import Capability, ProcessRole, ProxyModel, output_of

_PACKAGES = "node24"
_NEEDED = ("pm2", "http-proxy-3")
_OLDEST = 22


class NodeAdapter:
    """The facts of Node.js with pm2 and http-proxy-3.

    Each worker checks the backends every 500 ms, once before it is ready. A GET that failed before its answer began goes
    to the next backend; a POST is never sent twice, not even when it met a dead backend first. A hanging backend costs
    2 s. ``/cache/`` is passed on. ``proxy.extra`` is JavaScript: ``proxy.use((req, res, next) => ...)`` adds middleware, and
    ``proxy.server`` is the proxy of http-proxy-3 with its events.
    """

    name = "node"
    capabilities = frozenset(
        {
            Capability.RELOAD,
            Capability.CERT_ROTATE,
            Capability.MARKER,
            Capability.H2,
            Capability.WEBSOCKET,
        }
    )

    limits: Mapping[str, str] = {
        "metrics": "pm2 counts processes, not requests",
        "tcp": "http-proxy-3 reads HTTP",
    }

    def find_binary(self, configured: str | None) -> Path:
        """Return the configured Node.js, or the installed one; raises ``LabError`` also when a module is missing."""
        return find_node(self.name, _PACKAGES, _NEEDED, configured)

    def version(self, binary: Path) -> str:
        """Ask ``node --version``: ``24.22.1``. Raises ``LabError`` for one that is too old for http-proxy-3."""
        version = node_version(binary, how_to_get_of(self.name))
        if int(version.split(".")[0]) < _OLDEST:
            raise LabError(
                f"{binary} is Node.js {version}; http-proxy-3 needs {_OLDEST} or newer: {how_to_get_of(self.name)}"
            )
        return version

    def render(self, model: ProxyModel) -> Mapping[str, str]:
        """Return ``config.json`` and ``extra.js``."""
        return rendered(model)

    def validate_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return ``node config.js DIRECTORY``."""
        return checking(binary, directory)

    def start_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return pm2 in the foreground."""
        return [str(binary), script("pm2.js"), str(directory), str(modules_of(binary, _PACKAGES, _NEEDED))]

    def reload_signal(self) -> Signals:
        """HUP to pm2."""
        return SIGHUP

    def stop_signal(self) -> Signals:
        """TERM: all workers are killed."""
        return SIGTERM

    def error_log(self, directory: Path) -> Path:
        """Return the file of its output, into which the workers write, too."""
        return output_of(directory)

    def refusals(self, log_text: str) -> Sequence[str]:
        """Return what the check, or pm2, refused."""
        return refusals_in(log_text)

    def acceptances(self, log_text: str) -> Sequence[str]:
        """Return the lines that come when all old workers are gone."""
        return acceptances_in(log_text)

    def role(self, cmdline: str) -> ProcessRole:
        """Tell pm2 by its command line, workers by the titles that the script gives them."""
        if cmdline.startswith("soak node worker"):
            return ProcessRole.OLD_WORKER if "closing" in cmdline else ProcessRole.WORKER
        return ProcessRole.MASTER if f"{script('pm2.js')} " in cmdline else ProcessRole.OTHER


ADAPTER = NodeAdapter()
