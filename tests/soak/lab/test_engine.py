"""The engine's door, against a real engine: each call does what it says, and each refusal is a sentence with the fix."""

import pytest

from soak.lab.containers import Container, ContainerSpec, Limits
from soak.lab.engine import Engine
from soak.lab.enginewords import (
    ContainerGoneError,
    EngineError,
    ImageMissingError,
    NameTakenError,
)

pytestmark = pytest.mark.xdist_group("docker")

LABELS = {"soak.run": "engine-test"}


@pytest.fixture
async def sleeper(engine, images):
    """A running container that does nothing."""
    spec = ContainerSpec(
        "soak-sleeper", images.proxy("nginx"), ["sleep", "600"], LABELS, cpus=2, memory_bytes=256 << 20
    )
    container = await engine.create(spec)
    await engine.start(container)
    yield container
    await engine.remove(container)


async def test_lifecycle_shows_in_state_and_identity(engine, sleeper):
    """Pause, kill and start are seen by inspect; a restart is another process in the same container."""
    first = await engine.inspect(sleeper)
    assert ("running", True) == (first.state, first.alive)
    await engine.pause(sleeper)
    await engine.pause(sleeper)
    assert "paused" == (await engine.inspect(sleeper)).state
    await engine.unpause(sleeper)
    await engine.unpause(sleeper)
    await engine.kill(sleeper)
    ended = await _until(engine, sleeper, "exited")
    assert (137, False, False) == (ended.exit_code, ended.oom_killed, ended.alive)
    await engine.start(sleeper)
    again = await engine.inspect(sleeper)
    assert first.identity["container"] == again.identity["container"]
    assert first.identity != again.identity
    await engine.stop(sleeper, grace_s=0)
    assert "exited" == (await engine.inspect(sleeper)).state


async def _until(engine: Engine, container: str, state: str) -> Container:
    for _ in range(200):
        seen = await engine.inspect(container)
        if seen.state == state:
            return seen
    raise AssertionError(f"{container} is {seen.state}, not {state}")


async def test_exec_top_logs_and_list_tell_what_is_inside(engine, images, sleeper):
    """A command's words and code, the processes, and the containers of a label."""
    ran = await engine.exec(sleeper, ["sh", "-c", "echo hello; exit 3"])
    assert (3, "hello") == (ran.code, ran.output)
    top = await engine.top(sleeper)
    assert [("sleep", "600")] == [seen.argv for seen in top]
    assert [(sleeper, "running")] == [(c.id, c.state) for c in await engine.list(LABELS)]
    assert [] == list(await engine.list({"soak.run": "another"}))
    spec = ContainerSpec("soak-once", images.proxy("nginx"), ["sh", "-c", "echo out; exit 2"], LABELS)
    once = await engine.run(spec, timeout_s=10)
    assert (2, "out") == (once.code, once.output)
    assert [sleeper] == [c.id for c in await engine.list(LABELS)]


async def test_counters_grow_with_work_whoever_reads_them(engine, sleeper, monkeypatch):
    """CPU time is a counter, from the control group and from the engine alike; memory and processes are there."""
    seen = await engine.inspect(sleeper)
    before = await engine.counters(seen)
    await engine.exec(sleeper, ["sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"])
    after = await engine.counters(seen)
    assert after.cpu_s > before.cpu_s + 0.02
    assert (seen.pid,) == tuple(after.pids)
    assert 0 < after.rss_bytes < 64 << 20
    monkeypatch.setattr("soak.lab.engine.read_counters", lambda *_args: None)
    asked = await engine.counters(seen)
    assert after.cpu_s <= asked.cpu_s < after.cpu_s + 0.5
    assert asked.rss_bytes == pytest.approx(after.rss_bytes, abs=1 << 20)


async def test_limits_are_changed_and_put_back(engine, sleeper):
    """A container with a quota can be given another one while it runs, and its first one again."""
    limits = (await engine.inspect(sleeper)).limits
    assert Limits(100_000, 200_000, 256 << 20, 256 << 20) == limits
    await engine.update(sleeper, Limits(100_000, 20_000, 128 << 20, 128 << 20))
    assert Limits(100_000, 20_000, 128 << 20, 128 << 20) == (await engine.inspect(sleeper)).limits
    await engine.update(sleeper, limits)
    assert limits == (await engine.inspect(sleeper)).limits


async def test_network_gives_fixed_addresses_that_survive(engine, images):
    """An address in the subnet that the engine chose is kept over a disconnect and over a restart."""
    network = await engine.create_network("soak-engine-test", LABELS)
    spec = ContainerSpec(
        "soak-there", images.proxy("nginx"), ["sleep", "600"], LABELS, network.name, _nth(network.subnet, 9)
    )
    container = await engine.create(spec)
    try:
        await engine.start(container)
        assert {network.name: spec.address} == (await engine.inspect(container)).addresses
        await engine.leave(network.id, container)
        await engine.leave(network.id, container)
        assert {} == (await engine.inspect(container)).addresses
        await engine.join(network.id, container, str(spec.address))
        await engine.join(network.id, container, str(spec.address))
        assert {network.name: spec.address} == (await engine.inspect(container)).addresses
        with pytest.raises(EngineError, match="not as"):
            await engine.join(network.id, container, _nth(network.subnet, 10))
        await engine.stop(container, grace_s=0)
        await engine.start(container)
        assert {network.name: spec.address} == (await engine.inspect(container)).addresses
        assert [network] == list(await engine.networks(LABELS))
    finally:
        await engine.remove(container)
        await engine.remove_network(network.id)
    await engine.remove_network(network.id)
    assert [] == list(await engine.networks(LABELS))


def _nth(subnet: str, number: int) -> str:
    return subnet.rpartition(".")[0] + f".{number}"


async def test_files_and_ports_of_this_host_are_seen_inside(engine, images, tmp_path):
    """A directory is shared both ways, all output can be followed into a file, and the container runs as who was asked."""
    (tmp_path / "word").write_text("from outside")
    tmp_path.chmod(0o777)
    spec = ContainerSpec(
        "soak-shared",
        images.proxy("nginx"),
        ["sh", "-c", "cat word; echo; echo back > answer; exec sleep 600"],
        LABELS,
        binds={tmp_path: "/shared"},
        directory="/shared",
        user="65534:65534",
        open_files=512,
        environment={"A": "b"},
    )
    container = await engine.create(spec)
    try:
        await engine.start(container)
        thread = engine.follow(container, tmp_path / "output")
        for _ in range(5):  # under load an engine may lose what a command said that ended at once
            ran = await engine.exec(container, ["sh", "-c", "ulimit -n; echo $A; cat answer"])
            if ran.output:
                break
        assert "512\nb\nback" == ran.output
        assert 65534 == (tmp_path / "answer").stat().st_uid
        await engine.kill(container)
        thread.join(10)
        assert "from outside\n" == (tmp_path / "output").read_text()
        assert "from outside" == await engine.logs(container)
    finally:
        await engine.remove(container)


async def test_refusals_name_the_value_and_the_fix(engine, images, sleeper):
    """What is missing, taken or gone is its own error, and its sentence says what to do."""
    with pytest.raises(
        ImageMissingError, match=r"'nowhere/nginx:9' is not on the engine .* docker pull nowhere/nginx:9"
    ):
        await engine.require_image("nowhere/nginx:9")
    with pytest.raises(
        ImageMissingError, match=r"build it in soak's source directory: docker build -t soakd:9 \."
    ):
        await engine.require_image("soakd:9")
    with pytest.raises(ImageMissingError, match="docker pull nowhere:1"):
        await engine.create(ContainerSpec("soak-none", "nowhere:1", ["x"], LABELS))
    with pytest.raises(NameTakenError, match="docker rm -f"):
        await engine.create(ContainerSpec("soak-sleeper", images.proxy("nginx"), ["x"], LABELS))
    with pytest.raises(ContainerGoneError, match="somebody removed it"):
        await engine.kill("soak-no-such-container")
    await engine.remove("soak-no-such-container")
    assert (await engine.require_image(images.proxy("nginx"))).startswith("sha256:")
