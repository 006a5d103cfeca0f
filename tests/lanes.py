"""Which tests may run beside each other when ``make test`` runs several at once (pytest-xdist, ``--dist loadscope``).

A *lane* is what one worker runs in a row. The mark ``pytest.mark.xdist_group(NAME)`` says which:

- ``calm``: whole runs that must end well. They run one at a time and begin before everything else.
- any other name (``docker``): tests that share something big, one at a time.
- ``each``: every test is a lane of its own, for long tests that share nothing.
- no mark: the file is the lane, so that what its tests share is made once. The load engine's files are one lane.

What runs in real time (``calm`` and the load engine) keeps its priority; everything beside it is niced, so that on two cores a slot
is late for the machine's sake alone as rarely as when nothing else ran. What takes long begins first, so that no worker is left
alone with it at the end.

Only workers see marks, and only the scheduler, in the process above them, hands out tests: the lanes go from one to the other in a
file. (pytest-xdist's own way, a suffix to a test's id, ends with pytest 9.1, whose ids cannot be set: its ``loadgroup`` ignores marks.)
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

CALM = "calm"
EACH = "each"
ENGINE = "tests/soak/load/"
LONG = ("tests/e2e/", "tests/soak/proxies/", "tests/soak/lab/", "tests/soak/cli/", "tests/soak/report/")
"""Where tests run real processes or many seconds, the longest first."""
NICE = 10
"""How far everything steps back that does not run in real time: a tenth of the weight (sched(7))."""


class Lanes(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Hands whole lanes to workers, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Producer, table: Path) -> None:
        super().__init__(config, log)
        self._table = table
        self._lanes: dict[str, str] = {}

    def schedule(self) -> None:
        """Begin once all workers have collected, and so have written which lane each test is in."""
        self._lanes = self._lanes or json.loads(self._table.read_text())
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._lanes[nodeid]


def group_of(item: pytest.Item) -> str:
    """Return the name of the lane that an item's marks ask for, or ""."""
    mark = item.get_closest_marker("xdist_group")
    return "" if mark is None else str(mark.args[0] if mark.args else mark.kwargs["name"])


def lane_of(item: pytest.Item) -> str:
    """Return the name of the lane that a test is in."""
    if item.nodeid.startswith(ENGINE):
        return ENGINE
    group = group_of(item)
    return item.nodeid if group == EACH else group or item.nodeid.partition("::")[0]


def in_real_time(item: pytest.Item) -> bool:
    """Return whether a test judges by instants, so that nothing may delay it."""
    return group_of(item) == CALM or item.nodeid.startswith(ENGINE)


def turn(item: pytest.Item) -> tuple[int, int]:
    """Return when an item's turn is, as a key to sort by: real time, what shares something big, single tests, files."""
    rank = (
        0 if group_of(item) == CALM else 1 if in_real_time(item) else {EACH: 3, "": 4}.get(group_of(item), 2)
    )
    place = next((i for i, start in enumerate(LONG) if item.nodeid.startswith(start)), len(LONG))
    return rank, place


class Worker:
    """What a worker does beside running tests: sorts what it collects, and steps back after what runs in real time."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._niced = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort the tests; the scheduler keeps the order in which lanes appear. Every worker writes the same table, whole."""
        items.sort(key=turn)
        draft = self._table.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({item.nodeid: lane_of(item) for item in items}))
        draft.replace(self._table)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Step back, once: real time comes first in its worker, and a priority does not come back without privilege."""
        if not self._niced and not in_real_time(item):
            os.nice(NICE)
            self._niced = True


TABLE = pytest.StashKey[Path]()
"""Where workers write which lane each test is in (``tests/lanes.py``)."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Lanes | None:
    """Share out lanes where whole scopes were asked for."""
    return Lanes(config, log, config.stash[TABLE]) if config.getvalue("dist") == "loadscope" else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker where the table is."""
    if TABLE in node.config.stash:
        node.workerinput["lanes"] = str(node.config.stash[TABLE])


def pytest_configure(config: pytest.Config) -> None:
    """Make a worker of pytest-xdist one that keeps to lanes."""
    given = getattr(config, "workerinput", None)
    if given is None and config.getoption("dist", "no") == "loadscope":
        directory = tempfile.mkdtemp(prefix="soak-lanes-")
        config.add_cleanup(lambda: shutil.rmtree(directory))
        config.stash[TABLE] = Path(directory, "table")
    elif given is not None and "lanes" in given:
        config.pluginmanager.register(Worker(Path(given["lanes"])), "lanes")
