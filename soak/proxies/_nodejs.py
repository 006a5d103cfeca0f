"""A proxy that is a script of ours on Node.js: what the adapters ``node``, ``rocky`` and ``node-tcp`` have in common.

The scripts lie in ``soak/proxies/node``; what they ``require`` is pinned by a lock file there and installed beside the venv by
``.ci/node`` (``make soak PROXY=node`` runs it). Node.js itself comes the same way, from npm. All of them read the same
``config.json`` and ``extra.js``, take HUP for a reload and TERM for the end, and say the same words about it on their output.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGHUP, SIGTERM, Signals
from typing import Any

from soak.errors import LabError
from soak.model import WorkerEnd
from soak.proxies._asking import ask_version, find_binary
from soak.proxies.base import CRASHES, ContainerFacts, ProcessRole, ProxyModel, output_of, route_names

SCRIPTS = Path(__file__).parent / "node"
CONFIG = "config.json"
EXTRA = "extra.js"
_INSIDE = "/etc/soak/proxy"
"""Where its files are in a container; the images of Node.js expect none."""
_WORD = "soak: "
_ENDED = re.compile(rf"^{_WORD}worker (\d+) ended: (\w+)", re.MULTILINE)


class NodeScript:
    """Everything of ``ProxyAdapter`` but the name, the abilities and the version; a subclass says which script it is about."""

    name: str
    packages: str
    """The set of packages in ``soak/proxies/node`` that it runs with: ``node24``, ``node14``."""
    needed: Sequence[str]
    """The modules without which it is nothing; the first is the one that the proxy is called after."""
    script: str
    """The file in ``soak/proxies/node`` that is started."""
    title: str
    """What its processes call themselves: ``TITLE main``, ``TITLE worker``, ``TITLE worker is closing``."""

    def find_binary(self, configured: str | None) -> Path:
        """Return the configured Node.js, or the installed one; raises ``LabError`` also when a module is missing."""
        return find_node(self.name, self.packages, self.needed, configured)

    def modules(self, binary: Path) -> Path:
        """Return the ``node_modules`` that go with this Node.js."""
        return modules_of(binary, self.packages, self.needed)

    def render(self, model: ProxyModel) -> Mapping[str, str]:
        """Return ``config.json`` and ``extra.js``."""
        return rendered(model)

    def validate_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return the command that reads the configuration as the proxy would, and says what is wrong."""
        return [str(binary), path_of("config.js"), str(directory)]

    def start_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return the script in the foreground."""
        return [str(binary), path_of(self.script), str(directory), str(self.modules(binary))]

    def reload_signal(self) -> Signals:
        """HUP to the main process."""
        return SIGHUP

    def stop_signal(self) -> Signals:
        """TERM: all workers are killed."""
        return SIGTERM

    def error_log(self, directory: Path) -> Path:
        """Return the file of its output, into which the workers write, too."""
        return output_of(directory)

    def refusals(self, log_text: str) -> Sequence[str]:
        """Return the lines in which our scripts say that a configuration was refused."""
        return [line for line in log_text.splitlines() if line.startswith(f"{_WORD}refused: ")]

    def acceptances(self, log_text: str) -> Sequence[str]:
        """Return the lines in which they say that all workers serve a new one and none an old one."""
        return [line for line in log_text.splitlines() if line.startswith(f"{_WORD}reloaded: ")]

    def worker_ends(self, log_text: str) -> Mapping[int, WorkerEnd]:
        """Return what ``primary.js`` says of each worker: a signal, or the status of Node.js. pm2 does not say which process it was."""
        return {int(pid): WorkerEnd(f"ended: {how}", _crashed(how)) for pid, how in _ENDED.findall(log_text)}

    def role(self, cmdline: str) -> ProcessRole:
        """Tell processes by the titles that the script gives them."""
        if cmdline.startswith(f"{self.title} worker"):
            return ProcessRole.OLD_WORKER if "closing" in cmdline else ProcessRole.WORKER
        return ProcessRole.MASTER if cmdline.startswith(f"{self.title} main") else ProcessRole.OTHER


def _crashed(how: str) -> bool | None:
    if how.isdigit():
        return True if int(how) else None
    return True if how in {number.name for number in CRASHES} else None


def modules_home(packages: str) -> Path:
    """Return the directory in which ``.ci/node`` installs a set of packages (``node24``, ``node14``)."""
    return Path(sys.prefix) / "lib" / "soak-node" / packages / "node_modules"


def container_of(name: str, packages: str, image: str) -> ContainerFacts:
    """Return how a script of ours runs in an image of Node.js, with its modules from this host: they are not in any image."""
    reads = (SCRIPTS, modules_home(packages))
    return ContainerFacts(image, _INSIDE, "node", reads=reads, how_to_get=how_to_get_of(name))


def find_node(name: str, packages: str, needed: Sequence[str], configured: str | None) -> Path:
    """Return the Node.js that runs an adapter. Raises ``LabError`` when it or one of the modules is missing.

    A configured one brings its own modules when it lies in ``node_modules/.bin`` (or ``node_modules/NAME/bin``) beside them.
    """
    how_to_get = how_to_get_of(name)
    node = find_binary(name, configured, (modules_home(packages) / ".bin" / "node",), how_to_get)
    modules = modules_of(node, packages, needed)
    for module in needed:
        if not (modules / module / "package.json").is_file():
            raise LabError(f"the module {module} is not in {modules}; {how_to_get}")
    return node


def how_to_get_of(name: str) -> str:
    """Return the sentence that says where a set comes from."""
    return (
        f"install it with 'make soak PROXY={name}' (or '.ci/node {name} VENV'), "
        "or set proxy.binary to a Node.js in node_modules/.bin"
    )


def modules_of(node: Path, packages: str, needed: Sequence[str]) -> Path:
    """Return the ``node_modules`` that this Node.js lies in when the modules are there, else those that were installed."""
    for parent in node.parents:
        if parent.name == "node_modules" and all((parent / module).is_dir() for module in needed):
            return parent
    return modules_home(packages)


def node_version(node: Path, how_to_get: str) -> str:
    """Ask ``node --version``: ``24.22.1``."""
    return ask_version([str(node), "--version"], r"v(\d+\.\d+\.\d+)", how_to_get)


def module_version(node: Path, modules: Path, module: str, how_to_get: str) -> str:
    """Let Node.js say which version of a module it finds. Raises ``LabError`` with its words."""
    script = f"'module ' + require({json.dumps(str(modules / module / 'package.json'))}).version"
    return ask_version([str(node), "-p", script], r"module (\d+\.\d+\.\d+)", how_to_get)


def rendered(model: ProxyModel) -> dict[str, str]:
    """Return what ``config.js`` reads: the configuration, and the user's JavaScript in a file of its own."""
    config: dict[str, Any] = {
        "generation": model.generation,
        "host": model.listen_host,
        "httpPort": model.http_port,
        "httpsPort": model.https_port,
        "tcpPort": model.tcp_port,
        "bundle": str(model.bundle),
        "origins": [
            {"name": b.name, "host": b.host, "port": b.port, "tlsPort": b.tls_port} for b in model.backends
        ],
        "routes": {f"{name}.{model.server_name}": name for name in route_names(model.routes)},
        "workers": model.workers,
    }
    if model.broken:
        config["soak_refuse_this"] = True
    return {CONFIG: json.dumps(config, indent=1) + "\n", EXTRA: model.extra + "\n"}


def path_of(script: str) -> str:
    """Return the path of one of our scripts."""
    return os.fspath(SCRIPTS / script)
