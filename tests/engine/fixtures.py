"""Fixtures for tests with real containers. Mark such a module ``pytest.mark.xdist_group("docker")``: it has one engine."""

from collections.abc import AsyncIterator, Iterator

import pytest

from soak.lab.engine import Engine
from tests.conftest import missing
from tests.engine.dockerd import Dockerd, why_not
from tests.engine.images import import_origin, import_proxy


class Images:
    """Stand-in images, imported when first asked for."""

    def __init__(self, dockerd: Dockerd) -> None:
        self._dockerd = dockerd
        self._have: dict[str, str] = {}

    def origin(self) -> str:
        """Return the name of soak's own image."""
        if "origin" not in self._have:
            self._have["origin"] = import_origin(self._dockerd)
        return self._have["origin"]

    def proxy(self, name: str) -> str:
        """Return the name of a proxy's image."""
        if name not in self._have:
            self._have[name] = import_proxy(self._dockerd, name)
        return self._have[name]


@pytest.fixture(scope="session")
def dockerd() -> Iterator[Dockerd]:
    """One private engine for the session. What a test leaves in it fails the last one."""
    if (reason := why_not()) is not None:
        missing(reason)
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
    connected = await Engine.connect(dockerd.host)
    yield connected
    connected.close()
