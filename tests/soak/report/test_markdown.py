"""The report as Markdown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from soak.model import Outcome
from soak.report import (
    build_report,
    render_markdown,
)
from soak.report.markdown import escape
from soak.store import StoreReader
from tests.soak.report.test_build import run
from tests.soak.synthetic import SyntheticRun


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


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


def test_what_the_origins_counted_is_told(tmp_path):
    """As in the text."""
    r = SyntheticRun(seconds=10)
    r.origins = {"b1": {"requests": 400}}
    with StoreReader(r.write(tmp_path / "run.db")) as reader:
        assert "**Backends:** b1 100 % of 400 requests" in render_markdown(build_report(reader))
