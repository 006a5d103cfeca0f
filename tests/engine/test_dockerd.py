"""The tests' own engine leaves nothing on the machine, however it ended: what ran in its containers would go on for hours."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import lives, missing
from tests.engine.dockerd import Dockerd, remove_orphans, why_not
from tests.engine.images import import_rootfs

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.timeout(180)]


@pytest.fixture
def own() -> Iterator[Dockerd]:
    """An engine of the test's own, with two containers on a network behind published ports: one sleeps, one is paused."""
    if (reason := why_not()) is not None:
        missing(reason)
    own = Dockerd()
    try:
        own.start()
        image = import_rootfs(own, "soak-test-sleep:local", lambda _rootfs: None, {})
        client = own.client()
        client.create_network("left", driver="bridge")
        for name in ("sleeps", "paused"):
            host = client.create_host_config(network_mode="left", port_bindings={80: ("127.0.0.1", None)})
            command = ["/bin/sleep", "600"]
            client.create_container(image, command=command, name=name, host_config=host, ports=[80])
            client.start(name)
        client.pause("paused")
        client.close()
        yield own
    finally:
        own.stop()


@pytest.fixture
def left(own: Dockerd) -> Callable[[], list[str]]:
    """Return a function that tells what this machine still has of all that the engine had when the test began."""
    assert own._process is not None
    started = psutil.Process(own._process.pid).children(recursive=True)
    family = {psutil.Process(pid) for pid in own.processes()} | set(started)
    links = own.links()

    def now() -> list[str]:
        rules = subprocess.run(["iptables", "-w", "-S"], capture_output=True, text=True, check=True)
        return [
            *(f"process {p.pid}" for p in family if lives(p)),
            *(link for link in links if Path("/sys/class/net", link).exists()),
            *own.mounts(),
            *map(str, own.groups()),
            *(rule for rule in rules.stdout.splitlines() if own._pool in rule),
            *map(str, own.home.parent.glob(own.home.name)),
        ]

    assert 2 == [p.name() for p in family].count("sleep")
    assert 3 == len(links), "a bridge and a plug for each container"
    assert own.mounts()
    assert own.groups()
    return now


def test_an_engine_that_was_killed_and_does_not_come_back_leaves_nothing(own: Dockerd, left):
    """Its containers outlive it; a start that fails takes them down."""
    own.end(signal.SIGKILL)
    assert 2 == [psutil.Process(pid).name() for pid in own.processes()].count("sleep")
    own.host = "nowhere://"

    with pytest.raises(RuntimeError, match="dockerd did not come up"):
        own.start()

    assert [] == left()
    assert [] == own.stop()


def test_what_tests_that_were_killed_left_is_removed_by_the_next(own: Dockerd, left, dockerd: Dockerd):
    """The engine of tests that are alive is left alone."""
    own.end(signal.SIGKILL)
    remove_orphans()
    assert 2 == [psutil.Process(pid).name() for pid in own.processes()].count("sleep")
    assert own._lock is not None
    own._lock.close()  # as the kernel does with all files of a process that ends

    remove_orphans()

    assert [] == left()
    assert dockerd.home.exists()
    client = dockerd.client()
    assert client.ping()
    client.close()


def test_an_engine_that_is_stopped_says_what_was_left_in_it(own: Dockerd, left):
    """Containers and networks that a test forgot; then they are gone."""
    assert ["container /paused", "container /sleeps", "network left"] == sorted(own.stop())
    assert [] == left()
