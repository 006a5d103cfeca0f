"""Data flows one way: each room imports only what the design lets it. Walks the imports, late and typing-only ones too.

The rules are those of the design, sections 2 and 3; docs/ARCHITECTURE.md says them in words.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("soak", "chaos", "certs")

ANYTHING = frozenset(PACKAGES)

ROOMS: Mapping[str, Iterable[str]] = {
    # strangers to soak: usable without it
    "certs": ("certs",),
    "chaos": ("chaos",),
    # vocabulary and ground: import nothing of ours
    "soak.clock": (),
    "soak.errors": (),
    "soak.log": (),
    "soak.metric_catalog": (),
    "soak.model": (),
    "soak.plantypes": (),
    "soak.labplan": ("soak.errors", "soak.plantypes"),
    "soak.template": ("soak.errors",),
    "soak.commandplan": ("soak.plantypes", "soak.template"),
    "soak.proxyplan": ("soak.commandplan", "soak.errors", "soak.plantypes"),
    "soak.plan": ("soak.errors", "soak.labplan", "soak.plantypes", "soak.proxyplan", "soak.shapes"),
    "soak.rundir": ("soak.errors",),
    "soak.shapes": (),
    "soak.status": (),
    "soak.tasks": (),
    # folds: pure
    "soak.measure": ("soak.measure", "soak.model", "soak.plan"),
    # the load engine: a process of its own that knows no lab, no chaos, no store
    "soak.load": (
        "soak.clock",
        "soak.errors",
        "soak.load",
        "soak.measure",
        "soak.model",
        "soak.plan",
        "soak.shapes",
        "soak.tasks",
    ),
    # the system under test; of the load engine only what both sides of a request must agree on
    # with the plan's own part for it: a proxy may be known by that alone
    "soak.proxies": (
        "soak.commandplan",
        "soak.errors",
        "soak.model",
        "soak.proxies",
        "soak.proxyplan",
        "soak.template",
    ),
    "soak.lab": (
        "certs",
        "chaos.model",
        "chaos.regular",
        "chaos.target",
        "soak.clock",
        "soak.errors",
        "soak.lab",
        "soak.labplan",
        "soak.load.traffic",
        "soak.log",
        "soak.model",
        "soak.plan",
        "soak.proxies",
        "soak.rundir",
        "soak.tasks",
    ),
    # record, judge, show: the verdict reads only the store, the report renders dicts
    "soak.store": ("chaos.model", "soak.errors", "soak.measure", "soak.model", "soak.plan", "soak.store"),
    "soak.verdict": (
        "chaos.model",
        "soak.clock",
        "soak.errors",
        "soak.measure",
        "soak.model",
        "soak.plan",
        "soak.store",
        "soak.verdict",
    ),
    "soak.report": ("soak.report",),
    "soak.report.build": (
        "chaos.model",
        "soak.errors",
        "soak.measure",
        "soak.model",
        "soak.plan",
        "soak.report",
        "soak.store",
        "soak.verdict",
    ),
    "soak.report.evidence": ("soak.errors", "soak.model", "soak.report", "soak.store"),
    # a leaf, and the doors
    "soak.metrics": (
        "chaos.model",
        "soak.measure",
        "soak.metric_catalog",
        "soak.model",
        "soak.plan",
        "soak.status",
    ),
    "soak.scheduler": ("soak.clock", "soak.log", "soak.tasks"),
    "soak.web": (
        "chaos.model",
        "chaos.target",
        "soak.errors",
        "soak.log",
        "soak.rundir",
        "soak.status",
        "soak.tasks",
        "soak.web",
    ),
    # parts of a live run
    "soak.bounds": ("chaos.lifecycle", "soak.load.traffic", "soak.plan"),
    "soak.census": ("soak.clock", "soak.model"),
    "soak.collect": ("soak.measure", "soak.model", "soak.observe", "soak.plan", "soak.watch"),
    "soak.described": ("soak.clock", "soak.lab.base", "soak.live", "soak.plan"),
    "soak.ending": ("soak.errors", "soak.log", "soak.tasks"),
    "soak.heap": (),
    "soak.starvation": ("soak.model",),
    "soak.doors": (
        "chaos.fault",
        "chaos.model",
        "chaos.runner",
        "soak.clock",
        "soak.errors",
        "soak.status",
        "soak.web.control",
    ),
    "soak.recorder": (
        "certs.install",
        "chaos.model",
        "soak.clock",
        "soak.live",
        "soak.liveview",
        "soak.log",
        "soak.metrics",
        "soak.model",
        "soak.store",
    ),
    "soak.originwatch": ("chaos.target", "soak.clock", "soak.model", "soak.tasks"),
    "soak.watchman": ("chaos.guardian", "soak.errors", "soak.log", "soak.rundir", "soak.tasks"),
    "soak.live": ("chaos.model", "soak.measure", "soak.model", "soak.plan", "soak.status"),
    "soak.observe": ("soak.clock", "soak.model"),
    "soak.runchaos": (
        "chaos",
        "soak.bounds",
        "soak.clock",
        "soak.lab.base",
        "soak.plan",
        "soak.planrules",
        "soak.recorder",
        "soak.scheduler",
        "soak.tasks",
    ),
    "soak.rundoors": (
        "chaos.runner",
        "soak.clock",
        "soak.described",
        "soak.doors",
        "soak.live",
        "soak.plan",
        "soak.rundir",
        "soak.status",
        "soak.web",
    ),
    "soak.runload": (
        "soak.clock",
        "soak.collect",
        "soak.lab.base",
        "soak.load",
        "soak.measure",
        "soak.model",
        "soak.observe",
        "soak.plan",
        "soak.scopes",
        "soak.watch",
    ),
    "soak.runsight": (
        "chaos.model",
        "soak.bounds",
        "soak.census",
        "soak.clock",
        "soak.lab",
        "soak.model",
        "soak.observe",
        "soak.originwatch",
        "soak.plan",
        "soak.starvation",
        "soak.watch",
        "soak.workerwatch",
    ),
    "soak.workerwatch": ("chaos.model", "soak.model"),
    "soak.scopes": ("soak.clock", "soak.model"),
    "soak.watch": ("chaos.target", "soak.clock", "soak.measure", "soak.verdict.recovery"),
    # around a run: reading a plan, finding runs, looking at the host, showing
    "soak.yamlfile": ("soak.errors",),
    "soak.planerrors": ("soak.errors", "soak.plantypes", "soak.yamlfile"),
    "soak.abilities": ("chaos", "soak.plan", "soak.proxies"),
    "soak.labrules": (
        "soak.commandplan",
        "soak.errors",
        "soak.labplan",
        "soak.plan",
        "soak.proxies",
        "soak.yamlfile",
    ),
    "soak.planrules": (
        "chaos",
        "soak.abilities",
        "soak.errors",
        "soak.labrules",
        "soak.plan",
        "soak.proxies",
        "soak.yamlfile",
    ),
    "soak.planfile": (
        "soak.abilities",
        "soak.errors",
        "soak.plan",
        "soak.planerrors",
        "soak.planrules",
        "soak.proxies",
        "soak.yamlfile",
    ),
    "soak.runs": (
        "soak.clock",
        "soak.errors",
        "soak.lab.attachstate",
        "soak.lab.dockerstate",
        "soak.lab.sweep",
        "soak.plan",
        "soak.rundir",
    ),
    "soak.check": (
        "soak.abilities",
        "soak.clock",
        "soak.errors",
        "soak.lab.attachments",
        "soak.lab.dockercheck",
        "soak.labplan",
        "soak.plan",
        "soak.proxies",
        "soak.rundir",
        "soak.runs",
    ),
    "soak.liveview": ("soak.model", "soak.plan", "soak.status"),
    # the composition root and the command line wire everything
    "soak": (),
    "soak.daemon": ANYTHING,
    "soak.cli": ANYTHING,
}
"""What a room may import of our packages. The longest matching room rules; a module without a room fails the test."""

LEAVES: Mapping[str, Iterable[str]] = {
    "soak.cli": ("soak.cli",),
    "soak.daemon": ("soak.cli",),
    "soak.metrics": ("soak.daemon", "soak.recorder"),
    "soak.scheduler": ("soak.runchaos",),
    "soak.web.control": ("soak.doors", "soak.rundoors"),
    "soak.web.pages": ("soak.rundoors",),
}
"""Who alone may import these."""

OUTSIDE: Mapping[str, Iterable[str]] = {
    "aiohttp": ("soak.web.pages",),
    "apscheduler": ("soak.scheduler",),
    "click": ("soak.cli",),
    "docker": ("soak.lab.engine", "soak.lab.enginecalls"),
    "cryptography": ("certs", "soak.load"),
    "httptools": ("soak.lab", "soak.load"),
    "importlib": ("chaos.faults.catalog", "chaos.guardian", "soak.check", "soak.cli", "soak.proxies"),
    "prometheus_client": ("soak.metrics",),
    "psutil": ("soak.check", "soak.lab", "soak.runs"),
    "pydantic": (
        "soak.commandplan",
        "soak.labplan",
        "soak.plan",
        "soak.planerrors",
        "soak.planfile",
        "soak.plantypes",
        "soak.proxyplan",
    ),
    "rich": ("soak.cli", "soak.liveview"),
    "sqlite3": ("soak.store",),
    "structlog": ("soak.log",),
    "trustme": ("certs.authority",),
    "uvloop": ("soak.lab.origin", "soak.load.worker"),
    "yaml": ("soak.planfile", "soak.yamlfile"),
}
"""Where a library is allowed: each has one edge, at which its exceptions and quirks are dealt with."""


def within(name: str, rooms: Iterable[str]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}


def imports_of(source: str, modules: Iterable[str]) -> Iterator[str]:
    """Yield every module that the source imports, wherever in it; ``from a import b`` is a.b when that is a module."""
    known = set(modules)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if full in known else base


def room_of(module: str) -> str | None:
    rooms = [room for room in ROOMS if within(module, [room])]
    room = max(rooms, key=len, default=None)
    return None if room == "soak" and module != "soak" else room


def violations(module: str, source: str, modules: Iterable[str]) -> list[str]:
    room = room_of(module)
    if room is None:
        return [f"{module} belongs to no room: give it one in tests/test_layering.py"]
    out = []
    for name in imports_of(source, modules):
        top = name.partition(".")[0]
        if name.startswith("."):
            out.append(f"{module} imports {name!r} relatively; write the whole name")
        elif top in PACKAGES and name != "soak" and not within(name, ROOMS[room]):
            out.append(f"{module} ({room}) must not reach into {name}")
        for leaf, friends in LEAVES.items():
            if within(name, [leaf]) and not within(module, friends):
                out.append(f"{module} must not import {leaf}: only {', '.join(friends)} may")
        if top in OUTSIDE and not within(module, OUTSIDE[top]):
            out.append(f"{module} must not import {top}: only {', '.join(OUTSIDE[top])} may")
    return out


@pytest.mark.parametrize("module", MODULES)
def test_room_reaches_only_where_it_may(module):
    """Every import of every module, also inside functions and under TYPE_CHECKING."""
    assert [] == violations(module, MODULES[module].read_text(), MODULES)


def test_rules_name_rooms_that_exist():
    """A rule about a module that is gone protects nothing."""
    assert [] == [room for room in (*ROOMS, *LEAVES) if room not in MODULES]
    known = {*MODULES, *PACKAGES}
    assert [] == [n for names in (*ROOMS.values(), *OUTSIDE.values()) for n in names if n not in known]


@pytest.mark.parametrize(
    ("module", "source", "says"),
    [
        ("chaos.runner", "from soak.model import Phase", "must not reach into soak.model"),
        ("chaos.runner", "from soak import model", "must not reach into soak.model"),
        ("certs.install", "import chaos.model", "must not reach into chaos.model"),
        ("soak.load.engine", "def f():\n    import soak.store", "must not reach into soak.store"),
        (
            "soak.verdict.drift",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from soak.lab.local import LocalLab",
            "must not reach into soak.lab.local",
        ),
        ("soak.report.text", "from soak.store import StoreReader", "must not reach into soak.store"),
        ("soak.daemon", "from apscheduler.triggers.date import DateTrigger", "only soak.scheduler may"),
        ("certs.install", "import trustme", "only certs.authority may"),
        ("soak.collect", "from soak.metrics import Metrics", "only soak.daemon, soak.recorder may"),
        ("soak.load.engine", "from . import pacer", "relatively"),
        ("soak.shiny", "", "belongs to no room"),
    ],
)
def test_forbidden_import_is_found(module, source, says):
    """The check itself can fail, in each of the ways that an import can hide."""
    assert any(says in sentence for sentence in violations(module, source, MODULES))


def test_allowed_imports_are_not_held_against_a_room():
    """What the rules allow passes."""
    source = (
        "from soak.model import Phase\nfrom soak import clock\nimport asyncio\nimport soak.measure.window"
    )

    assert [] == violations("soak.load.engine", source, MODULES)
