"""Rows about the faults, the system under test and soak itself."""

from __future__ import annotations

from dashboards.chart import Chart, Query, Row

ON_OFF = (("-", "transparent"), ("active", "orange"))
MIB = 2.0**20

FAULTS = Row(
    "Faults and time to recover",
    (
        Chart(
            "Faults",
            "When each fault was active, from injection to revert; of a transition, until its effect was seen. "
            "One that is shorter than a scrape is shown too, for as long as a rate looks back.",
            "short",
            (
                Query(
                    "max by (fault, target) (clamp_max(soak_fault_active{I}"
                    " + (increase(soak_fault_injections_total{I}[$__rate_interval]) > bool 0), 1))",
                    "{{fault}} {{target}}",
                    0,
                    1,
                    1,
                ),
            ),
            kind="timeline",
            width=16,
            height=12,
            states=ON_OFF,
        ),
        Chart(
            "Phase",
            "What is going on: steady, a fault, or recovery from one. Stamped on each request when it is sent.",
            "short",
            (Query("soak_phase{I}", "{{phase}}", 0, 1, 1),),
            kind="timeline",
            height=6,
            states=(("-", "transparent"), ("now", "blue")),
        ),
        Chart(
            "Last recovery",
            "Time that traffic took to recover after the last fault of a kind; 0 before the first.",
            "s",
            (Query("soak_fault_last_recovery_seconds{I}", "{{fault}}", 0, 30),),
            kind="stat",
            height=6,
        ),
        Chart(
            "Injections",
            "Faults injected so far, by kind.",
            "short",
            (Query("sum by (fault) (soak_fault_injections_total{I})", "{{fault}}", 0, 5, 1),),
        ),
        Chart(
            "Worst recovery so far",
            "Upper boundary of the bucket that holds the longest recovery, by kind of fault.",
            "s",
            (
                Query(
                    "histogram_quantile(1, sum by (fault, le) (soak_fault_recovery_seconds_bucket{I}))"
                    " and on (fault) sum by (fault) (soak_fault_recovery_seconds_count{I}) > 0",
                    "{{fault}}",
                    0.1,
                    30,
                    0.1,
                ),
            ),
        ),
        Chart(
            "Outcomes",
            "Finished faults by kind and outcome.",
            "short",
            (
                Query(
                    "sum by (fault, outcome) (soak_fault_outcomes_total{I})", "{{fault}} {{outcome}}", 0, 5, 1
                ),
            ),
        ),
    ),
)


def _then_and_now(text: str, low: float, high: float, peak: float | None = None) -> tuple[Query, Query]:
    """Return the query over the last hour, and over the first: ``{W}`` in it becomes the window."""
    return (
        Query(text.replace("{W}", "[1h]"), "this hour", low, high, peak or low),
        Query(text.replace("{W}", "[1h] @ $first_hour_end"), "first hour", low, high, peak or low),
    )


_P99 = "histogram_quantile(0.99, sum by (le) (rate(soak_request_latency_seconds_bucket{I}{W})))"

DRIFT = Row(
    "Drift: this hour against the first",
    (
        Chart(
            "p99 of latency",
            "99th percentile over the last hour, and over the first hour of the run. In a run younger than an hour both are one.",
            "s",
            _then_and_now(_P99, 0.0001, 10),
            width=6,
        ),
        Chart(
            "Memory of the proxy",
            "Mean resident memory over the last hour, and over the first. A gap that widens is a leak.",
            "bytes",
            _then_and_now("avg_over_time(soak_proxy_resident_memory_bytes{I}{W})", MIB, 2000 * MIB),
            width=6,
        ),
        Chart(
            "Open files of the proxy",
            "Mean number of open files over the last hour, and over the first.",
            "short",
            _then_and_now("avg_over_time(soak_proxy_open_fds{I}{W})", 5, 5000),
            width=6,
        ),
        Chart(
            "CPU of the proxy per request",
            "CPU time of the proxy over requests sent, in the last hour and in the first.",
            "s",
            _then_and_now(
                "rate(soak_proxy_cpu_seconds_total{I}{W}) / scalar(sum(rate(soak_requests_sent_total{I}{W})))",
                0,  # until the second look at the proxy
                0.05,
                1e-7,
            ),
            width=6,
        ),
        Chart(
            "Memory against the first hour",
            "Resident memory now over the mean of the first hour: 100 % is no change.",
            "percentunit",
            (
                Query(
                    "soak_proxy_resident_memory_bytes{I}"
                    " / avg_over_time(soak_proxy_resident_memory_bytes{I}[1h] @ $first_hour_end)",
                    "memory",
                    0.1,
                    10,
                    0.5,
                ),
            ),
            width=12,
        ),
        Chart(
            "Growth an hour",
            "Slope of the last hour. Judge it only when the run is older than two hours: before, caches fill and pools grow.",
            "percentunit",
            (
                Query(
                    "3600 * deriv(soak_proxy_resident_memory_bytes{I}[1h])"
                    " / avg_over_time(soak_proxy_resident_memory_bytes{I}[1h])",
                    "memory",
                    -10_000,  # seconds of data say nothing about an hour
                    10_000,
                    -10_000,
                ),
            ),
            width=12,
        ),
    ),
)

PROXY = Row(
    "The proxy and its backends",
    (
        Chart(
            "Memory",
            "Resident memory of all processes of the proxy.",
            "bytes",
            (Query("soak_proxy_resident_memory_bytes{I}", "proxy", MIB, 2000 * MIB, MIB),),
        ),
        Chart(
            "Open files",
            "Open files of all processes of the proxy.",
            "short",
            (Query("soak_proxy_open_fds{I}", "files", 5, 5000, 5),),
        ),
        Chart(
            "Processes",
            "Processes of the proxy, and workers of an earlier generation that still live. Old ones must go after a reload.",
            "short",
            (
                Query("soak_proxy_processes{I}", "all", 1, 64, 2),
                Query("soak_proxy_old_processes{I}", "of an earlier generation", 0, 64),
            ),
        ),
        Chart(
            "CPU",
            "Cores that the proxy uses.",
            "short",
            (Query("rate(soak_proxy_cpu_seconds_total{I}[$__rate_interval])", "cores", 0, 8, 0.0001),),
        ),
        Chart(
            "Config generation",
            "What the proxy was told to serve, and the newest that an answer carried. The distance is the time of a reload.",
            "short",
            (
                Query("soak_config_generation{I}", "told", 1, 50, 2),
                Query("soak_config_generation_seen{I}", "seen", 1, 50, 2),
            ),
        ),
        Chart(
            "Age of the certificate",
            "Time since the present certificate was installed. Falls to zero at a rotation.",
            "s",
            (Query("time() - soak_certificate_installed_timestamp_seconds{I}", "age", -1, 120, 5),),
        ),
        Chart(
            "Certificate is valid for",
            "Time until the present certificate ends.",
            "s",
            (Query("soak_certificate_not_after_timestamp_seconds{I} - time()", "left", 60, 4e10, 60),),
        ),
        Chart(
            "From install to first sight",
            "Time from the install of the present certificate to the first fresh handshake that showed it; a hole until then.",
            "s",
            (
                Query(
                    "(soak_certificate_first_seen_timestamp_seconds{I}"
                    " - soak_certificate_installed_timestamp_seconds{I}) and soak_certificate_first_seen_timestamp_seconds{I} > 0",
                    "seen after",
                    0,
                    30,
                ),
            ),
        ),
        Chart(
            "Certificates installed",
            "Certificates installed so far, the first one included.",
            "short",
            (Query("soak_certificates_installed_total{I}", "installed", 1, 10, 2),),
        ),
        Chart(
            "Requests at each backend",
            "Requests that a backend counted itself, health checks included. A backend that is down counts none.",
            "reqps",
            (
                Query(
                    "sum by (target) (rate(soak_origin_requests_total{I}[$__rate_interval]))",
                    "{{target}}",
                    0,
                    1000,
                    20,
                ),
            ),
        ),
        Chart(
            "Memory of each backend",
            "Resident memory of a backend; 0 while it is down.",
            "bytes",
            (Query("soak_backend_resident_memory_bytes{I}", "{{target}}", 0, 2000 * MIB, MIB),),
        ),
        Chart(
            "Processes of each backend",
            "Processes of a backend; 0 while it is down.",
            "short",
            (Query("soak_backend_processes{I}", "{{target}}", 0, 10, 1),),
        ),
    ),
)

SELF = Row(
    "soak's own health: is the instrument well?",
    (
        Chart(
            "Lag",
            "Send lag p99 and longest gap of the event loop in the worst load worker's last second. "
            "A second above 50 ms of lag or 250 ms of gap (the plan's defaults) is set apart.",
            "s",
            (
                Query("soak_self_lag_p99_seconds{I}", "send lag p99", 0, 3),
                Query("soak_self_loop_gap_seconds{I}", "loop gap", 0, 5),
            ),
        ),
        Chart(
            "Send lag",
            "Time from the instant at which a request was due until it was sent: median and 99th percentile.",
            "s",
            tuple(
                Query(
                    f"histogram_quantile({share}, sum by (le) (rate(soak_send_lag_seconds_bucket{{I}}[$__rate_interval])))",
                    name,
                    0,
                    3,
                )
                for share, name in (("0.5", "p50"), ("0.99", "p99"))
            ),
        ),
        Chart(
            "Seconds set apart",
            "Seconds in which soak itself was unwell: the verdict leaves them out, and a run with too many is invalid.",
            "s",
            (Query("soak_self_unwell_seconds_total{I}", "unwell", 0, 60),),
        ),
        Chart(
            "CPU",
            "Cores that soak's daemon and its load workers use.",
            "short",
            (
                Query(
                    "sum by (process) (rate(soak_self_cpu_seconds_total{I}[$__rate_interval]))",
                    "{{process}}",
                    0,
                    8,
                    0.001,
                ),
            ),
        ),
        Chart(
            "Memory",
            "Resident memory of soak's daemon and of its load workers.",
            "bytes",
            (Query("soak_self_resident_memory_bytes{I}", "{{process}}", 0, 2000 * MIB, 10 * MIB),),
        ),
        Chart(
            "Open files",
            "Open files of soak's daemon and of its load workers.",
            "short",
            (Query("soak_self_open_fds{I}", "{{process}}", 0, 5000, 10),),
        ),
        Chart(
            "Clock steps and misfires",
            "Steps of the wall clock that were noticed, and planned faults that could not begin in time.",
            "short",
            (
                Query("soak_clock_steps_total{I}", "clock steps", 0, 5),
                Query("soak_schedule_misfires_total{I}", "misfires", 0, 5),
            ),
        ),
        Chart(
            "Scrape",
            "How long a scrape of the run took, and whether it can be scraped.",
            "s",
            (Query("scrape_duration_seconds{I}", "duration", 0, 5, 0.0001),),
        ),
        Chart(
            "Scraped",
            "Whether the run's pages can be scraped.",
            "short",
            (Query("up{I}", "up", 1, 1, 1),),
            kind="timeline",
            states=(("down", "red"), ("up", "green")),
        ),
    ),
)
