"""Raw results as tables, and tables in a document."""

import json
from pathlib import Path

import pytest

from benchmarks.load.compare import Entry
from benchmarks.load.cost import Cost
from benchmarks.load.tables import RENDER, between, fill, http1, machine, scale, targets

ROOT = Path(__file__).parents[2]
LAG = {"p50": 0.1, "p99": 0.2, "p999": 0.3, "max": 0.4}
SOAK = {"scheduled": 1000, "missed": 2, "dropped": 1, "lag_ms": LAG}


def entry(name, cpu_us, **changes):
    costs = [Cost(1000, c, 0.5, 10_000.0, 0.1) for c in cpu_us]
    return Entry(name, "open", costs=costs, **changes).to_json()


def result(**changes):
    entries = [
        entry("soak", [20.0, 22.0, 24.0], details=[SOAK]),
        entry("hey", [40.0, 44.0, 48.0]),
        entry("k6", [], missing="not installed (PATH only)"),
        entry("wrk", [10.0, 11.0, 12.0], failures=["wrk ended with 1"]),
        entry("soak --coalesce 0", [11.0, 11.0, 11.0], details=[SOAK]),
        entry("soak at 50,000", [14.0, 15.0, 16.0]),
    ]
    even = {"soak": {"milliseconds": 1000, "requests": 10_000, "empty_share": 0.01, "most": 14}}
    return {"rate": 10_000, "entries": entries, "evenness": even, **changes}


def test_ratios_stand_beside_their_targets():
    """Medians; a limit that is missed says so; what was not measured is not called met."""
    text = http1(result())
    assert "| soak / wrk (wrk saturated) | 2.00 | 2 | met |" in text
    assert "| soak / hey | 0.50 | 0.5 | met |" in text
    assert "| soak / k6 | - | 0.35 | not measured here |" in text
    assert "| soak | open | 22.0 (20.0 to 24.0) | - | 10,000 | 1% | 14 |  |" in text
    assert "1.36 times wrk" in text
    assert "3 of 1,000 slots were not sent" in text
    assert "`soak --coalesce 0`: 1.00 times wrk, 0.25 times hey, at a lag p50 of 0.100 ms." in text


def test_who_is_missing_or_failed_is_in_the_table():
    """With the reason."""
    text = http1(result())
    assert "| k6 | open | - | - | - | - | - | not installed (PATH only) |" in text
    assert "1 of its runs failed: wrk ended with 1" in text


def test_a_missed_limit_is_loud():
    """Where we lose, it says so."""
    assert "| x | 3.00 | 2 | **missed** |" in targets([("x", 3.0, 2.0)])


def test_scale_shows_the_best_try_of_each_rate():
    """And both cores, so that a reader sees who was full."""
    tries = [
        {"rate": r, "held": h, "missed": m, "dropped": 0, "worker_cpu_share": 0.5, "server_cpu_share": 0.25}
        | {"lag_ms": LAG, "cpu_us": 20.0}
        for r, h, m in [(5000, True, 0), (10_000, False, 9), (10_000, False, 5)]
    ]
    text = scale({"held": 5000, "tries": tries})
    assert "| 10,000 | 0 of 2 | 5 | 50% | 25% | - | 0.10 / 0.20 |" in text
    assert "Held without a lost slot: 5,000 req/s (target 25,000: **missed**)" in text


def test_a_section_is_replaced_between_its_markers():
    """And nothing else; a document without markers is refused."""
    text = "a\n<!-- bench:x -->\nold\n<!-- /bench:x -->\nb\n"
    assert "a\n<!-- bench:x -->\nnew\n<!-- /bench:x -->\nb\n" == between(text, "x", "new")
    with pytest.raises(ValueError, match="bench:y"):
        between(text, "y", "new")


def test_the_document_shows_the_committed_results():
    """Every table has its place, and what stands there is what the sample says."""
    document = (ROOT / "docs" / "PERFORMANCE.md").read_text()
    sample = json.loads((ROOT / "benchmarks" / "results" / "sample.json").read_text())
    assert set(RENDER) == set(sample["rows"])
    assert document == fill(document, sample)
    assert machine(sample["machine"]) in document
