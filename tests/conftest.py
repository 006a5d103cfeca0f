"""Shared by all tests: what a test may require of the machine, and how they are shared out among workers."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests.engine.fixtures import dockerd, engine, images  # noqa: F401 - fixtures, defined once for all tests
from tests.lanes import pytest_configure, pytest_configure_node, pytest_xdist_make_scheduler  # noqa: F401 - hooks

# No property of this project is about how long one example takes on a busy machine. Where nothing may be skipped, nothing is
# left to chance either: the same examples each time.
settings.register_profile("soak", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("soak"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("SOAK_REQUIRE_ALL") == "1" else "soak")


def find_tool(name: str) -> str | None:
    """Return the path of a program: beside the running Python (the venv) first, then on PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)


def missing(reason: str) -> NoReturn:
    """Skip the test with the reason, or fail it where nothing may be skipped (``SOAK_REQUIRE_ALL=1``)."""
    if os.environ.get("SOAK_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def require() -> Callable[[str], str]:
    """Return a function that finds a program or skips the test with the reason.

    Under ``SOAK_REQUIRE_ALL=1`` (what ``.ci/run`` sets) a missing program is a failure: nothing is skipped unseen.
    """

    def find(name: str) -> str:
        if path := find_tool(name):
            return path
        missing(f"{name} is neither in the venv nor on PATH; 'make test' gets it where it can")

    return find


@pytest.fixture
def offspring() -> Callable[[], list[psutil.Process]]:
    """Return a function that lists the living processes below this one that came since the test began.

    Others may be there: what a lane shares (a container engine) lives until its worker ends.
    """
    before = set(psutil.Process().children(recursive=True))

    def now() -> list[psutil.Process]:
        children = psutil.Process().children(recursive=True)
        return [p for p in children if p not in before and lives(p)]

    return now


def lives(process: psutil.Process) -> bool:
    """Whether a process has not ended; it may be waited for while it is looked at."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
