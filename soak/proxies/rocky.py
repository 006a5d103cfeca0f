"""rocky: a proxy of the http-proxy family on Node.js 14, with which it needs to be run; the script is ``node/rocky.js``.

What a reload does here: HUP to the main process checks the configuration and hands it to the workers. Each builds a new
router and gives the new certificate to its listener (``setSecureContext``); no process, listener or connection is replaced.

rocky answers "socket hang up" on Node.js 16 and later, and its websockets have one backend for each instance.
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
    node_version,
    refusals_in,
    rendered,
    script,
)
from soak.proxies.base import Capability, ProcessRole, ProxyModel, output_of

_PACKAGES = "node14"
_NEEDED = ("rocky",)
_NEWEST = 14


class RockyAdapter:
    """The facts of rocky.

    Each worker checks the backends every 500 ms. Nothing is repeated: rocky's own ``retry`` asks the same backend again and
    does not work on recent versions of Node.js. So what meets a dead backend before it is known to be dead ends in 502.
    A hanging backend costs 2 s. Its HTTP/2 cannot be declared: http-proxy 1.18 passes pseudo headers on.

    ``/cache/`` is passed on. ``proxy.extra`` is JavaScript with the instance of rocky as ``proxy``, before the site's routes.
    """

    name = "rocky"
    capabilities = frozenset(
        {Capability.RELOAD, Capability.CERT_ROTATE, Capability.MARKER, Capability.WEBSOCKET}
    )

    limits: Mapping[str, str] = {
        "metrics": "it counts nothing",
        "h2": "it is made for the HTTP/1.1 server of Node.js 14",
        "tcp": "it reads HTTP",
    }

    def find_binary(self, configured: str | None) -> Path:
        """Return the configured Node.js, or the installed one; raises ``LabError`` also when rocky is missing."""
        return find_node(self.name, _PACKAGES, _NEEDED, configured)

    def version(self, binary: Path) -> str:
        """Return the version of rocky: ``0.4.16``. Raises ``LabError`` for a Node.js on which it does not work."""
        how_to_get = how_to_get_of(self.name)
        version = node_version(binary, how_to_get)
        if int(version.split(".")[0]) > _NEWEST:
            raise LabError(
                f"{binary} is Node.js {version}, on which rocky fails with 'socket hang up'; it needs {_NEWEST}: {how_to_get}"
            )
        return module_version(binary, modules_of(binary, _PACKAGES, _NEEDED), "rocky", how_to_get)

    def render(self, model: ProxyModel) -> Mapping[str, str]:
        """Return ``config.json`` and ``extra.js``."""
        return rendered(model)

    def validate_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return ``node config.js DIRECTORY``."""
        return checking(binary, directory)

    def start_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return the main process in the foreground."""
        return [str(binary), script("rocky.js"), str(directory), str(modules_of(binary, _PACKAGES, _NEEDED))]

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
        """Return the lines that come when all workers have swapped."""
        return acceptances_in(log_text)

    def role(self, cmdline: str) -> ProcessRole:
        """Tell processes by the titles that the script gives them; none is ever old."""
        if cmdline.startswith("soak rocky main"):
            return ProcessRole.MASTER
        return ProcessRole.WORKER if cmdline.startswith("soak rocky worker") else ProcessRole.OTHER


ADAPTER = RockyAdapter()
