"""Which tests may run beside each other when ``make test`` runs several at once (pytest-xdist, ``--dist loadgroup``).

A *lane* is what one worker runs in a row. The mark ``pytest.mark.xdist_group(NAME)`` says which:

- ``calm``: whole runs that must end well. They run one at a time and begin before everything else.
- any other name (``docker``): tests that share something big, one at a time.
- ``each``: every test is a lane of its own, for long tests that share nothing.
- no mark: the file is the lane, so that what its tests share is made once. The load engine's files are one lane.

What runs in real time (``calm`` and the load engine) keeps its priority; everything beside it is niced, so that on two cores a slot
is late for the machine's sake alone as rarely as when nothing else ran. What takes long begins first, so that no worker is left
alone with it at the end.
"""

from __future__ import annotations

import os

import pytest
from xdist.scheduler import LoadGroupScheduling

CALM = "calm"
EACH = "each"
ENGINE = "tests/soak/load/"
LONG = ("tests/e2e/", "tests/soak/proxies/", "tests/soak/lab/", "tests/soak/cli/", "tests/soak/report/")
"""Where tests run real processes or many seconds, the longest first."""
NICE = 10
"""How far everything steps back that does not run in real time: a tenth of the weight (sched(7))."""


class Lanes(LoadGroupScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Hands whole lanes to workers, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(ENGINE):
            return ENGINE
        scope: str = super()._split_scope(nodeid)
        return nodeid if scope == EACH else scope.partition("::")[0]


def group_of(item: pytest.Item) -> str:
    """Return the name of the lane that an item's marks ask for, or ""."""
    mark = item.get_closest_marker("xdist_group")
    return "" if mark is None else str(mark.args[0] if mark.args else mark.kwargs["name"])


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

    def __init__(self) -> None:
        self._niced = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort the tests; the scheduler keeps the order in which lanes appear."""
        items.sort(key=turn)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Step back, once: real time comes first in its worker, and a priority does not come back without privilege."""
        if not self._niced and not in_real_time(item):
            os.nice(NICE)
            self._niced = True
