"""What the adapters on Node.js share: where Node and the modules are, the configuration that the scripts read, what they say.

The scripts are ours and lie in ``soak/proxies/node``; what they ``require`` is pinned by a lock file there and installed
beside the venv by ``.ci/node`` (``make soak PROXY=node`` runs it). Node.js itself comes the same way, from npm.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soak.errors import LabError
from soak.proxies._asking import ask_version, find_binary
from soak.proxies.base import ProxyModel, route_names

SCRIPTS = Path(__file__).parent / "node"
CONFIG = "config.json"
EXTRA = "extra.js"
_WORD = "soak: "


def modules_home(packages: str) -> Path:
    """Return the directory in which ``.ci/node`` installs a set of packages (``node24``, ``node14``)."""
    return Path(sys.prefix) / "lib" / "soak-node" / packages / "node_modules"


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


def script(name: str) -> str:
    """Return the path of one of our scripts."""
    return os.fspath(SCRIPTS / name)


def checking(node: Path, directory: Path) -> Sequence[str]:
    """Return the command that reads the configuration as the proxy would, and says what is wrong."""
    return [str(node), script("config.js"), str(directory)]


def refusals_in(log_text: str) -> Sequence[str]:
    """Return the lines in which our scripts say that a configuration was refused."""
    return [line for line in log_text.splitlines() if line.startswith(f"{_WORD}refused: ")]


def acceptances_in(log_text: str) -> Sequence[str]:
    """Return the lines in which they say that all workers serve a new one and none an old one."""
    return [line for line in log_text.splitlines() if line.startswith(f"{_WORD}reloaded: ")]
