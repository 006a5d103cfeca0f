"""The plan: the validated, frozen description of a run. What ``soak.yaml`` may say, and nothing else.

Owns the field names, types, defaults and cross-field rules. Reading files, merging flags and wording the errors is
``soak.planfile``; presets are YAML files under ``soak/presets``.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from soak.errors import nearest
from soak.labplan import LabPlan
from soak.plantypes import Duration, Frozen, Share, format_duration, parse_duration
from soak.proxyplan import ProxyPlan
from soak.shapes import SHAPES

__all__ = [
    "ChaosPlan",
    "ClassObjectivesPlan",
    "Duration",
    "FaultSeriesPlan",
    "LabPlan",
    "ObjectivesPlan",
    "Plan",
    "ProxyPlan",
    "SelfPlan",
    "TrafficClassPlan",
    "TrafficPlan",
    "default_classes",
    "format_duration",
    "parse_duration",
]


class ClassObjectivesPlan(Frozen):
    """Limits of one traffic class alone. What is not given is judged with all other classes, by the plan's objectives."""

    success: float | None = Field(
        None, ge=0, le=1, description="Least share of requests that end as promised."
    )
    p99: Duration | None = Field(None, gt=0, description="Largest p99 of latency, over the whole run.")
    steady_failures: int | None = Field(
        None, ge=0, description="Most failures in phase steady; the class then counts no more for the plan's."
    )
    transition_failures: int | None = Field(
        None,
        ge=0,
        description="Most losses to reloads and rotations; the class then counts no more for the plan's.",
    )


class TrafficClassPlan(Frozen):
    """One shape of requests with its share of the rate."""

    shape: str | None = Field(
        None, description="A named shape whose fields are the defaults of this class; see 'soak load --help'."
    )
    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,31}$", description="Default: the shape's name.")
    share: Share = Field(description="Share of the plan's rate; the shares of all classes add up to 1.")
    through: Literal["http", "l4"] = Field(
        "http",
        description="What the proxy does with it: answers for the origins (http), or passes bytes on unread (l4).",
    )
    tls: bool = True
    protocol: Literal["http1", "h2", "websocket"] = "http1"
    connection: Literal["reuse", "new", "resume"] = Field(
        "reuse",
        description="Keep connections, open one for each request, or open one for each and resume its TLS session.",
    )
    connections: int = Field(16, ge=1, le=10_000, description="h2: connections at most; websocket: sockets.")
    streams: int = Field(16, ge=1, le=128, description="h2: streams on a connection at most.")
    hosts: int = Field(0, ge=0, le=10_000, description="Requests go round the names r1 ... rN of the site.")
    cache_keys: int = Field(
        0, ge=0, le=1_000_000, description="Requests draw from so many cacheable objects."
    )
    spread_sources: bool = Field(False, description="Connect from many loopback addresses, for free ports.")
    streaming: bool = Field(
        False,
        description="A long answer by design: latency ends with its first byte, a cut is told with its age.",
    )
    method: Literal["GET", "POST", "PUT"] = "GET"
    path: str = Field(
        "/bytes/1024", pattern=r"^/[!-~]*$", description="The origin answers /bytes/N with N known bytes."
    )
    request_bytes: int = Field(0, ge=0, le=16 * 1024 * 1024, description="Length of the request body.")
    response_bytes: int | None = Field(
        1024,
        ge=0,
        description="Promised length of the answer's body; its content is checked by checksum. None: unchecked.",
    )
    status: int = Field(200, ge=100, le=599, description="The status that counts as expected.")
    objectives: ClassObjectivesPlan = Field(default_factory=ClassObjectivesPlan)

    @model_validator(mode="before")
    @classmethod
    def _fill_shape(cls, value: Any) -> Any:
        """Put the fields of a named shape under those that were given."""
        if not isinstance(value, dict) or (shape := value.get("shape")) is None:
            return value
        if not isinstance(shape, str) or shape not in SHAPES:
            raise ValueError(f"there is no traffic shape {shape!r}{nearest(str(shape), SHAPES)}")
        return {"name": shape, **SHAPES[shape], **value}

    @model_validator(mode="after")
    def _check(self) -> TrafficClassPlan:
        if self.connection == "resume" and not self.tls:
            raise ValueError(f"{self.name}: connection 'resume' resumes a TLS session; it needs tls: true")
        if self.through == "l4":
            self._check_l4()
        if self.protocol == "h2" and not self.tls:
            raise ValueError(f"{self.name}: h2 is agreed on in the TLS handshake (ALPN); it needs tls: true")
        if self.protocol != "http1" and self.connection != "reuse":
            raise ValueError(
                f"{self.name}: {self.protocol} keeps its connections by design; connection {self.connection!r} is for http1"
            )
        if self.hosts and self.cache_keys:
            raise ValueError(f"{self.name}: hosts and cache_keys exclude each other; use two classes")
        if (self.hosts or self.cache_keys) and self.protocol != "http1":
            raise ValueError(f"{self.name}: hosts and cache_keys go over http1, not over {self.protocol}")
        if self.cache_keys and (self.method != "GET" or not self.response_bytes or self.status != 200):
            raise ValueError(
                f"{self.name}: cache_keys needs method GET, status 200, and the length of an object in response_bytes"
            )
        return self

    def _check_l4(self) -> None:
        if not self.tls:
            raise ValueError(
                f"{self.name}: l4 is a pipe to the TLS of the origins themselves; it needs tls: true"
            )
        if self.protocol != "http1" or self.hosts or self.cache_keys:
            raise ValueError(
                f"{self.name}: at the end of the pipe are origins, which speak http1 and know no routes and no cache; "
                "leave protocol, hosts and cache_keys out with l4"
            )
        if self.connection == "resume":
            raise ValueError(
                f"{self.name}: a TLS session belongs to one origin and the pipe leads to any; connection 'resume' is not for l4"
            )

    @property
    def idempotent(self) -> bool:
        """Whether a client may repeat the request blindly (RFC 9110 section 9.2.2)."""
        return self.method in ("GET", "PUT") and self.protocol != "websocket"


def default_classes() -> tuple[TrafficClassPlan, ...]:
    """Return the default mix: TLS on kept connections (most), TLS with a full handshake each, and 4 KiB POSTs."""
    return (
        TrafficClassPlan(name="tls-reused", share=0.85),
        TrafficClassPlan(name="tls-new", share=0.05, connection="new"),
        TrafficClassPlan(
            name="post", share=0.10, method="POST", path="/echo", request_bytes=4096, response_bytes=4096
        ),
    )


class TrafficPlan(Frozen):
    """How requests are sent."""

    classes: tuple[TrafficClassPlan, ...] = Field(
        default_factory=default_classes, min_length=1, max_length=32
    )
    arrivals: Literal["uniform", "poisson"] = "uniform"
    connect_timeout: Duration = Field(5.0, gt=0, le=120)
    tls_timeout: Duration = Field(5.0, gt=0, le=120)
    response_timeout: Duration = Field(
        10.0, gt=0, le=120, description="From send to the first byte of the answer."
    )
    body_timeout: Duration = Field(
        30.0, gt=0, le=600, description="From the first to the last byte of the answer."
    )
    max_in_flight: int | None = Field(
        None, ge=1, description="Default: rate x response_timeout, bounded by open files."
    )
    max_lag: Duration = Field(
        0.010, gt=0, le=10, description="Slots later than this by our own fault are missed, not sent."
    )
    coalesce: Duration | None = Field(
        None,
        le=0.005,
        description="A due slot waits so long for those behind it: less CPU, that much lag. Default: none below 10,000 "
        "slots a second and worker, above as long as ten take to come (1 ms at 10,000).",
    )
    max_age: Duration = Field(
        60.0, gt=0, description="A kept connection is retired after about this time (jittered by 20 %)."
    )
    idle_timeout: Duration = Field(20.0, gt=0, description="An idle connection is closed after this time.")

    @model_validator(mode="after")
    def _check(self) -> TrafficPlan:
        if self.coalesce is not None and self.coalesce >= self.max_lag:
            raise ValueError(
                f"coalesce is {format_duration(self.coalesce)} and max_lag {format_duration(self.max_lag)}: every slot would be "
                "missed; coalesce must be shorter"
            )
        total = sum(c.share for c in self.classes)
        if abs(total - 1.0) > 1e-6:
            raise ValueError(f"the shares of the traffic classes add up to {total:g}; they must add up to 1")
        names = [c.name for c in self.classes]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the traffic class name {name!r} is used twice; names must differ")
        return self


class FaultSeriesPlan(Frozen):
    """One fault on a period."""

    fault: str = Field(description="Fault name; see 'soak faults'.")
    every: Duration = Field(gt=0)
    hold: Duration = Field(
        0.0, description="How long the fault stays active; must be shorter than 'every'. 0 for transitions."
    )
    targets: tuple[str, ...] = Field(
        (), description="Targets in turn (b1, b2, ...); default: all eligible in turn."
    )
    first: Duration | None = Field(
        None, description="When the first one is due; default: one period after the start."
    )
    jitter: Duration = Field(0.0, description="Each instant is moved by up to this much either way, seeded.")
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> FaultSeriesPlan:
        if self.hold >= self.every:
            raise ValueError(
                f"{self.fault}: hold {format_duration(self.hold)} is not shorter than every {format_duration(self.every)}; "
                "a fault must end before the next one of its kind begins"
            )
        return self


class ChaosPlan(Frozen):
    """What is broken, and when."""

    series: tuple[FaultSeriesPlan, ...] = ()
    gap: Duration = Field(
        4.0, description="Least time between the end of one fault and the start of the next."
    )
    max_defer: Duration = Field(
        60.0, description="A fault that cannot start in time waits at most this long, then is skipped."
    )
    recovery_timeout: Duration = Field(
        30.0, gt=0, description="How long traffic may take to recover before it is given up."
    )
    abort_failure_ratio: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of failures outside every fault, 10 s running, at which chaos is stopped.",
    )


class ObjectivesPlan(Frozen):
    """The limits that make a verdict. ``soak report --objectives`` judges a finished run by others."""

    rate_held: float = Field(
        0.999, ge=0, le=1, description="Least share of scheduled slots that must be sent."
    )
    success: float = Field(
        0.999, ge=0, le=1, description="Least share of sent requests that end as promised."
    )
    steady_failures: int = Field(
        0, ge=0, description="Most failures in phase steady (stale_reuse and tls_not_resumed apart)."
    )
    transition_failures: int = Field(
        0,
        ge=0,
        description="Most requests that reloads and rotations may lose (stale_reuse and tls_not_resumed apart).",
    )
    steady_p99: Duration = Field(
        1.0,
        gt=0,
        description="Largest p99 of latency in any one second of phase steady; at least three times the usual one.",
    )
    stale_reuse: float = Field(
        0.0005, ge=0, le=1, description="Most stale_reuse, as a share of all requests."
    )
    tls_not_resumed: float = Field(
        0.01, ge=0, le=1, description="Most tls_not_resumed, as a share of the attempts to resume a session."
    )
    effect_within: Duration = Field(
        10.0, gt=0, description="A new configuration or certificate is in effect within this time."
    )
    drain_within: Duration = Field(
        30.0, gt=0, description="The old configuration or certificate is gone within this time."
    )
    recovery_within: Duration = Field(
        10.0, gt=0, description="Traffic recovers from a backend loss within this time."
    )
    connections_kept: float = Field(
        0.9,
        ge=0,
        le=1,
        description="Least share of requests on kept connections, of classes that keep theirs; 0 for a proxy that keeps none.",
    )
    recovered_failures_per_min: float = Field(
        6.0,
        ge=0,
        description="Most failures a minute after traffic had recovered from a fault and before the fault is over.",
    )
    mismatches: int = Field(0, ge=0, description="Most identity or body mismatches, ever.")
    duplicates: int = Field(
        0, ge=0, description="Most requests that are not idempotent and that the backends get more than once."
    )
    backend_share: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Least part of its fair share of answers that each backend gives; 0 for backends that need not be used.",
    )
    workers_kept: int = Field(
        0,
        ge=0,
        description="Most workers of the proxy that may end although nothing asked for it, whether they are replaced or not.",
    )
    p99_drift: float = Field(
        1.20, gt=0, description="p99 of the last quarter / first quarter. Judged from drift_after on."
    )
    cpu_drift: float = Field(
        1.5,
        gt=0,
        description="Processor time of the proxy in the last quarter / first quarter, at the same rate of requests.",
    )
    rss_growth_per_h: float = Field(
        0.02, ge=0, description="Most significant RSS growth of the proxy per hour, as a share."
    )
    fds_growth_per_h: float = Field(
        20.0, ge=0, description="Most significant growth of open files of the proxy per hour."
    )
    fds_growth_per_reload: float = Field(
        0.5, ge=0, description="Most significant growth of open files of the proxy per reload or rotation."
    )
    processes_growth_per_h: float = Field(
        0.5, ge=0, description="Most significant growth of processes of the proxy per hour."
    )
    drift_after: Duration = Field(
        7200.0, description="Slopes and drift are judged for runs at least this long."
    )


class SelfPlan(Frozen):
    """When soak itself counts as unwell."""

    max_lag_p99: Duration = Field(
        0.050, gt=0, description="A second whose send lag p99 is above this is set apart."
    )
    max_loop_gap: Duration = Field(
        0.250, gt=0, description="A second in which the event loop stood still for longer is set apart."
    )
    max_others: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Largest share of this host's processors that other programs may take while none is idle; what fails then is "
        "set apart.",
    )
    realtime: bool = Field(
        True, description="Run the load workers before ordinary programs, where the kernel allows it."
    )
    max_unwell: float = Field(
        0.01, ge=0, le=1, description="Largest share of unwell seconds before the run is invalid."
    )


class Plan(Frozen):
    """A run, whole."""

    name: str = Field("", max_length=64, pattern=r"^[A-Za-z0-9._-]*$")
    length: Duration = Field(86_400.0, gt=0, le=31 * 86_400)
    rate: float = Field(1000.0, gt=0, le=200_000, description="Requests per second, all classes together.")
    seed: int = Field(1, ge=0, lt=2**63)
    proxy: ProxyPlan = Field(default_factory=ProxyPlan)
    lab: LabPlan = Field(default_factory=LabPlan)
    traffic: TrafficPlan = Field(default_factory=TrafficPlan)
    chaos: ChaosPlan = Field(default_factory=ChaosPlan)
    objectives: ObjectivesPlan = Field(default_factory=ObjectivesPlan)
    self_limits: SelfPlan = Field(default_factory=SelfPlan, alias="self")
    left_out: tuple[str, ...] = Field(
        (), description="What a preset had for which this proxy or lab is not able, and why; for people."
    )
    workers: int = Field(1, ge=1, le=16, description="Load worker processes.")
    http_port: int = Field(
        0, ge=0, le=65535, description="Port of the read-only pages on 127.0.0.1; 0: any free one."
    )
    http_host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address that the pages listen on. They are read-only, but whoever reaches another one may read them.",
    )
    http_names: tuple[str, ...] = Field(
        (), description="Further names that a request for the pages may ask for in its Host header."
    )

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)
