"""Text, Markdown and evidence: what a person reads, from the dict alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chaos.model import FaultOutcome
from soak.errors import SoakError
from soak.model import Outcome, Unwell, Vital
from soak.report import build_evidence, build_report, render_evidence, render_markdown, render_text
from soak.report.markdown import escape
from soak.report.numbers import count, instant, length, measure, mebibytes, millis, percent, seconds
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
    assert "RSS flat · files flat · processes flat · old workers 1" in text
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


def test_drift_is_told_with_its_significance(path):
    """A leak, and noise."""
    r = SyntheticRun(seconds=200)
    r.vitals = [Vital(t, "proxy", 10**7 + t * 10**5, 1.0, 50 + t % 3, 3) for t in range(0, 200, 5)]
    text = text_of(r, path)
    assert re.search(r"RSS \+34\d\.\d MiB/h · files", text)


def test_markdown_has_the_same_figures_and_every_objective(path):
    """Tables that survive pipes and emphasis in what they hold."""
    with StoreReader(run().write(path)) as reader:
        built = build_report(reader)
    text = render_markdown(built)
    assert text.startswith("# PASS: nginx 1.31.3 · local lab")
    for o in (*built["objectives"], *built["not_judged"]):
        assert escape(o["name"]) in text
    for heading in ("## Objectives", "## Traffic", "## Faults", "## Certificates"):
        assert heading in text
    assert "| bb | 20.0s | 20.5s | 20.1s |" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert 1 == len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()})


def test_markdown_of_a_failed_dirty_run(path):
    """Reasons come first."""
    r = run()
    r.fail(50, Outcome.IDENTITY_MISMATCH)
    r.ended = {"at_s": 90, "reason": "finished", "dirty": True}
    with StoreReader(r.write(path)) as reader:
        text = render_markdown(build_report(reader))
    assert text.startswith("# FAIL")
    assert "**Dirty:**" in text
    assert text.index("- steady\\_failures: 1 requests lost") < text.index("## Objectives")
    assert "| mismatches | **fail** | 1 | 0 |" in text


def test_evidence_of_a_fault_shows_its_failed_requests_whole(path):
    """What is known of the fault, then a row for each request with all four instants."""
    with StoreReader(run().write(path)) as reader:
        text = render_evidence(build_evidence(reader, "#3"))
    assert text.startswith("backend-down #3 on b1: verified\n")
    assert "planned 30.0s · injected 30.0s · active 30.1s · reverted 35.0s · recovered 35.4s" in text
    assert "701 requests, 3 failed: 3 status_5xx" in text
    row = text.splitlines()[-1]
    for cell in (
        "e2",
        "r31",
        "status_5xx",
        "31.500000",
        "31.500100",
        "31.501000",
        "31.502000",
        "2.0 ms",
        "3.250 s",
        "502",
        "b1",
        "aa",
        "upstream said no",
    ):
        assert cell in row


def test_evidence_of_a_row_a_phase_and_a_quiet_fault(path):
    """Each selector finds its own; nothing kept is said, not left blank."""
    r = run()
    r.fail(60, Outcome.DNS)
    with StoreReader(r.write(path)) as reader:
        assert ["r31"] == [x["id"] for x in build_evidence(reader, "e2")["rows"]]
        assert ["r60"] == [x["id"] for x in build_evidence(reader, "steady")["rows"]]
        assert "no failed request is kept for 2" in render_evidence(build_evidence(reader, "2"))
        assert "evidence apply" in render_evidence(build_evidence(reader, "2"))
        skipped = render_evidence(build_evidence(reader, "4"))
    assert "reload #4 on proxy: skipped\n  busy\n" in skipped


def test_evidence_is_bounded_and_says_so(path):
    """A storm is not printed whole."""
    r = SyntheticRun()
    for s in range(10):
        r.fail(s, Outcome.DNS)
    with StoreReader(r.write(path)) as reader:
        found = build_evidence(reader, "steady", limit=3)
    assert (3, True) == (len(found["rows"]), found["more"])
    text = render_evidence({**found, "dropped": 1234})
    assert "only the first 3 rows are shown" in text
    assert "1,234 failed requests of this run were counted but not kept" in text


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("99", "there is no fault 99 in this run; this run has faults 1 to 4"),
        ("e99", "no evidence row 'e99'"),
        ("x", "'x' is no evidence; give a fault id like 3"),
    ],
)
def test_unknown_evidence_is_one_sentence(path, selector, words):
    """With what there is."""
    with StoreReader(run().write(path)) as reader, pytest.raises(SoakError, match=re.escape(words)):
        build_evidence(reader, selector)


def test_a_run_without_faults_says_so(path):
    """No range to name."""
    with (
        StoreReader(SyntheticRun().write(path)) as reader,
        pytest.raises(SoakError, match="this run has no faults"),
    ):
        build_evidence(reader, "1")


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("86,398,211", count(86_398_211)),
        ("99.998 %", percent(86_398_211 / 86_400_000)),
        ("99.999 %", percent(0.9999999)),
        ("100 %", percent(1.0)),
        ("0.00021 %", percent(181 / 86_398_211)),
        ("0 %", percent(0.0)),
        ("12.5 %", percent(0.125)),
        ("0.42 ms", millis(0.42)),
        ("9.8 ms", millis(9.8)),
        ("412 ms", millis(412)),
        ("1.20 s", millis(1200)),
        ("0.08 s", seconds(0.08)),
        ("2.2 s", seconds(2.2)),
        ("31 s", seconds(31.4)),
        ("24 h", length(86_400)),
        ("1 h 30 min", length(5400)),
        ("45 s", length(45)),
        ("0 s", length(0)),
        ("9h20m00s", instant(33_600)),
        ("84 MiB", mebibytes(84 * 2**20)),
        ("0.3 MiB", mebibytes(0.3 * 2**20)),
        ("2 min", measure(120, "s")),
        ("0.05 %", measure(0.0005, "share")),
        ("1.2", measure(1.2, "ratio")),
        ("-", measure(None, "s")),
    ],
)
def test_numbers_are_spelled_for_people(expected, got):
    """Short, with their unit, and never rounded to a whole that they are not."""
    assert expected == got


@pytest.mark.parametrize("spell", [count, percent, millis, seconds, length, instant, mebibytes])
def test_what_is_unknown_is_a_dash(spell):
    """Never a zero."""
    assert "-" == spell(None)
