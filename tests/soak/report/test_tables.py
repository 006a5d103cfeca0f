"""The cells that both readable reports share."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chaos.model import FaultOutcome
from soak.model import Outcome, Vital
from soak.report import (
    build_report,
)
from soak.report.tables import (
    class_rows,
    drift,
    failures,
    fault_rows,
    headline,
    itself,
    origins,
    summary,
)
from soak.store import StoreReader
from tests.soak.report.test_build import run
from tests.soak.synthetic import SyntheticRun, record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


def test_drift_is_told_with_its_significance(path):
    """A leak, and noise, of a run long enough for a slope."""
    r = SyntheticRun(seconds=3600)
    r.vitals = [
        Vital(t, "proxy", 10**7 + t * 10**5, 1.0, 50 if t < 1800 or t % 15 else 51, 3)
        for t in range(0, 3600, 5)
    ]
    with StoreReader(r.write(path)) as reader:
        built = build_report(reader)
    assert re.search(r"RSS \+34\d\.\d MiB/h · files flat · processes flat", drift(built))
    built["vitals"]["fds"] |= {"last": 53.0, "slope_per_h": 1.25, "significant": False}
    assert "files +1.2/h, not significant" in drift(built)


def test_a_short_run_has_no_slope_but_a_first_and_a_last(path):
    """Extrapolating minutes to hours would tell tales."""
    r = SyntheticRun(seconds=200)
    r.vitals = [Vital(t, "proxy", 2**24 + t * 2**16, 1.0, 50 + t // 20, 3) for t in range(0, 200, 5)]
    with StoreReader(r.write(path)) as reader:
        text = drift(build_report(reader))
    assert re.search(r"RSS 1\d MiB to 2\d MiB · files 5\d to 5\d · processes flat", text)


def test_a_kind_that_was_not_verified_names_that_instance_first(path):
    """Not the one that lost most."""
    r = run()
    r.add_fault(record(5, "reload", 70.0, active_s=None, outcome=FaultOutcome.FAILED, reason="no"))
    with StoreReader(r.write(path)) as reader:
        built = build_report(reader)
    reload = next(row for row in fault_rows(built) if row[0] == "reload")
    assert ("reload", "2 (+1 skipped)", "1", "2", "0.10 s / 0.10 s", "#5 at 1m10s: failed") == reload


def test_what_was_not_observed_is_said(tmp_path):
    """A run that was killed at once has neither figures nor a proxy."""
    with StoreReader(SyntheticRun(seconds=0, plan={"length": 60}).write(tmp_path / "run.db")) as reader:
        built = build_report(reader)
    assert "not observed" == drift(built)
    assert ("rate held", "-") == summary(built)[0][:2]
    assert "0" == failures(built["load"])
    assert "for 0 s of 1 min" in headline(built)
    assert "0.0 MiB" in itself(built)


@pytest.mark.parametrize(
    ("grown_bytes", "said"), [(0, "flat"), (200_000, "flat"), (5 * 1024 * 1024, "(worker-0 +5.0 MiB)")]
)
def test_soaks_own_memory_is_flat_or_its_growth_is_named(tmp_path, grown_bytes, said):
    """After the first minute, of the daemon and of each worker, from their vitals."""
    seconds = 400
    r = SyntheticRun(seconds=seconds, plan={"length": seconds})
    for at_s in range(0, seconds, 5):
        late = grown_bytes if at_s > seconds / 2 else 0
        r.vitals += [
            Vital(float(at_s), "worker-0", 50_000_000 + late, at_s * 0.1, 20, 1),
            Vital(float(at_s), "daemon", 60_000_000, at_s * 0.01, 20, 1),
        ]
    with StoreReader(r.write(tmp_path / "run.db")) as reader:
        built = build_report(reader)
    assert {"daemon", "worker-0"} == set(built["self"]["processes"])
    assert 60_000_000 == built["self"]["processes"]["daemon"]["rss_bytes"]["last"]
    assert said in itself(built)
    assert built["self"]["store_bytes"] > 0


def test_each_class_has_a_row(path):
    """What was sent, what failed and how, how long it took."""
    r = SyntheticRun(seconds=10)
    r.fail(3, Outcome.STATUS_5XX, 2)
    with StoreReader(r.write(path)) as reader:
        rows = class_rows(build_report(reader))
    assert [("get", "1,000", "2: 2 status_5xx", "1.0 ms", "1.0 ms", "1.0 ms", "1.0 ms")] == rows


def test_backends_and_cache_are_told_when_they_are_known(path):
    """A backend that was only seen in answers, and a class that is never cached, have no figure here."""
    r = SyntheticRun(seconds=10)
    with StoreReader(r.write(path)) as reader:
        built = build_report(reader)
    assert [] == origins(built)
    counted = {"requests": 300, "share": 0.75, "answers": 10, "answers_share": 0.5, "duplicates": 0}
    built["origins"] = {
        "b1": counted,
        "b2": counted | {"requests": 100, "share": 0.25},
        "b3": {"requests": None},
    }
    built["cache"] = {"requests": 1000, "origin_answers": 150, "revalidated": 30, "hit_ratio": 0.85}
    assert [
        ("backends", "b1 75 % · b2 25 % of 400 requests"),
        ("cache", "hit ratio 85 %: 150 of 1,000 requests reached a backend, 30 to revalidate"),
    ] == origins(built)


def test_a_reload_of_another_kind_has_a_row_of_its_own(path):
    """What it replaced decides what it may lose; a full one is what the word means."""
    r = run()
    with StoreReader(r.write(path)) as reader:
        built = build_report(reader)
    reload = next(f for f in built["faults"] if f["kind"] == "reload")
    built["faults"] = [{**reload, "reload": kind} for kind in ("full", "routing", None, "routing")]
    assert [("reload", "2"), ("reload (routing)", "2")] == [row[:2] for row in fault_rows(built)]
