"""The failed requests behind a verdict."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from soak.errors import SoakError
from soak.model import Outcome
from soak.report import (
    build_evidence,
    render_evidence,
)
from soak.store import StoreReader
from tests.soak.report.test_build import run
from tests.soak.synthetic import SyntheticRun


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


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
