"""The report for a terminal: what a person reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chaos.model import FaultOutcome
from soak.model import Outcome, Unwell
from soak.report import (
    build_report,
    render_text,
)
from soak.report.text import grid
from soak.store import StoreReader
from tests.soak.report.test_build import run
from tests.soak.synthetic import SyntheticRun, record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


def text_of(r: SyntheticRun, path: Path) -> str:
    with StoreReader(r.write(path)) as reader:
        return render_text(build_report(reader))


def test_a_passed_run_reads_like_the_design(path):
    """The verdict and the run first, then the figures, then each kind of fault in a row."""
    text = text_of(run(), path)
    lines = text.splitlines()
    assert (
        "PASS  nginx 1.31.3 · local lab · 100 req/s for 1 min 30 s · seed 7 · run 2026-12-01T08-00-00-nginx"
        == lines[0]
    )
    assert "  rate held      100 %      9,000 of 9,000 sent · 0 dropped · 0 missed" == lines[2]
    assert "  failures       0.056 %    5: 3 status_5xx, 2 stale_reuse" == lines[3]
    assert re.fullmatch(r"  steady state   0 failures in 7,\d00 requests", lines[4])
    assert lines[5].startswith("  latency        p50 1.0 ms · p99 1.0 ms")
    assert lines[5].endswith("lag p99 0.10 ms")
    table = [
        line.split()
        for line in lines
        if line.strip().startswith(("reload ", "backend-down ", "cert-rotate "))
    ]
    assert [
        "reload",
        "1",
        "(+1",
        "skipped)",
        "1",
        "2",
        "0.10",
        "s",
        "/",
        "0.10",
        "s",
        "#1",
        "at",
        "10.0s:",
        "2",
        "stale_reuse",
    ] == table[0]
    assert [
        "backend-down",
        "1",
        "1",
        "3",
        "0.90",
        "s",
        "/",
        "0.90",
        "s",
        "#3",
        "at",
        "30.0s:",
        "3",
        "status_5xx",
    ] == table[2]
    assert "-" == table[1][-1]
    assert "RSS flat · files flat · processes flat · old workers 0" in text
    assert "494 µs CPU a request" in text
    assert "p99_drift: the run lasted 1m30s" in text


def test_a_failed_run_says_first_what_failed_when_where_and_where_to_look(path):
    """Before any figure."""
    r = run()
    r.add_fault(
        record(
            5,
            "reload",
            70.0,
            active_s=None,
            outcome=FaultOutcome.FAILED,
            reason="generation 4 was never seen",
        )
    )
    r.changes[5] = {"scheduled": 150, "missed": 50}
    lines = text_of(r, path).splitlines()
    assert lines[0].startswith("FAIL  nginx")
    assert "  FAILED   faults_verified at 1m10s: reload #5 at 1m10s: generation 4 was never seen" == lines[2]
    assert "           where to look: soak report --evidence 5" == lines[3]
    assert lines[4].startswith("  INVALID  rate_held: ")
    assert lines.index("") < 2
    assert any("#5 at 1m10s: failed" in line for line in lines)


def test_a_dirty_run_and_unwell_seconds_are_told(path):
    """Neither is hidden behind a pass."""
    r = SyntheticRun(
        seconds=200, ended={"at_s": 150, "reason": "stopped", "dirty": True}, plan={"length": 400}
    )
    r.unwell = [Unwell(5.0, 6.0, "late")]
    r.fail(5, Outcome.RESPONSE_TIMEOUT, 4)
    text = text_of(r, path)
    assert "DIRTY    a fault could not be undone" in text
    assert "for 2 min 30 s of 6 min 40 s" in text
    assert "unwell in 1 s (0.6667 %); 4 failures in them set apart" in text


def test_columns_are_aligned():
    """Figures to the right, words to the left, nothing trailing."""
    assert ["kind   n  x", "a     10", "bbb    1  y"] == grid(
        ("kind", "n", "x"), [("a", "10", ""), ("bbb", "1", "y")], right=["n"]
    )


def test_several_classes_have_a_table_of_their_own(path):
    """One class is what the summary says already."""
    r = SyntheticRun(seconds=10)
    with StoreReader(r.write(path)) as reader:
        built = build_report(reader)
    assert "class" not in render_text(built)
    built["load"]["classes"]["other"] = built["load"]["classes"]["get"]
    lines = render_text(built).splitlines()
    assert "  class   sent  failed     p50     p99   p99.9     max" in lines
    assert "  other  1,000       0  1.0 ms  1.0 ms  1.0 ms  1.0 ms" in lines


def test_what_the_origins_counted_is_beside_the_drift(path):
    """A line for the backends, and one for the cache where there is one."""
    r = SyntheticRun(seconds=10)
    r.origins = {"b1": {"requests": 400}}
    assert "  backends       b1 100 % of 400 requests" in text_of(r, path).splitlines()
