"""What there is to call at a container engine: images, containers, networks; not what they are to a run, labs know that.

How a call is made is ``soak.lab.enginecalls``; beside it, no other module imports the docker SDK.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException

from soak.lab.cgroup import Counters, read_counters
from soak.lab.containers import (
    CPU_PERIOD_US,
    Container,
    ContainerSpec,
    Limits,
    Network,
    Ran,
    inspected,
    network_of,
)
from soak.lab.enginecalls import TIMEOUT_S, EngineCalls, sdk
from soak.lab.enginewords import (
    ContainerGoneError,
    EngineError,
    ImageMissingError,
    image_missing,
)
from soak.proxies.base import SeenProcess

_LOG_BYTES = 256 * 1024
_ALL_LINES = 10_000


class Engine(EngineCalls):
    """One container engine. ``connect``, use, ``close``."""

    # images

    async def require_image(self, image: str) -> str:
        """Return the id of an image. Raises ``ImageMissingError`` with the command that gets or builds it."""
        try:
            found = await self._call(f"inspect image {image}", lambda: self._client.inspect_image(image))
        except ImageMissingError as error:
            raise image_missing(image, self.host) from error  # the engine's own words drop or add a tag
        return str(found["Id"])

    # containers

    async def create(self, spec: ContainerSpec) -> str:
        """Make a container and return its id; it does not run yet. Raises ``ImageMissingError``, ``NameTakenError``, ``EngineError``."""
        return await self._call(f"create {spec.name}", lambda: _create(self._client, spec))

    async def start(self, container: str) -> None:
        """Start it; one that runs is success."""
        await self._call(f"start {_short(container)}", lambda: self._client.start(container))

    async def stop(self, container: str, *, grace_s: int = 5) -> None:
        """Ask it to end (its stop signal), and kill it after ``grace_s``; one that has ended is success."""
        await self._call(
            f"stop {_short(container)}",
            lambda: self._client.stop(container, timeout=grace_s),
            self._timeout_s + grace_s,
        )

    async def kill(self, container: str, signal: str = "SIGKILL") -> None:
        """Send a signal to its main process."""
        await self._call(
            f"kill -s {signal} {_short(container)}", lambda: self._client.kill(container, signal)
        )

    async def pause(self, container: str) -> None:
        """Suspend all its processes; one that is suspended is success."""
        await self._unless(container, "paused", "pause", lambda: self._client.pause(container))

    async def unpause(self, container: str) -> None:
        """Let it go on; one that runs is success."""
        await self._unless(container, "running", "unpause", lambda: self._client.unpause(container))

    async def remove(self, container: str) -> None:
        """End and remove it with its anonymous volumes; one that is gone is success."""
        with suppress(ContainerGoneError):
            await self._call(
                f"remove {_short(container)}",
                lambda: self._client.remove_container(container, v=True, force=True),
            )

    async def inspect(self, container: str) -> Container:
        """Look at it. Raises ``ContainerGoneError``."""
        found = await self._call(
            f"inspect {_short(container)}", lambda: self._client.inspect_container(container)
        )
        return inspected(found)

    async def list(self, labels: Mapping[str, str]) -> Sequence[Container]:
        """Return all containers that carry these labels, whatever their state, without what only ``inspect`` knows."""
        wanted = {"label": _label_filter(labels)}
        found = await self._call("list containers", lambda: self._client.containers(all=True, filters=wanted))
        return tuple(
            Container(row["Id"], row["Names"][0].lstrip("/"), row["Image"], row["State"], row["Labels"] or {})
            for row in found
        )

    async def exec(self, container: str, argv: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> Ran:
        """Run a command inside and return how it ended and what it said. Raises ``EngineAwayError`` when it takes too long."""

        def run() -> Ran:
            made = self._client.exec_create(container, list(argv))["Id"]
            said = self._client.exec_start(made)
            code = self._client.exec_inspect(made)["ExitCode"]
            return Ran(-1 if code is None else int(code), _text(said))

        return await self._call(f"exec {' '.join(argv)} in {_short(container)}", run, timeout_s)

    async def run(self, spec: ContainerSpec, *, timeout_s: float) -> Ran:
        """Run a container of its own to its end, and remove it: also when it takes too long."""
        container = await self.create(spec)
        try:
            await self.start(container)
            ended = await self._call(
                f"run {' '.join(spec.argv)}",
                lambda: self._client.wait(container, timeout=timeout_s),
                timeout_s,
            )
            return Ran(int(ended["StatusCode"]), await self.logs(container, tail=_ALL_LINES))
        finally:
            await asyncio.shield(self.remove(container))

    async def top(self, container: str) -> Sequence[SeenProcess]:
        """Return its processes as the engine's host numbers them."""
        found = await self._call(
            f"top {_short(container)}", lambda: self._client.top(container, ps_args="-eo pid,ppid,args")
        )
        rows = found["Processes"] or []
        return tuple(SeenProcess(int(row[0]), int(row[1]), tuple(" ".join(row[2:]).split())) for row in rows)

    async def counters(self, container: Container) -> Counters:
        """Read what the kernel counts for it: from its control group, or by the engine where that is out of sight."""
        read = await asyncio.to_thread(read_counters, container.pid, container.id)
        if read is not None:
            return read
        what = f"read counters of {container.name}"
        return await self._call(what, lambda: _counted(self._client, container.id))

    async def update(self, container: str, limits: Limits) -> None:
        """Change what it may use, at once. The engine cannot lift a limit of memory again, so none is left alone."""
        wish: dict[str, int] = {"NanoCpus": limits.nano_cpus}
        if not limits.nano_cpus:
            wish = {"CpuPeriod": limits.cpu_period or CPU_PERIOD_US, "CpuQuota": limits.cpu_quota or -1}
        if limits.memory:
            wish |= {"Memory": limits.memory, "MemorySwap": limits.memory_swap or -1}
        # Not the SDK's update_container: it knows no NanoCpus.
        await self._call(f"update {_short(container)}", lambda: _update(self._client, container, wish))

    async def logs(self, container: str, *, tail: int = 50) -> str:
        """Return the end of what it said. Raises ``ContainerGoneError``."""
        said = await self._call(f"logs {_short(container)}", lambda: self._client.logs(container, tail=tail))
        return _text(said)[-_LOG_BYTES:]

    def follow(self, container: str, path: Path) -> threading.Thread:
        """Append all that it says to a file, from its beginning until it ends; in a thread that a dying process does not wait for."""

        def copy() -> None:
            # A client of its own: this connection stays open. When the engine goes, the file ends here.
            with suppress(DockerException, OSError), path.open("ab", buffering=0) as file:
                client = sdk(self.host, self._api, None)
                with suppress(DockerException, OSError):
                    for piece in client.logs(container, stream=True, follow=True):
                        file.write(piece)
                client.close()

        thread = threading.Thread(target=copy, name=f"follow-{_short(container)}", daemon=True)
        thread.start()
        return thread

    # networks

    async def create_network(self, name: str, labels: Mapping[str, str]) -> Network:
        """Make a bridge with a subnet that the engine finds free and that containers may have fixed addresses in.

        An engine allows fixed addresses only where the subnet was asked for, so it is asked twice: for any, then for that one.
        """

        def create() -> dict[str, Any]:
            options = {"check_duplicate": True, "labels": dict(labels), "driver": "bridge"}
            drawn = self._client.create_network(name, **options)["Id"]
            try:
                subnet = self._client.inspect_network(drawn)["IPAM"]["Config"][0]["Subnet"]
            finally:
                self._client.remove_network(drawn)
            pool = docker.types.IPAMConfig(pool_configs=[docker.types.IPAMPool(subnet=subnet)])
            made = self._client.create_network(name, ipam=pool, **options)["Id"]
            return dict(self._client.inspect_network(made))

        return network_of(await self._call(f"create network {name}", create, 2 * self._timeout_s))

    async def join(self, network: str, container: str, address: str, aliases: Sequence[str] = ()) -> None:
        """Connect a container to a network at this address; one that is connected there is success."""
        for name, end in (await self.inspect(container)).ends.items():
            if network in (name, end.network):
                if end.address == address:
                    return
                raise EngineError(
                    f"{_short(container)} is in the network {name} as {end.address}, not as {address}"
                )
        await self._call(
            f"connect {_short(container)} to {_short(network)}",
            lambda: self._client.connect_container_to_network(
                container, network, ipv4_address=address, aliases=list(aliases) or None
            ),
        )

    async def leave(self, network: str, container: str) -> None:
        """Take a container off a network; one that is not on it is success."""

        def disconnect() -> None:
            try:
                self._client.disconnect_container_from_network(container, network, force=True)
            except APIError as error:
                if "is not connected" not in str(error.explanation):
                    raise

        await self._call(f"disconnect {_short(container)} from {_short(network)}", disconnect)

    async def networks(self, labels: Mapping[str, str]) -> Sequence[Network]:
        """Return the networks that carry these labels."""
        wanted = {"label": _label_filter(labels)}
        found = await self._call("list networks", lambda: self._client.networks(filters=wanted))
        return tuple(network_of(row) for row in found)

    async def remove_network(self, network: str) -> None:
        """Remove it; one that is gone is success. Raises ``EngineError`` while containers are connected."""

        def remove() -> None:
            try:
                self._client.remove_network(network)
            except APIError as error:
                if error.status_code != 404:
                    raise

        await self._call(f"remove network {_short(network)}", remove)

    # inside

    async def _unless(self, container: str, state: str, verb: str, act: Callable[[], object]) -> None:
        try:
            await self._call(f"{verb} {_short(container)}", act)
        except EngineError:
            if (await self.inspect(container)).state != state:
                raise


def _create(client: Any, spec: ContainerSpec) -> str:
    """Make a container by the SDK's low-level call: period and quota, for what was made with ``nano_cpus`` refuses an update (409)."""
    limits: dict[str, Any] = {}
    if spec.cpus:
        limits |= {"cpu_period": CPU_PERIOD_US, "cpu_quota": int(spec.cpus * CPU_PERIOD_US)}
    if spec.memory_bytes:
        limits |= {"mem_limit": spec.memory_bytes, "memswap_limit": spec.memory_bytes}
    if spec.open_files:
        files = docker.types.Ulimit(name="nofile", soft=spec.open_files, hard=spec.open_files)
        limits["ulimits"] = [files]
    host = client.create_host_config(
        binds=[
            *(f"{here}:{there}:rw" for here, there in spec.binds.items()),
            *(f"{path}:{path}:ro" for path in spec.reads),
        ],
        port_bindings={f"{inside}/tcp": (spec.publish, here) for here, inside in spec.ports.items()},
        log_config=docker.types.LogConfig(type="json-file", config={"max-size": "8m", "max-file": "2"}),
        network_mode=f"container:{spec.joins}" if spec.joins else spec.network or "none",
        security_opt=["no-new-privileges"],
        **limits,
    )
    ends = None
    if spec.network is not None:
        end = client.create_endpoint_config(ipv4_address=spec.address)
        ends = client.create_networking_config({spec.network: end})
    made = client.create_container(
        spec.image,
        entrypoint=list(spec.argv[:1]),
        command=list(spec.argv[1:]),
        name=spec.name,
        labels=dict(spec.labels),
        environment=dict(spec.environment),
        user=spec.user,
        working_dir=spec.directory,
        ports=[(port, "tcp") for port in spec.ports.values()],
        host_config=host,
        networking_config=ends,
        use_config_proxy=False,
    )
    return str(made["Id"])


def _update(client: Any, container: str, wish: Mapping[str, int]) -> None:
    url = client._url("/containers/{0}/update", container)  # noqa: SLF001 - the SDK has no other door for NanoCpus
    answer = client.post(url, json=dict(wish), timeout=client.timeout)
    client._raise_for_status(answer)  # noqa: SLF001 - same


def _counted(client: Any, container: str) -> Counters:
    """Let the engine read the counters once (``one_shot``): without the second sample that it waits seconds for."""
    seen = client.stats(container, stream=False, one_shot=True)
    cpu = (seen.get("cpu_stats") or {}).get("cpu_usage") or {}
    memory = (seen.get("memory_stats") or {}).get("stats") or {}
    rss = memory.get("total_rss", memory.get("anon", 0))
    held = (seen.get("cpu_stats") or {}).get("throttling_data") or {}
    return Counters(cpu.get("total_usage", 0) / 1e9, int(rss), 0, held.get("throttled_time", 0) / 1e9)


def _short(name: str) -> str:
    """Shorten an id as people know it from ``docker ps``; a name stays whole."""
    return name[:12] if len(name) == 64 else name


def _text(said: Any) -> str:
    return bytes(said or b"").decode(errors="replace").strip()


def _label_filter(labels: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" if value else name for name, value in labels.items()]
