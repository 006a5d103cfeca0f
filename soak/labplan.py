"""What a plan says of the lab: where the system under test runs, and what it is made of."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from soak.plantypes import Duration, Frozen, Size

ORIGIN_IMAGE = "soakd:latest"
"""What ``docker build -t soakd .`` makes."""
Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:%-]+$")]
"""An address or a name, without a port."""
Port = Field(ge=1, le=65_535)


class AttachedCompanionPlan(Frozen):
    """What the proxy is not whole without, such as the hitch before Varnish, and that somebody else runs, too."""

    pid_file: str | None = Field(
        None, pattern="^/", description="Of a local process; without: the container with soak.role=companion."
    )


class AttachedProxyPlan(Frozen):
    """A proxy that somebody else runs. It was started with the configuration that ``soak render`` leaves in ``directory``."""

    directory: str = Field(
        pattern="^/",
        description="Its configuration and certificate: soak renders into it and puts back what was there. "
        "In containers: a volume, mounted at this path in the proxy's and in soak's.",
    )
    host: Host = Field("127.0.0.1", description="Where clients reach it: an address or a name.")
    http_port: int = Port
    https_port: int = Port
    tcp_port: int | None = Field(
        None,
        ge=1,
        le=65_535,
        description="Its byte pipe to the backends' tls_port, for traffic through l4; without: it has none.",
    )
    listen: str = Field(
        "", description="The address that it binds; default: host. In a container mostly 0.0.0.0."
    )
    ports: dict[str, int] = Field(
        default_factory=dict, description="Its further ports by name, as 'soak render' asks for them."
    )
    pid_file: str | None = Field(
        None, pattern="^/", description="Of a local process; without: the container with soak.role=proxy."
    )
    companions: dict[str, AttachedCompanionPlan] = Field(
        default_factory=dict,
        description="What it is not whole without, by name: {hitch: {pid_file: /run/hitch.pid}}.",
    )

    @model_validator(mode="after")
    def _check(self) -> AttachedProxyPlan:
        numbers = {"http_port": self.http_port, "https_port": self.https_port, **self.ports}
        if self.tcp_port is not None:
            numbers["tcp_port"] = self.tcp_port
        taken: dict[int, str] = {}
        for name, number in numbers.items():
            if number in taken:
                raise ValueError(f"{name} and {taken[number]} are both {number}; one port serves one of them")
            taken[number] = name
        return self


class AttachedBackendPlan(Frozen):
    """One of soak's origins that somebody else runs: ``python -m soak.lab.origin --stay``."""

    host: Host = Field(
        description="Where the proxy and soak reach it; an address, since a name goes when it is down.",
    )
    port: int = Port
    tls_port: int | None = Field(
        None, ge=1, le=65_535, description="Where it speaks TLS itself: what proxy.tcp_port leads to."
    )
    pid_file: str | None = Field(
        None, pattern="^/", description="Of a local process; without: the container with soak.name=bN."
    )
    start: tuple[str, ...] = Field(
        (), description="The command that starts it again, an argument list; needed with pid_file."
    )

    @model_validator(mode="after")
    def _check(self) -> AttachedBackendPlan:
        if self.pid_file and not self.start:
            raise ValueError(
                "a backend with a pid_file needs 'start', the argument list that starts it again after backend-down"
            )
        if self.start and not self.pid_file:
            raise ValueError(
                "'start' is for a local process with a pid_file; a container is started by the engine"
            )
        return self


class AttachLabPlan(Frozen):
    """A proxy and backends that somebody else runs: soak breaks and heals them, and never creates or removes one."""

    run: str = Field("", max_length=64, description="Which containers: the value of their label soak.run.")
    proxy: AttachedProxyPlan
    backends: tuple[AttachedBackendPlan, ...] = Field(min_length=1, max_length=64, description="b1, b2, ...")
    shared: str | None = Field(
        None,
        pattern="^/",
        description="The file in which the origins count together (their --shared); without: what they counted is not judged.",
    )

    @property
    def abilities(self) -> frozenset[str]:
        """What can be done to them: more to containers than to processes."""
        found = {"backend_stop", "backend_pause"}
        if all(one.pid_file is None for one in self.backends):
            found.add("backend_partition")
        if self.proxy.pid_file is None:
            found.add("proxy_throttle")
        return frozenset(found)

    @property
    def needs_engine(self) -> bool:
        """Whether any of them is a container."""
        files = [self.proxy.pid_file, *(one.pid_file for one in self.backends)]
        files += [one.pid_file for one in self.proxy.companions.values()]
        return None in files

    @model_validator(mode="after")
    def _check(self) -> AttachLabPlan:
        if self.needs_engine and not self.run:
            raise ValueError(
                "'run' is missing: what has no pid_file is a container, found by its label soak.run and this value"
            )
        if self.run and not self.needs_engine:
            raise ValueError(
                f"run is {self.run!r}, the label of containers, and the proxy and every backend has a pid_file; leave run out"
            )
        for number, one in enumerate(self.backends, start=1):
            if one.tls_port is None and self.proxy.tcp_port is not None:
                raise ValueError(
                    f"proxy.tcp_port {self.proxy.tcp_port} leads to the TLS of every backend, and b{number} has no tls_port; "
                    "give it one, or leave tcp_port out"
                )
            if one.tls_port is not None and self.proxy.tcp_port is None:
                raise ValueError(
                    f"tls_port {one.tls_port} of b{number} is where proxy.tcp_port leads to, which is not set; "
                    "set it, or leave tls_port out"
                )
        return self


class DockerLabPlan(Frozen):
    """Containers that soak makes and removes: one proxy, and origins of soak's own image."""

    host: str | None = Field(
        None,
        min_length=1,
        description="The engine: a URL or the path of its socket; default: DOCKER_HOST, else /var/run/docker.sock. "
        "It must be on this host.",
    )
    proxy_image: str | None = Field(
        default_factory=lambda: os.environ.get("SOAK_PROXY_IMAGE") or None,
        min_length=1,
        description="Image of the proxy; default: SOAK_PROXY_IMAGE, else the official one, pinned.",
    )
    companion_images: dict[str, Annotated[str, Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Images of what the proxy is not whole without, by name (hitch: mine/hitch:2); default: the official ones, pinned.",
    )
    origin_image: str = Field(
        default_factory=lambda: os.environ.get("SOAK_ORIGIN_IMAGE") or ORIGIN_IMAGE,
        min_length=1,
        description="Image with soak and its Python; default: SOAK_ORIGIN_IMAGE, else the one that 'docker build' makes.",
    )
    cpus: float = Field(2.0, ge=0, le=1024, description="CPUs that the proxy may use; 0: all.")
    memory: Size = Field(1024**3, description="Memory that the proxy may use; 0: all.")
    publish: str = Field(
        "127.0.0.1", min_length=1, description="Address of this host that leads to the proxy."
    )
    reach: Literal["address", "published"] = Field(
        "address",
        description="How the load reaches the proxy: at its own address in the network, or through the published port, "
        "behind which the engine has a relay of its own on loopback.",
    )


class LabPlan(Frozen):
    """Where the system under test runs."""

    kind: Literal["local", "docker", "attach"] = "local"
    backends: int = Field(3, ge=1, le=64, description="How many origins stand behind the proxy: b1, b2, ...")
    start_timeout: Duration = Field(15.0, gt=0, description="How long the lab may take to come up.")
    docker: DockerLabPlan | None = Field(
        None, description="For kind docker: images and limits, where they are not the usual ones."
    )
    attach: AttachLabPlan | None = Field(
        None, description="For kind attach: the proxy and the backends that somebody else runs."
    )

    @model_validator(mode="before")
    @classmethod
    def _count_attached(cls, value: Any) -> Any:
        """Take the number of backends from the list of them."""
        if isinstance(value, dict) and "backends" not in value and isinstance(value.get("attach"), dict):
            listed = value["attach"].get("backends")
            if isinstance(listed, list | tuple) and listed:
                return {**value, "backends": len(listed)}
        return value

    @model_validator(mode="before")
    @classmethod
    def _say_images(cls, value: Any) -> Any:
        """Spell out what kind docker takes from its defaults and the environment, so that a saved plan says it."""
        if isinstance(value, dict) and value.get("kind") == "docker" and value.get("docker") is None:
            return {**value, "docker": {}}
        return value

    @model_validator(mode="after")
    def _check(self) -> LabPlan:
        if self.docker is not None and self.kind != "docker":
            raise ValueError(f"the section 'docker' is for kind docker, not for kind {self.kind}")
        if self.kind == "attach" and self.attach is None:
            raise ValueError(
                "kind attach needs the section 'attach': the proxy and the backends that somebody else runs; "
                "'soak render --help' says how"
            )
        if self.attach is not None and self.kind != "attach":
            raise ValueError(f"the section 'attach' is for kind attach, not for kind {self.kind}")
        if self.attach is not None and len(self.attach.backends) != self.backends:
            raise ValueError(
                f"backends is {self.backends} and attach.backends lists {len(self.attach.backends)}; leave backends out"
            )
        return self
