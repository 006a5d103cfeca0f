"""The simulated day: everything that takes a window takes it, and the arithmetic of slopes."""

import pytest

from benchmarks.load.day import simulate, slope_per_hour


def test_a_few_minutes_go_through_everything(tmp_path):
    """Windows, scrapes, store, report."""
    found = simulate(240, 3, tmp_path)
    assert 240 * 3 * 200 == found["requests"]
    assert "pass" == found["verdict"]
    assert 4 == len(found["rss_bytes"])
    assert found["store_bytes"] > 0
    assert 0 < found["scrape_s_median"] <= found["scrape_s_max"]


def test_slope():
    """Two bytes a sample, a sample every half hour: four bytes an hour."""
    assert pytest.approx(4.0) == slope_per_hour([10.0, 12.0, 14.0, 16.0], 1800)
    assert 0.0 == slope_per_hour([1.0], 60)
