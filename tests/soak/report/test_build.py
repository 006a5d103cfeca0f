"""The report's dict: the JSON contract to the letter, and requests attributed to faults through their scopes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chaos.model import FaultOutcome
from soak.measure.histogram import Histogram
from soak.model import CertificateRecord, Outcome, Phase, Scope, SightKind, SightVia, Unwell, Vital
from soak.plan import ObjectivesPlan
from soak.report import build_report, render_json
from soak.store import StoreReader, StoreWriter
from tests.soak.synthetic import SyntheticRun, record, report, window

TRAFFIC = {
    *("scheduled", "sent", "dropped", "missed", "ok", "failed", "in_flight"),
    *("outcomes", "lag_ms", "latency_ms", "service_ms", "handshake_ms"),
}


def run() -> SyntheticRun:
    """A minute and a half with a reload that lost a little, a rotation, and a backend away."""
    r = SyntheticRun(seconds=90)
    r.add_fault(record(1, "reload", 10.0))
    r.add_fault(record(2, "cert-rotate", 20.0, active_s=20.5, evidence={"apply": {"serial": "bb"}}))
    r.add_fault(record(3, "backend-down", 30.0, recovery_s=0.9, recovered_s=35.4))
    r.faults.append(
        record(4, "reload", 80.0, injected_s=None, active_s=None, outcome=FaultOutcome.SKIPPED, reason="busy")
    )
    r.fail(10, Outcome.STALE_REUSE, 2)
    r.fail(31, Outcome.STATUS_5XX, 3)
    r.changes[31] = {"carried": 1}
    r.certificates = [
        CertificateRecord("aa", 0.0, "fa"),
        CertificateRecord("bb", 20.0, "fb", 2),
        CertificateRecord("cc", 60.0, "fc"),
    ]
    r.see(SightKind.SERIAL, "aa", 0.5, 20.1, SightVia.PROBE)
    r.see(SightKind.SERIAL, "bb", 20.5, 89.0, SightVia.PROBE)
    r.see(SightKind.SERIAL, "bb", 20.3, 89.9, SightVia.TRAFFIC)
    r.vitals = [Vital(t, "proxy", 10**7, t / 10, 50, 3, int(10 < t < 45)) for t in range(0, 90, 5)]
    return r


@pytest.fixture
def built(tmp_path: Path) -> dict[str, Any]:
    with StoreReader(run().write(tmp_path / "run.db")) as r:
        return build_report(r)


def test_the_keys_are_those_of_the_contract(built):
    """Every key that other programs rely on is there; it is JSON without NaN."""
    assert built == json.loads(render_json(built))
    assert {
        *(
            "schema",
            "run",
            "verdict",
            "reasons",
            "objectives",
            "load",
            "connections",
            "faults",
            "certificates",
        ),
        *("vitals", "proxy_cpu", "self"),
    } <= set(built)
    assert 1 == built["schema"]
    assert {"id", "started_at", "seconds", "seed", "proxy", "proxy_version", "lab", "rate"} <= set(
        built["run"]
    )
    assert all({"name", "value", "limit", "ok"} <= set(o) for o in built["objectives"])
    assert set(built["load"]) >= TRAFFIC | {"classes"}
    assert all(set(c) >= TRAFFIC for c in built["load"]["classes"].values())
    for key in ("lag_ms", "latency_ms", "service_ms"):
        assert {"p50", "p99", "p999", "max"} == set(built["load"][key])
    assert {"p50", "p99", "p999", "max", "count"} == set(built["load"]["handshake_ms"])
    assert {"opened", "closed_by_peer", "closed_by_us", "tls_full", "tls_resumed"} <= set(
        built["connections"]
    )
    assert {
        *(
            "id",
            "kind",
            "target",
            "source",
            "planned_s",
            "injected_s",
            "active_s",
            "reverted_s",
            "recovered_s",
        ),
        *("recovery_s", "outcome", "requests", "failed", "outcomes", "evidence"),
    } <= set(built["faults"][0])
    assert {"serial", "installed_s", "first_seen_s", "old_last_seen_s"} <= set(built["certificates"][0])
    assert {"rss_bytes", "fds", "processes"} == set(built["vitals"])
    assert {"first", "last", "slope_per_h"} <= set(built["vitals"]["fds"])
    assert pytest.approx(0.1) == built["proxy_cpu"]["cores"]
    assert pytest.approx(8.5) == built["proxy_cpu"]["seconds"]
    sent_a_second = built["load"]["sent"] / built["run"]["seconds"]
    assert pytest.approx(1e5 / sent_a_second) == built["proxy_cpu"]["us_per_request"]
    assert {"cpu_s", "rss_bytes", "cpu_us_per_request"} <= set(built["self"])


def test_both_identities_hold_in_the_report(built):
    """For the whole and for each class."""
    for part in (built["load"], *built["load"]["classes"].values()):
        assert part["scheduled"] == part["sent"] + part["dropped"] + part["missed"]
        assert part["sent"] == sum(part["outcomes"].values()) + part["in_flight"]
        assert part["ok"] + part["failed"] == sum(part["outcomes"].values())


def test_figures(built):
    """What was sent, how fast, and what it cost us."""
    load = built["load"]
    assert (9000, 9000, 8995, 5) == (load["scheduled"], load["sent"], load["ok"], load["failed"])
    assert {"ok": 8995, "status_5xx": 3, "stale_reuse": 2} == load["outcomes"]
    assert pytest.approx(1.0, rel=0.01) == load["latency_ms"]["p99"]
    assert (1.0, 0.9, 0.1) == (load["latency_ms"]["max"], load["service_ms"]["max"], load["lag_ms"]["max"])
    assert (90, 2.5) == (load["handshake_ms"]["count"], load["handshake_ms"]["max"])
    assert 450 == built["connections"]["opened"]
    assert (4.45, 50_000_000) == (built["self"]["cpu_s"], built["self"]["rss_bytes"])
    assert pytest.approx(494.444) == built["self"]["cpu_us_per_request"]
    assert (10**7, 10**7, 0.0) == tuple(
        built["vitals"]["rss_bytes"][k] for k in ("first", "last", "slope_per_h")
    )
    assert (90.0, 7, "finished") == (built["run"]["seconds"], built["run"]["seed"], built["run"]["ended"])


def test_requests_and_failures_belong_to_their_faults(built):
    """Through the scopes: two seconds of the reload, seven of the backend, one of its requests carried over."""
    reload, rotation, backend, skipped = built["faults"]
    assert (200, 2, {"ok": 198, "stale_reuse": 2}) == (
        reload["requests"],
        reload["failed"],
        reload["outcomes"],
    )
    assert (701, 3, 3) == (backend["requests"], backend["failed"], backend["outcomes"]["status_5xx"])
    assert (0, "skipped", "busy") == (skipped["requests"], skipped["outcome"], skipped["reason"])
    assert (pytest.approx(0.1), 0.9) == (reload["effect_s"], backend["recovery_s"])
    assert {"apply": {"serial": "bb"}} == rotation["evidence"]
    assert "schedule" == reload["source"]
    assert 5 == sum(p["failed"] for p in built["phases"].values()) == built["load"]["failed"]


def test_what_only_the_origins_know_is_told(tmp_path):
    """Who was asked, who answered, what came twice, and what a cache let through: by the origins' own counters."""
    r = SyntheticRun(seconds=10)
    r.plan = {"traffic": {"classes": [{"name": "get", "share": 1, "cache_keys": 50}]}}
    r.origins = {
        "b1": {"requests": 300, "duplicates": 1, "non_idempotent": 5, "cache.etag.full": 100},
        "b2": {"requests": 100, "duplicates": 0, "cache.plain.full": 20, "cache.etag.not_modified": 30},
    }
    r.see(SightKind.ORIGIN, "b1", 0.0, 9.0)
    r.see(SightKind.ORIGIN, "b1", 0.0, 9.0, SightVia.PROBE)
    r.see(SightKind.ORIGIN, "b3", 0.0, 9.0)
    with StoreReader(r.write(tmp_path / "run.db")) as reader:
        found = build_report(reader)
    assert {"requests": 300, "share": 0.75, "answers": 10, "answers_share": 0.5, "duplicates": 1} == found[
        "origins"
    ]["b1"]
    assert {
        "requests": None,
        "share": None,
        "answers": 10,
        "answers_share": 0.5,
        "duplicates": None,
    } == found["origins"]["b3"]
    assert 1 == found["duplicates"]
    assert {"requests": 1000, "origin_answers": 150, "revalidated": 30, "hit_ratio": 0.85} == found["cache"]


def test_what_nobody_asked_the_origins_is_not_known(built):
    """Null, never 0."""
    assert ({}, None, None) == (built["origins"], built["duplicates"], built["cache"])


def test_certificates_join_what_was_installed_with_what_was_seen(built):
    """The probe's word counts; a certificate that was never seen says so; the first has no predecessor."""
    first, second, third = built["certificates"]
    assert (0.5, None) == (first["first_seen_s"], first["old_last_seen_s"])
    assert (20.5, 20.1, 20.3) == (
        second["first_seen_s"],
        second["old_last_seen_s"],
        second["traffic_first_seen_s"],
    )
    assert (None, 89.0, "bb") == (third["first_seen_s"], third["old_last_seen_s"], third["old_serial"])


def test_unwell_seconds_are_shown(tmp_path):
    """How many, which, and what failed in them."""
    r = SyntheticRun(seconds=200)
    r.unwell = [Unwell(5.0, 6.0, "late")]
    r.fail(5, Outcome.RESPONSE_TIMEOUT, 4)
    with StoreReader(r.write(tmp_path / "run.db")) as reader:
        built = build_report(reader)
    assert "pass" == built["verdict"]
    assert (1, 0.005, 4) == tuple(built["unwell"][k] for k in ("seconds", "share", "failed"))
    assert [{"from_s": 5.0, "to_s": 6.0, "reason": "late"}] == built["unwell"]["stretches"]


def test_other_objectives_change_the_verdict_and_nothing_else(tmp_path):
    """Judged again, from the store alone."""
    with StoreReader(run().write(tmp_path / "run.db")) as reader:
        strict = build_report(reader, ObjectivesPlan(recovery_within=0.5))
        plain = build_report(reader)
    assert ("pass", "fail") == (plain["verdict"], strict["verdict"])
    assert "recovery" == strict["worst"]["name"]
    assert plain["load"] == strict["load"]


def test_an_empty_store_has_a_report(tmp_path):
    """A run that was killed at once: invalid, not a crash."""
    with StoreWriter(tmp_path / "run.db"):
        pass
    with StoreReader(tmp_path / "run.db") as reader:
        built = build_report(reader)
    assert ("invalid", 3) == (built["verdict"], built["exit_code"])
    assert built == json.loads(render_json(built))
    assert None is built["self"]["cpu_us_per_request"]


def test_a_report_of_a_growing_run(tmp_path):
    """While the writer goes on; told apart from a killed one."""
    with StoreWriter(tmp_path / "run.db") as w:
        w.add_scope(Scope(0, Phase.STEADY))
        w.add_report(report(0, window(0)))
        w.flush()
        with StoreReader(tmp_path / "run.db") as reader:
            assert "still going" in build_report(reader, live=True)["reasons"][0]
            assert "killed" in build_report(reader)["reasons"][0]


def peak_kib() -> int:
    """Return the most memory that this process has had at once."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def test_a_long_run_is_built_right_and_in_bounded_memory(tmp_path):
    """Two hours of three classes: all there, and the report costs a few MiB whatever the length."""
    names = [f"c{i}" for i in range(3)]
    spread = Histogram()
    for i in range(100):
        spread.add(300_000 + i * 20_000)
    seconds = 2 * 3600
    with StoreWriter(tmp_path / "run.db", max_queue=10**6) as w:
        w.add_scope(Scope(0, Phase.STEADY))
        for s in range(seconds):
            w.add_report(report(s, *(window(s, name, latency=spread) for name in names)))
            if s % 500 == 0:
                w.flush()
        w.set_meta("ended", {"at_s": seconds, "reason": "finished", "dirty": False})
    Path("/proc/self/clear_refs").write_text(
        "5"
    )  # proc(5): the peak begins anew, whatever other tests needed
    before = peak_kib()
    with StoreReader(tmp_path / "run.db") as reader:
        built = build_report(reader)
    assert "pass" == built["verdict"]
    assert seconds * 300 == built["load"]["ok"]
    assert names == list(built["load"]["classes"])
    assert pytest.approx(2.28, rel=0.01) == built["load"]["latency_ms"]["max"]
    assert pytest.approx(1.0, rel=0.01) == built["drift"]["p99_ratio"]
    assert peak_kib() - before < 8_000  # all windows at once need more
