"""The exporter, judged by what a scrape shows: parsed by the client's own parser, values asserted."""

import itertools
import re
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from chaos.model import FaultOutcome, FaultRecord, Source
from soak.measure.histogram import Histogram
from soak.measure.ledger import Ledger
from soak.measure.window import Window, WorkerReport
from soak.metric_catalog import CATALOG
from soak.metrics import Metrics
from soak.model import (
    CertificateRecord,
    ConnectionStats,
    Event,
    Outcome,
    Phase,
    Scope,
    SelfStats,
    Sighting,
    SightKind,
    SightVia,
    Unwell,
    Vital,
)
from soak.plan import ObjectivesPlan, Plan, TrafficClassPlan, TrafficPlan
from tests.soak.web.fakes import status_of_a_run

WALL_S = 1_800_000_000.0
MS = 1_000_000
FAULTS = {"backend-down": ["b1", "b2", "b3"], "reload": ["proxy"]}
STATS = SelfStats(
    cpu_s=2.0,
    rss_bytes=40_000_000,
    fds=120,
    loop_gap_s=0.004,
    lag_p50_s=0.0001,
    lag_p99_s=0.002,
    lag_p999_s=0.003,
    lag_max_s=0.004,
)


def histogram(*milliseconds):
    out = Histogram()
    for ms in milliseconds:
        out.add(round(ms * MS))
    return out


def window(traffic="tls-reused", scope=0, second=0, **changes):
    values = {
        "scheduled": 10,
        "sent": 8,
        "dropped": 1,
        "missed": 1,
        "carried": 0,
        "in_flight": 1,
        "outcomes": {Outcome.OK: 6, Outcome.STALE_REUSE: 1},
        "stale_non_idempotent": 0,
        "latency": histogram(0.4, 0.9, 0.9, 3, 30, 200, 12_000),
        "service": histogram(0.4),
        "lag": histogram(0.05, 0.3),
        "last_failure_due_s": None,
        "bytes_received": 6144,
    }
    return Window(second=second, traffic=traffic, scope=scope, **{**values, **changes})


def report(*windows, worker=0, second=0, stats=STATS, sightings=()):
    return WorkerReport(
        worker=worker,
        second=second,
        windows=windows,
        sightings=sightings,
        connections=ConnectionStats(
            opened=5, closed_by_peer=2, closed_by_us=1, tls_full=3, tls_resumed=2, reused=4
        ),
        open_connections=7,
        idle_connections=6,
        evidence=(),
        evidence_dropped=3,
        stats=stats,
    )


@pytest.fixture
def ledger():
    ledger = Ledger()
    ledger.scope(Scope(1, Phase.FAULT, (1,), 10.0))
    return ledger


def make(ledger, plan=None, faults=FAULTS):
    return Metrics(
        plan or Plan(length=120.0),
        ledger,
        run_id="run-1",
        proxy_version="1.31.3",
        started_wall_s=WALL_S,
        faults=faults,
        transitions=["reload"],
    )


@pytest.fixture
def metrics(ledger):
    return make(ledger)


def scrape(metrics):
    """Return every sample as ``{(name, frozenset of label pairs): value}``."""
    body, content_type = metrics.render()
    assert content_type.startswith("text/plain")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def value(metrics, name, **labels):
    names = {"cls": "class"}
    return scrape(metrics)[name, frozenset((names.get(k, k), v) for k, v in labels.items())]


# --- the whole -------------------------------------------------------------------------------------------------------


def test_every_series_is_there_at_zero_from_the_first_scrape(metrics):
    """A panel shows zero and not a hole: the same series before and after a lot has happened."""
    before = scrape(metrics)
    for name in ("tls-reused", "tls-new", "post"):
        metrics._ledger.add(
            report(
                *(window(name, scope, outcomes=dict.fromkeys(Outcome, 1)) for scope in (0, 1)),
            )
        )
    for number, outcome in enumerate(FaultOutcome):
        for kind, targets in FAULTS.items():
            for target in targets:
                metrics.observe_fault(
                    FaultRecord(
                        id=number * 10 + len(kind),
                        kind=kind,
                        target=target,
                        source=Source.INJECT,
                        planned_s=1.0,
                        injected_s=1.0,
                        recovery_s=2.0,
                        outcome=outcome,
                    )
                )
    for subject in ("proxy", "daemon", "b1", "b2", "b3"):
        metrics.observe_vital(Vital(1.0, subject, 1000, 1.0, 10, 2, 1))
    metrics.set_status(status_of_a_run())

    assert before.keys() == scrape(metrics).keys()
    counters = [v for (name, _), v in before.items() if name.endswith("_total")]
    assert {0.0} == set(counters)
    outcomes = [key for key in before if key[0] == "soak_requests_total"]
    assert 3 * len(Outcome) * len(Phase) == len(outcomes)


def test_exposition_holds_exactly_the_catalog(metrics):
    """Each family of the catalog, with its type, its help and its labels, and none besides."""
    families = {f.name: f for f in text_string_to_metric_families(metrics.render()[0].decode())}

    assert {spec.name.removesuffix("_total") for spec in CATALOG} == families.keys()
    for spec in CATALOG:
        family = families[spec.name.removesuffix("_total")]
        assert (spec.kind, spec.help) == (family.type, family.documentation)
        for sample in family.samples:
            assert set(spec.labels) == set(sample.labels) - {"le"}, spec.name


def test_promtool_has_no_complaint(metrics, require, ledger):
    """Debian's promtool lints names, types, units and help texts, before and after traffic."""
    promtool = require("promtool")
    for _ in range(2):
        done = subprocess.run(
            [promtool, "check", "metrics"],
            input=metrics.render()[0],
            capture_output=True,
            check=False,
            timeout=30,
        )
        assert (0, b"", b"") == (done.returncode, done.stdout, done.stderr)
        ledger.add(report(window()))
        metrics.set_status(status_of_a_run())


def test_document_has_a_true_row_for_every_metric():
    """docs/METRICS.md says what the code says: name, type, labels, meaning, in the same order."""
    text = (Path(__file__).parents[2] / "docs" / "METRICS.md").read_text()
    rows = re.findall(r"^\| `(soak_\w+)` \| (\w+) \| (.+?) \| (.+) \|$", text, re.MULTILINE)

    assert [
        (s.name, s.kind, ", ".join(f"`{label}`" for label in s.labels) or "-", s.help) for s in CATALOG
    ] == rows


def test_document_queries_only_what_exists():
    """Every soak_ word in the document is an exported series."""
    text = (Path(__file__).parents[2] / "docs" / "METRICS.md").read_text()
    words = set(re.findall(r"\bsoak_[a-z0-9_]+", text))
    known = {s.name for s in CATALOG} | {
        f"{s.name}_{part}" for s in CATALOG if s.kind == "histogram" for part in ("bucket", "sum", "count")
    }

    assert set() == words - known


def test_names_and_labels_keep_the_rules():
    """Prefix, base units, _total on counters alone, and no label that could hold an id or a text."""
    allowed = {"class", "outcome", "phase", "fault", "target", "by", "kind", "process", "state"}
    for spec in CATALOG:
        assert spec.name.startswith("soak_")
        assert spec.name.endswith("_total") == (spec.kind == "counter")
        assert not re.search(r"_(ms|milliseconds|kb|percent)\b", spec.name)
        assert spec.name == "soak_run_info" or set(spec.labels) <= allowed


# --- traffic ---------------------------------------------------------------------------------------------------------


def test_slots_and_requests_are_the_ledgers(metrics, ledger):
    """Counted by class, outcome and phase, summed over workers and seconds; both identities can be read off."""
    ledger.add(report(window(), window(scope=1, second=0, in_flight=1)))
    ledger.add(report(window(second=0, in_flight=2), worker=1))
    now = scrape(metrics)

    def of(name, **labels):
        return now[name, frozenset({**labels, "class": "tls-reused"}.items())]

    assert (30, 24, 3, 3) == (
        of("soak_slots_scheduled_total"),
        of("soak_requests_sent_total"),
        of("soak_slots_dropped_total"),
        of("soak_slots_missed_total"),
    )
    assert 12 == of("soak_requests_total", outcome="ok", phase="steady")
    assert 6 == of("soak_requests_total", outcome="ok", phase="fault")
    assert 2 == of("soak_requests_total", outcome="stale_reuse", phase="steady")
    assert 0 == of("soak_requests_total", outcome="ok", phase="recovery")
    assert 3 == of("soak_requests_in_flight")
    assert 3 * 6144 == now["soak_received_bytes_total", frozenset()]


def test_connections_are_the_ledgers(metrics, ledger):
    """Opened, closed by whom, reused, full and resumed handshakes; open and idle now."""
    ledger.add(report(window(), second=0))
    ledger.add(report(window(second=1), second=1))

    assert 10 == value(metrics, "soak_connections_opened_total")
    assert (4, 2) == (
        value(metrics, "soak_connections_closed_total", by="peer"),
        value(metrics, "soak_connections_closed_total", by="us"),
    )
    assert (6, 4) == (
        value(metrics, "soak_tls_handshakes_total", kind="full"),
        value(metrics, "soak_tls_handshakes_total", kind="resumed"),
    )
    assert 8 == value(metrics, "soak_connections_reused_total")
    assert (7, 6) == (value(metrics, "soak_connections_open"), value(metrics, "soak_connections_idle"))
    assert 6 == value(metrics, "soak_evidence_dropped_total")


def test_latency_buckets_are_cumulative_and_complete(metrics, ledger):
    """Each duration is in the bucket it belongs to; what is past the last boundary is in +Inf, sum and count."""
    ledger.add(report(window()))

    def at_most(le):
        return value(metrics, "soak_request_latency_seconds_bucket", cls="tls-reused", le=le)

    assert [1, 3, 3, 4, 5, 6, 6, 7] == [
        at_most(le) for le in ("0.00047", "0.001", "0.0027", "0.0033", "0.033", "0.22", "10", "+Inf")
    ]
    assert 7 == value(metrics, "soak_request_latency_seconds_count", cls="tls-reused")
    assert 12.2352 == pytest.approx(value(metrics, "soak_request_latency_seconds_sum", cls="tls-reused"))
    assert 0 == value(metrics, "soak_request_latency_seconds_count", cls="post")


def test_latency_by_phase_sums_the_classes(metrics, ledger):
    """The same requests, told apart by what was going on when they were sent."""
    ledger.add(report(window(), window("post"), window("post", scope=1)))

    assert [14, 7, 0] == [
        value(metrics, "soak_request_latency_by_phase_seconds_count", phase=p.value) for p in Phase
    ]


def test_bucket_boundaries_resolve_a_quarter_everywhere(metrics):
    """From 0.5 ms to 10 s no bucket is wider than 1.25: a 250 ms fault must not read as 450 ms."""
    bounds = sorted(
        float(dict(labels)["le"])
        for name, labels in scrape(metrics)
        if name == "soak_request_latency_seconds_bucket" and ("class", "post") in labels
    )[:-1]

    assert bounds[0] <= 0.0005
    assert bounds[-1] == 10.0
    assert max(b / a for a, b in itertools.pairwise(bounds)) <= 1.2501
    assert 45 <= len(bounds) <= 56


def test_response_timeout_is_a_boundary(ledger):
    """Requests that ran into the timeout can be told from those that did not."""
    plan = Plan(traffic=TrafficPlan(response_timeout=23.0))

    assert 0 == value(make(ledger, plan), "soak_request_latency_seconds_bucket", cls="post", le="23")


def test_recovery_objective_is_a_boundary(ledger):
    """Whether recovery kept to its objective can be read off a bucket."""
    plan = Plan(objectives=ObjectivesPlan(recovery_within=6.0))

    assert 0 == value(make(ledger, plan), "soak_fault_recovery_seconds_bucket", fault="reload", le="6")


def test_handshakes_are_timed_by_class(ledger):
    """Those of kept connections are few; classes without any are there at 0."""
    metrics = make(ledger)
    ledger.add(report(window(handshake=histogram(2, 5)), window("tls-new", handshake=histogram(3))))
    assert 2 == value(metrics, "soak_handshake_seconds_count", cls="tls-reused")
    assert pytest.approx(0.007) == value(metrics, "soak_handshake_seconds_sum", cls="tls-reused")
    assert 1 == value(metrics, "soak_handshake_seconds_count", cls="tls-new")
    assert 0 == value(metrics, "soak_handshake_seconds_count", cls="post")


def test_handshakes_are_the_first_to_lose_their_split(ledger):
    """With fourteen classes latency still has one, and nothing is lost."""
    classes = tuple(TrafficClassPlan(name=f"c{i}", share=1 / 14) for i in range(14))
    metrics = make(ledger, Plan(traffic=TrafficPlan(classes=classes)))
    ledger.add(report(window("c1", handshake=histogram(1)), window("c11", handshake=histogram(1, 2))))
    assert 3 == value(metrics, "soak_handshake_seconds_count", cls="all")
    assert 7 == value(metrics, "soak_request_latency_seconds_count", cls="c1")


def test_many_classes_share_one_latency_histogram(ledger):
    """The number of histograms is bounded, whatever the plan: nothing is lost, only not split."""
    classes = tuple(TrafficClassPlan(name=f"c{i}", share=1 / 32) for i in range(32))
    metrics = make(ledger, Plan(traffic=TrafficPlan(classes=classes)))
    ledger.add(report(window("c1"), window("c31")))

    assert 14 == value(metrics, "soak_request_latency_seconds_count", cls="all")
    histograms = {key for key in scrape(metrics) if key[0].endswith("_count")}
    assert len(histograms) <= 30


# --- faults ----------------------------------------------------------------------------------------------------------


def record(number=1, kind="backend-down", target="b2", **instants):
    return FaultRecord(
        id=number, kind=kind, target=target, source=Source.SCHEDULE, planned_s=10.0, **instants
    )


def test_fault_is_active_from_injection_to_revert(metrics):
    """And counted once, however often its record is told."""
    where = {"fault": "backend-down", "target": "b2"}
    steps = [
        record(),
        record(injected_s=10.5),
        record(injected_s=10.5, active_s=11.0),
        record(injected_s=10.5, active_s=11.0, reverted_s=20.0),
        record(
            injected_s=10.5,
            active_s=11.0,
            reverted_s=20.0,
            recovered_s=22.0,
            recovery_s=2.2,
            outcome=FaultOutcome.VERIFIED,
        ),
    ]
    active = []
    for step in (*steps, steps[-1]):
        metrics.observe_fault(step)
        active.append(value(metrics, "soak_fault_active", **where))

    assert [0, 1, 1, 0, 0, 0] == active
    assert 1 == value(metrics, "soak_fault_injections_total", **where)
    assert WALL_S + 10.5 == value(metrics, "soak_fault_last_start_timestamp_seconds", **where)
    assert 1 == value(metrics, "soak_fault_outcomes_total", fault="backend-down", outcome="verified")
    assert 1 == value(metrics, "soak_fault_recovery_seconds_count", fault="backend-down")
    assert (0, 1) == (
        value(metrics, "soak_fault_recovery_seconds_bucket", fault="backend-down", le="2"),
        value(metrics, "soak_fault_recovery_seconds_bucket", fault="backend-down", le="3"),
    )
    assert 2.2 == value(metrics, "soak_fault_last_recovery_seconds", fault="backend-down")


def test_transition_is_active_until_its_effect_is_seen(metrics):
    """A reload has no revert; traffic that shows the new generation ends it."""
    active = []
    for step in (record(kind="reload", target="proxy", injected_s=5.0),) * 2:
        metrics.observe_fault(step)
        active.append(value(metrics, "soak_fault_active", fault="reload", target="proxy"))
    metrics.observe_fault(record(kind="reload", target="proxy", injected_s=5.0, active_s=5.2))
    active.append(value(metrics, "soak_fault_active", fault="reload", target="proxy"))

    assert [1, 1, 0] == active


def test_fault_that_was_skipped_was_never_injected(metrics):
    """An outcome without an injection."""
    metrics.observe_fault(record(outcome=FaultOutcome.SKIPPED, reason="misfire"))

    assert 1 == value(metrics, "soak_fault_outcomes_total", fault="backend-down", outcome="skipped")
    assert 0 == value(metrics, "soak_fault_injections_total", fault="backend-down", target="b2")


def test_a_target_that_there_is_not_makes_no_series(metrics):
    """A typo in an injection must not be a label for the rest of the day; the skip itself is counted."""
    before = set(metrics._values["soak_fault_active"])
    for n in range(50):
        metrics.observe_fault(
            FaultRecord(
                n,
                "backend-down",
                f"paris-{n}",
                Source.INJECT,
                1.0,
                outcome=FaultOutcome.SKIPPED,
                reason="no target",
            )
        )

    assert before == set(metrics._values["soak_fault_active"])
    assert 0 == len(metrics._active)
    assert 50 == metrics._values["soak_fault_outcomes_total"]["backend-down", "skipped"]


def test_dirty_fault_stays_active(metrics):
    """Its revert failed: it is still there, and the gauge says so."""
    metrics.observe_fault(record(injected_s=1.0, outcome=FaultOutcome.DIRTY))

    assert 1 == value(metrics, "soak_fault_active", fault="backend-down", target="b2")


def test_two_instances_on_one_target_end_one_by_one(metrics):
    """With --overlap the gauge is 1 until the last of them is reverted."""
    metrics.observe_fault(record(1, injected_s=1.0))
    metrics.observe_fault(record(2, injected_s=2.0))
    metrics.observe_fault(record(1, injected_s=1.0, reverted_s=3.0))
    first = value(metrics, "soak_fault_active", fault="backend-down", target="b2")
    metrics.observe_fault(record(2, injected_s=2.0, reverted_s=4.0))

    assert (1, 0) == (first, value(metrics, "soak_fault_active", fault="backend-down", target="b2"))
    assert 2 == value(metrics, "soak_fault_injections_total", fault="backend-down", target="b2")


def test_memory_of_faults_is_bounded(metrics):
    """A month of reloads does not grow the exporter."""
    for number in range(5000):
        metrics.observe_fault(record(number, outcome=FaultOutcome.SKIPPED))

    assert len(metrics._seen) <= 4096
    assert 5000 == value(metrics, "soak_fault_outcomes_total", fault="backend-down", outcome="skipped")


# --- generation, certificates, vitals, soak itself -------------------------------------------------------------------


def test_generation_asked_for_and_seen(metrics):
    """What the proxy was told, and the newest that an answer carried; an old answer does not turn it back."""
    metrics.set_generation(4)
    sights = [
        Sighting(SightKind.GENERATION, v, SightVia.TRAFFIC, 1.0, 1.0, 1) for v in ("3", "4", "2", "", "x")
    ]
    metrics.observe_report(report(sightings=sights))

    assert (4, 4) == (
        value(metrics, "soak_config_generation"),
        value(metrics, "soak_config_generation_seen"),
    )


def test_certificate_installed_and_first_seen(metrics):
    """Instants, never serials: first seen is by a fresh handshake, of the present serial, and 0 until then."""
    metrics.observe_certificate(CertificateRecord("aa", 0.0, "f0"), not_after_wall_s=WALL_S + 9000)
    metrics.observe_certificate(CertificateRecord("bb", 30.0, "f1"), not_after_wall_s=WALL_S + 9999)
    seen = [value(metrics, "soak_certificate_first_seen_timestamp_seconds")]
    for serial, via, at_s in (
        ("aa", SightVia.PROBE, 30.1),
        ("bb", SightVia.TRAFFIC, 30.2),
        ("bb", SightVia.PROBE, 30.9),
        ("bb", SightVia.PROBE, 31.9),
    ):
        metrics.observe_sighting(Sighting(SightKind.SERIAL, serial, via, at_s, at_s, 1))
        seen.append(value(metrics, "soak_certificate_first_seen_timestamp_seconds"))

    assert [0, 0, 0, WALL_S + 30.9, WALL_S + 30.9] == seen
    assert 2 == value(metrics, "soak_certificates_installed_total")
    assert WALL_S + 30 == value(metrics, "soak_certificate_installed_timestamp_seconds")
    assert WALL_S + 9999 == value(metrics, "soak_certificate_not_after_timestamp_seconds")


def test_vitals_of_the_proxy(metrics):
    """Gauges are the last look; CPU is a counter that survives the end of a worker process."""
    for cpu_s in (5.0, 8.0, 2.0, 4.0):
        metrics.observe_vital(Vital(1.0, "proxy", 50_000_000, cpu_s, 60, 5, 2))

    assert (50_000_000, 60, 5, 2) == (
        value(metrics, "soak_proxy_resident_memory_bytes"),
        value(metrics, "soak_proxy_open_fds"),
        value(metrics, "soak_proxy_processes"),
        value(metrics, "soak_proxy_old_processes"),
    )
    assert 10.0 == value(metrics, "soak_proxy_cpu_seconds_total")


def test_vitals_of_backends_and_strangers(metrics):
    """A backend that is down is 0; a subject that is not ours makes no series."""
    before = scrape(metrics).keys()
    metrics.observe_vital(Vital(1.0, "b2", 9_000_000, 1.0, 10, 1))
    metrics.observe_vital(Vital(2.0, "b3", 0, 0.0, 0, 0))
    metrics.observe_vital(Vital(2.0, "b99", 5, 0.0, 0, 1))

    assert (9_000_000, 1, 0) == (
        value(metrics, "soak_backend_resident_memory_bytes", target="b2"),
        value(metrics, "soak_backend_processes", target="b2"),
        value(metrics, "soak_backend_processes", target="b3"),
    )
    assert before == scrape(metrics).keys()


def test_soak_itself(metrics, ledger):
    """The daemon from its vitals, the workers from their own reports: sums, and the worst of them."""
    late = SelfStats(1.0, 30_000_000, 80, 0.3, 0.1, 0.2, 0.25, 0.3)
    ledger.add(report(window()))
    ledger.add(report(window(), worker=1, stats=late))
    metrics.observe_vital(Vital(1.0, "daemon", 70_000_000, 3.5, 30, 1))
    metrics.observe_unwell(Unwell(10.0, 12.5, "stopped"))
    metrics.observe_event(Event(1.0, WALL_S, "clock.stepped", {"step_s": 3600.0}))
    metrics.observe_event(Event(1.0, WALL_S, "schedule.misfired"))
    metrics.observe_event(Event(1.0, WALL_S, "origin.died"))

    for name, daemon, worker in (
        ("soak_self_resident_memory_bytes", 70_000_000, 70_000_000),
        ("soak_self_open_fds", 30, 200),
        ("soak_self_cpu_seconds_total", 3.5, 3.0),
    ):
        assert (daemon, worker) == (
            value(metrics, name, process="daemon"),
            value(metrics, name, process="worker"),
        )
    assert 0.3 == value(metrics, "soak_self_loop_gap_seconds")
    assert 0.2 == value(metrics, "soak_self_lag_p99_seconds")
    assert 2.5 == value(metrics, "soak_self_unwell_seconds_total")
    assert (1, 1) == (
        value(metrics, "soak_clock_steps_total"),
        value(metrics, "soak_schedule_misfires_total"),
    )
    assert (2, 4) == (
        value(metrics, "soak_send_lag_seconds_bucket", le="0.0001"),
        value(metrics, "soak_send_lag_seconds_count"),
    )


def test_the_run(metrics):
    """Who, how long, how far, in which state and phase, and what the objectives allow."""
    before = (
        value(metrics, "soak_run_state", state="starting"),
        value(metrics, "soak_phase", phase="steady"),
    )
    metrics.set_status(status_of_a_run(dirty=True, guarded=True))

    assert (1, 1) == before
    info = {"run_id": "run-1", "proxy": "nginx", "proxy_version": "1.31.3", "lab": "local"}
    assert 1 == value(metrics, "soak_run_info", **info)
    assert [120, 61.5, WALL_S, 1000, 0.999, 120] == [
        value(metrics, f"soak_{name}")
        for name in (
            "run_length_seconds",
            "run_elapsed_seconds",
            "run_start_timestamp_seconds",
            "target_requests_per_second",
            "objective_success_ratio",
            "failure_budget_requests",
        )
    ]
    assert [0, 1, 0, 0] == [
        value(metrics, "soak_run_state", state=s) for s in ("starting", "running", "stopping", "finished")
    ]
    assert [0, 1, 0] == [value(metrics, "soak_phase", phase=p.value) for p in Phase]
    assert (1, 1) == (value(metrics, "soak_run_dirty"), value(metrics, "soak_run_guarded"))


def test_the_start_of_the_run_can_be_corrected_once_it_is_known():
    """Workers come up before the first slot is set; what counts is the slot."""
    metrics = Metrics(
        Plan(), Ledger(), run_id="r", proxy_version="1", started_wall_s=1000.0, faults={"reload": ("proxy",)}
    )
    metrics.set_start(1002.5)
    text, _ = metrics.render()
    assert b"soak_run_start_timestamp_seconds 1002.5\n" in text
