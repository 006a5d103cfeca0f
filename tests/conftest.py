"""Shared by all tests: what a test may require of the machine."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest


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
