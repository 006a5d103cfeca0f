"""Rows about what clients got: verdict, traffic, errors, latency."""

from __future__ import annotations

from dashboards.chart import Chart, Query, Row

NO_PROXY_FAILURE = "ok|client_resource|stale_reuse|tls_not_resumed"
"""Outcomes that are no failure of the proxy: our own, and those that have objectives of their own."""
BAD_ABOVE_0 = ((None, "green"), (1.0, "red"))

VERDICT = Row(
    "Verdict: does the promise hold?",
    (
        Chart(
            "Rate held",
            "Share of the slots due so far that were sent. A run that does not hold its rate proves nothing.",
            "percentunit",
            (
                Query(
                    "sum(soak_requests_sent_total{I}) / sum(soak_slots_scheduled_total{I})",
                    "held",
                    0.5,
                    1,
                    0.9,
                ),
            ),
            kind="stat",
            width=4,
            height=5,
            steps=((None, "red"), (0.99, "orange"), (0.999, "green")),
        ),
        Chart(
            "Failure budget spent",
            "Failures so far over the failures that the success objective allows in the whole run; above 100 % the run has failed.",
            "percentunit",
            (
                Query(
                    'sum(soak_requests_total{I, outcome!="ok"}) / scalar(clamp_min(soak_failure_budget_requests{I}, 1))',
                    "spent",
                    0,
                    1000,
                ),
            ),
            kind="stat",
            width=4,
            height=5,
            steps=((None, "green"), (0.5, "orange"), (1.0, "red")),
        ),
        Chart(
            "Failures in steady state",
            "Requests that failed though no fault was under way when they were sent; stale_reuse, tls_not_resumed and our own left out.",
            "short",
            (
                Query(
                    f'sum(soak_requests_total{{I, phase="steady",outcome!~"{NO_PROXY_FAILURE}"}})',
                    "failures",
                    0,
                    5000,
                ),
            ),
            kind="stat",
            width=4,
            height=5,
            steps=BAD_ABOVE_0,
        ),
        Chart(
            "Age of the run",
            "Time since the run's start, and its planned length.",
            "s",
            (
                Query("soak_run_elapsed_seconds{I}", "age", 0, 120, 20),
                Query("soak_run_length_seconds{I}", "planned", 30, 600, 30),
            ),
            kind="stat",
            width=4,
            height=5,
        ),
        Chart(
            "Faults done",
            "Finished faults by how they ended. Only verified ones count as proof; dirty means that a revert failed.",
            "short",
            (Query("sum by (outcome) (soak_fault_outcomes_total{I})", "{{outcome}}", 0, 20, 2),),
            kind="stat",
            width=5,
            height=5,
        ),
        Chart(
            "Under test",
            "Proxy, its version, the lab and the run's id.",
            "short",
            (Query("soak_run_info{I}", "{{proxy}} {{proxy_version}}, {{lab}}: {{run_id}}", 1, 1, 1),),
            kind="stat",
            width=3,
            height=5,
            names=True,
        ),
        Chart(
            "Dirty or guarded",
            "Dirty: a revert failed, a target is not as it was. Guarded: the abort guard stopped further faults.",
            "short",
            (
                Query("soak_run_dirty{I}", "dirty", 0, 0),
                Query("soak_run_guarded{I}", "guarded", 0, 1),
            ),
            kind="timeline",
            width=12,
            height=4,
            states=(("no", "green"), ("yes", "red")),
        ),
        Chart(
            "State of the run",
            "Which state the run is in: starting, running, stopping or finished.",
            "short",
            (Query("soak_run_state{I}", "{{state}}", 0, 1, 1),),
            kind="timeline",
            width=12,
            height=4,
            states=(("-", "transparent"), ("now", "blue")),
        ),
    ),
)

TRAFFIC = Row(
    "Traffic",
    (
        Chart(
            "Requests sent by class",
            "Rate at which requests are sent, by traffic class.",
            "reqps",
            (
                Query(
                    "sum by (class) (rate(soak_requests_sent_total{I}[$__rate_interval]))",
                    "{{class}}",
                    0,
                    400,
                    20,
                ),
            ),
            kind="stacked",
        ),
        Chart(
            "Sent and planned",
            "All classes together against the rate that the plan asks for. The two lines are one when the rate is held.",
            "reqps",
            (
                Query("sum(rate(soak_requests_sent_total{I}[$__rate_interval]))", "sent", 50, 400, 180),
                Query("soak_target_requests_per_second{I}", "planned", 200, 200, 200),
            ),
        ),
        Chart(
            "Slots not sent",
            "Dropped: too many requests were in flight, which is the proxy's doing. Missed: soak itself was late.",
            "reqps",
            (
                Query(
                    "sum by (class) (rate(soak_slots_dropped_total{I}[$__rate_interval]))",
                    "dropped {{class}}",
                    0,
                    200,
                ),
                Query(
                    "sum by (class) (rate(soak_slots_missed_total{I}[$__rate_interval]))",
                    "missed {{class}}",
                    0,
                    200,
                ),
            ),
        ),
        Chart(
            "Requests in flight",
            "Requests sent and not finished. Grows when the proxy answers later than requests come.",
            "short",
            (Query("sum by (class) (soak_requests_in_flight{I})", "{{class}}", 0, 2000),),
        ),
        Chart(
            "Connections",
            "Connections of the load engine to the proxy: open, idle, opened and closed per second, and by whom.",
            "short",
            (
                Query("soak_connections_open{I}", "open", 0, 5000, 1),
                Query("soak_connections_idle{I}", "idle", 0, 5000),
                Query("rate(soak_connections_opened_total{I}[$__rate_interval])", "opened per s", 0, 1000, 1),
                Query(
                    "sum by (by) (rate(soak_connections_closed_total{I}[$__rate_interval]))",
                    "closed by {{by}} per s",
                    0,
                    1000,
                    1,
                ),
            ),
        ),
        Chart(
            "TLS handshakes",
            "Full and resumed handshakes per second.",
            "ops",
            (
                Query(
                    "sum by (kind) (rate(soak_tls_handshakes_total{I}[$__rate_interval]))",
                    "{{kind}}",
                    0,
                    1000,
                    1,
                ),
            ),
        ),
        Chart(
            "Received",
            "Bytes of answers received per second.",
            "Bps",
            (Query("rate(soak_received_bytes_total{I}[$__rate_interval])", "received", 1000, 1e9, 10_000),),
        ),
        Chart(
            "Requests on a used connection",
            "Share of requests that went out on a connection that had already carried one.",
            "percentunit",
            (
                Query(
                    "rate(soak_connections_reused_total{I}[$__rate_interval])"
                    " / scalar(sum(rate(soak_requests_sent_total{I}[$__rate_interval])))",
                    "reused",
                    0,
                    1.2,
                    0.3,
                ),
            ),
        ),
    ),
)

ERRORS = Row(
    "Errors by outcome and phase",
    (
        Chart(
            "Failures by outcome",
            "Requests that did not end as promised, by how they ended. Every outcome is there, at zero when it does not occur.",
            "reqps",
            (
                Query(
                    'sum by (outcome) (rate(soak_requests_total{I, outcome!="ok"}[$__rate_interval]))',
                    "{{outcome}}",
                    0,
                    200,
                ),
            ),
            kind="stacked",
            width=12,
        ),
        Chart(
            "Failures by phase",
            "By what was going on when a request was sent. Failures in steady state have no excuse.",
            "reqps",
            (
                Query(
                    'sum by (phase) (rate(soak_requests_total{I, outcome!="ok"}[$__rate_interval]))',
                    "{{phase}}",
                    0,
                    200,
                ),
            ),
            kind="stacked",
            width=12,
        ),
        Chart(
            "Failures so far by phase and class",
            "Failed requests since the start of the run.",
            "short",
            (
                Query(
                    'sum by (phase, class) (soak_requests_total{I, outcome!="ok"})',
                    "{{phase}} {{class}}",
                    0,
                    5000,
                ),
            ),
            width=12,
        ),
        Chart(
            "Failures that need a word",
            "Carried: in flight already when a fault struck. Stale and not idempotent: a client may not repeat these blindly. "
            "Evidence dropped: failures of which no row was kept. Delivered twice: a backend got what may be delivered only once.",
            "short",
            (
                Query("soak_requests_carried_total{I}", "carried", 0, 1000),
                Query("soak_stale_reuse_non_idempotent_total{I}", "stale and not idempotent", 0, 1000),
                Query("soak_evidence_dropped_total{I}", "evidence dropped", 0, 5000),
                Query("sum(soak_origin_duplicates_total{I})", "delivered twice", 0, 1000),
            ),
            width=12,
        ),
    ),
)


def _percentile(share: str, by: str, metric: str) -> str:
    """Return a percentile out of the exported buckets; a series without any request in the window is left out."""
    rate = f"rate({metric}_bucket{{I}}[$__rate_interval])"
    count = f"rate({metric}_count{{I}}[$__rate_interval])"
    return (
        f"histogram_quantile({share}, sum by ({by}, le) ({rate})) and on ({by}) sum by ({by}) ({count}) > 0"
    )


LATENCY = Row(
    "Latency, from the instant at which a request was due",
    (
        Chart(
            "p50 by class",
            "Median latency. Counted from due, so that a stall of the proxy is seen in full.",
            "s",
            (Query(_percentile("0.5", "class", "soak_request_latency_seconds"), "{{class}}", 0.0001, 2),),
        ),
        Chart(
            "p99 by class",
            "99th percentile of latency. Buckets grow by at most 1.25, which bounds the error.",
            "s",
            (Query(_percentile("0.99", "class", "soak_request_latency_seconds"), "{{class}}", 0.0001, 10),),
        ),
        Chart(
            "p99 by phase",
            "What a fault costs those who are served: p99 of the requests sent in each phase.",
            "s",
            (
                Query(
                    _percentile("0.99", "phase", "soak_request_latency_by_phase_seconds"),
                    "{{phase}}",
                    0.0001,
                    10,
                ),
            ),
        ),
        Chart(
            "Latency heatmap",
            "How many requests took how long. A second band is a second population: retries, timeouts, one slow backend.",
            "s",
            (
                Query(
                    "sum by (le) (increase(soak_request_latency_seconds_bucket{I}[$__rate_interval]))",
                    "{{le}}",
                    0,
                    1e6,
                    100,
                ),
            ),
            kind="heatmap",
            width=16,
            height=10,
        ),
        Chart(
            "Handshake p99 by class",
            "Time from the start of a connect until the connection was usable, TLS included.",
            "s",
            (Query(_percentile("0.99", "class", "soak_handshake_seconds"), "{{class}}", 0.0001, 10),),
            height=10,
        ),
    ),
)
