"""Every metric that soak exports: name, type, labels and meaning, in one table. ``docs/METRICS.md`` is checked against it.

Also the histogram boundaries. Values come from ``soak.metrics``; nothing here computes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric family. ``name`` is as exposed and queried: a counter ends in ``_total``."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


def _c(name: str, labels: str, text: str) -> MetricSpec:
    return MetricSpec(f"soak_{name}_total", "counter", tuple(labels.split()), text)


def _g(name: str, labels: str, text: str) -> MetricSpec:
    return MetricSpec(f"soak_{name}", "gauge", tuple(labels.split()), text)


def _h(name: str, labels: str, text: str) -> MetricSpec:
    return MetricSpec(f"soak_{name}", "histogram", tuple(labels.split()), text)


CATALOG: tuple[MetricSpec, ...] = (
    # the run
    _g("run_info", "run_id proxy proxy_version lab", "Always 1; who is under test, and the id of the run."),
    _g("run_length_seconds", "", "Planned length of the run."),
    _g("run_elapsed_seconds", "", "Time since the start of the run."),
    _g("run_start_timestamp_seconds", "", "Wall-clock time of the start of the run."),
    _g("run_state", "state", "1 for the state the run is in: starting, running, stopping or finished."),
    _g("run_dirty", "", "1 when a revert failed: a target is not as it was, no more faults are injected."),
    _g("run_guarded", "", "1 when the abort guard stopped further faults."),
    _g("phase", "phase", "1 for the present phase: steady, fault or recovery."),
    _g("target_requests_per_second", "", "Rate that the plan asks for, all classes together."),
    _g("objective_success_ratio", "", "Objective: least share of sent requests that end as promised."),
    _g(
        "failure_budget_requests", "", "Failed requests that the success objective allows over the whole run."
    ),
    # traffic
    _c("slots_scheduled", "class", "Slots of the open model that were due."),
    _c("slots_dropped", "class", "Slots not sent because too many requests were in flight."),
    _c("slots_missed", "class", "Slots not sent because soak itself was late."),
    _c("requests_sent", "class", "Requests sent. Equals finished requests plus those in flight."),
    _c(
        "requests",
        "class outcome phase",
        "Requests finished, by outcome and by the phase in which they were sent.",
    ),
    _c("requests_carried", "", "Failures of requests that were already in flight when a fault struck."),
    _c(
        "stale_reuse_non_idempotent",
        "",
        "Requests with outcome stale_reuse that a client may not repeat blindly.",
    ),
    _c(
        "evidence_dropped",
        "",
        "Failed requests of which no evidence row was kept, beyond the cap for a second.",
    ),
    _g("requests_in_flight", "class", "Requests sent and not finished."),
    _h("request_latency_seconds", "class", "Time from the slot's due instant to the end of the answer."),
    _h(
        "request_latency_by_phase_seconds",
        "phase",
        "Latency from due, by the phase in which a request was sent.",
    ),
    _h(
        "handshake_seconds",
        "class",
        "Time from the start of a connect until the connection was usable, TLS included.",
    ),
    _h("send_lag_seconds", "", "Time from the slot's due instant to the send: soak's own lateness."),
    _c("received_bytes", "", "Bytes of answers received."),
    # connections of the load engine
    _c("connections_opened", "", "Connections opened to the proxy."),
    _c("connections_closed", "by", "Connections closed, by the peer or by us."),
    _c("connections_reused", "", "Requests that went out on a connection that had already carried one."),
    _c("tls_handshakes", "kind", "TLS handshakes, full or resumed."),
    _g("connections_open", "", "Connections open."),
    _g("connections_idle", "", "Connections open and idle."),
    # faults
    _g(
        "fault_active",
        "fault target",
        "1 from injection to revert; of a transition, until its effect is seen.",
    ),
    _c("fault_injections", "fault target", "Faults injected."),
    _g(
        "fault_last_start_timestamp_seconds",
        "fault target",
        "Wall-clock time of the last injection; 0 before the first.",
    ),
    _c("fault_outcomes", "fault outcome", "Finished fault instances, by how they ended."),
    _h("fault_recovery_seconds", "fault", "Time traffic took to recover after the worst edge of a fault."),
    _g(
        "fault_last_recovery_seconds",
        "fault",
        "Recovery time of the last fault that recovered; 0 before the first.",
    ),
    # configuration and certificates
    _g("config_generation", "", "Config generation that the proxy was last told to serve."),
    _g("config_generation_seen", "", "Newest config generation that an answer carried."),
    _c("certificates_installed", "", "Certificates installed, the first one included."),
    _g(
        "certificate_installed_timestamp_seconds",
        "",
        "Wall-clock time at which the present certificate was installed.",
    ),
    _g(
        "certificate_first_seen_timestamp_seconds",
        "",
        "Wall-clock time of the first fresh handshake that showed the present certificate; 0 until then.",
    ),
    _g("certificate_not_after_timestamp_seconds", "", "End of the present certificate's validity."),
    # the system under test
    _g("proxy_resident_memory_bytes", "", "Resident memory of all processes of the proxy."),
    _c("proxy_cpu_seconds", "", "CPU time used by the processes of the proxy."),
    _g("proxy_open_fds", "", "Open files of all processes of the proxy."),
    _g("proxy_processes", "", "Processes of the proxy."),
    _g("proxy_old_processes", "", "Workers of an earlier generation that still live."),
    _g("backend_resident_memory_bytes", "target", "Resident memory of a backend; 0 while it is down."),
    _g("backend_processes", "target", "Processes of a backend; 0 while it is down."),
    _c("origin_requests", "target", "Requests that a backend counted itself, health checks included."),
    _c(
        "origin_duplicates",
        "target",
        "Requests that are not idempotent and that a backend got although one of them had got them before.",
    ),
    _c(
        "origin_cacheable_answers",
        "target",
        "Answers of a backend, 304s included, that a cache in the proxy did not give.",
    ),
    # soak itself
    _g(
        "self_resident_memory_bytes",
        "process",
        "Resident memory of soak's own daemon and of its load workers.",
    ),
    _c("self_cpu_seconds", "process", "CPU time used by soak's own daemon and by its load workers."),
    _g("self_open_fds", "process", "Open files of soak's own daemon and of its load workers."),
    _g(
        "self_loop_gap_seconds",
        "",
        "Longest time by which a load worker's timer came late in its last second.",
    ),
    _g("self_lag_p99_seconds", "", "Send lag p99 of the worst load worker in its last second."),
    _c("self_unwell_seconds", "", "Seconds set apart because soak itself was unwell in them."),
    _c("clock_steps", "", "Steps of the wall clock that were noticed."),
    _c(
        "schedule_misfires", "", "Planned faults that came due while the daemon could not begin them in time."
    ),
)

SPECS = {spec.name: spec for spec in CATALOG}

_E12 = (1.0, 1.2, 1.5, 1.8, 2.2, 2.7, 3.3, 3.9, 4.7, 5.6, 6.8, 8.2)
"""Preferred numbers of IEC 60063: twelve a decade, neighbours at most 1.25 apart."""


def ladder(low_s: float, high_s: float, extra_s: Iterable[float] = ()) -> tuple[float, ...]:
    """Return preferred numbers from ``low_s`` to ``high_s``, both ends included, with further boundaries among them."""
    steps = {round(m * 10.0**e, 9) for e in range(-6, 3) for m in _E12}
    return tuple(sorted({s for s in steps if low_s <= s <= high_s} | {low_s, high_s} | set(extra_s)))


LATENCY_BOUNDS_S = ladder(0.00047, 10.0)
LAG_BOUNDS_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0)
RECOVERY_BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0)
