"""Fixtures for tests with real containers, known to all tests by ``tests/conftest.py``: one engine for a session.

Mark a module that uses them ``pytest.mark.xdist_group("docker")``, so that one process has that engine. What they need is imported
when they are asked for: most tests need no container.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from soak.lab.engine import Engine
    from tests.engine.dockerd import Dockerd


class Images:
    """Stand-in images, imported when first asked for."""

    def __init__(self, dockerd: Dockerd) -> None:
        self._dockerd = dockerd
        self._have: dict[str, str] = {}

    def origin(self) -> str:
        """Return the name of soak's own image."""
        from tests.engine.images import import_origin

        if "origin" not in self._have:
            self._have["origin"] = import_origin(self._dockerd)
        return self._have["origin"]

    def proxy(self, name: str) -> str:
        """Return the name of a proxy's image."""
        from tests.engine.images import import_proxy

        if name not in self._have:
            self._have[name] = import_proxy(self._dockerd, name)
        return self._have[name]


@pytest.fixture(scope="session")
def dockerd() -> Iterator[Dockerd]:
    """One private engine for the session. What a test leaves in it fails the last one."""
    from tests.conftest import missing
    from tests.engine.dockerd import Dockerd, remove_orphans, why_not

    if (reason := why_not()) is not None:
        missing(reason)
    remove_orphans()
    engine = Dockerd()
    engine.start()
    left: list[str] = []
    try:
        yield engine
    finally:
        left = engine.stop()
    assert left == [], "tests left this in the engine"


@pytest.fixture(scope="session")
def images(dockerd: Dockerd) -> Images:
    """Stand-in images of the private engine."""
    return Images(dockerd)


@pytest.fixture
async def engine(dockerd: Dockerd) -> AsyncIterator[Engine]:
    """soak's own door to the private engine."""
    from soak.lab.engine import Engine

    connected = await Engine.connect(dockerd.host)
    yield connected
    connected.close()
