"""Robust slopes, and a test that tells a trend from noise."""

from __future__ import annotations

import math
import random

import pytest

from soak.verdict.drift import POINTS, fold, mann_kendall, theil_sen, trend_of

DAY = [i * 5.0 for i in range(17_280)]


def test_a_leak_in_noise_is_found_with_its_slope():
    """A day of vitals, noise ten times the hourly growth: the slope is right within a few percent."""
    rng = random.Random(1)
    trend = trend_of([(t, 100e6 + t / 3600 * 200e3 + rng.gauss(0, 2e6)) for t in DAY])
    assert trend is not None
    assert trend.grows
    assert pytest.approx(200e3, rel=0.1) == trend.slope_per_h
    assert trend.slope_per_reload is None


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_not_significant(seed):
    """No trend: nothing to report."""
    rng = random.Random(seed)
    trend = trend_of([(t, 100e6 + rng.gauss(0, 2e6)) for t in DAY])
    assert trend is not None
    assert not trend.significant


def test_bumps_at_reloads_do_not_move_the_slope():
    """Old workers double the memory for 30 s every 5 min; that is no growth."""
    trend = trend_of([(t, 100.0 + (100.0 if t % 300 < 30 else 0.0)) for t in DAY])
    assert trend is not None
    assert (100.0, 100.0, 0.0) == (trend.first, trend.last, trend.slope_per_h)
    assert not trend.significant


def test_growth_per_reload():
    """A step of 3 at each of 20 reloads."""
    reloads = [500.0 * i for i in range(1, 21)]
    trend = trend_of(
        [(t, 50.0 + 3 * sum(r <= t for r in reloads)) for t in range(0, 10_500, 5)], reloads_s=reloads
    )
    assert trend is not None
    assert trend.slope_per_reload == pytest.approx(3.0, rel=0.02)


def test_the_warm_up_is_left_out():
    """Caches that fill in the first ten minutes are no drift."""
    trend = trend_of([(t, min(t, 600.0)) for t in DAY[:4000]], warm_up_s=600.0)
    assert trend is not None
    assert (600.0, 0.0) == (trend.first, trend.slope_per_h)


def test_shrinking_is_significant_but_does_not_grow():
    """Only upwards is a leak."""
    trend = trend_of([(float(t), 1000.0 - t) for t in range(100)])
    assert trend is not None
    assert trend.significant
    assert not trend.grows


def test_too_little_says_nothing():
    """Nothing at all is None; a few points are never significant."""
    assert trend_of([]) is None
    few = trend_of([(0.0, 1.0), (5.0, 2.0), (10.0, 3.0)])
    assert few is not None
    assert (False, 3600 / 5) == (few.significant, few.slope_per_h)
    one = trend_of([(0.0, 1.0)])
    assert one is not None
    assert 0.0 == one.slope_per_h


def test_folding_keeps_short_series_and_bounds_long_ones():
    """Medians over equal stretches of time, holes left out."""
    assert [(0.0, 1.0), (1.0, 2.0)] == fold([(0.0, 1.0), (1.0, 2.0)])
    folded = fold([(t, 7.0) for t in DAY])
    assert POINTS == len(folded)
    holes = fold([(t, 7.0) for t in DAY if not 20_000 < t < 60_000])
    assert POINTS / 2 < len(holes) < POINTS
    assert 1 == len(fold([(3.0, float(i)) for i in range(1000)]))


def test_mann_kendall_knows_ties_and_order():
    """All equal: no trend. In order: as unlikely as can be."""
    assert 1.0 == mann_kendall([5.0] * 50)
    assert mann_kendall([float(i) for i in range(50)]) < 1e-10
    assert mann_kendall([0.0] * 25 + [1.0] * 25) < 1e-6
    assert mann_kendall([0.0, 1.0] * 25) > 0.5


def test_theil_sen_skips_pairs_without_distance():
    """Two looks at the same instant have no slope between them."""
    assert 2.0 == theil_sen([(0.0, 0.0), (1.0, 2.0), (1.0, 2.0)])
    assert 0.0 == theil_sen([(1.0, 1.0), (1.0, 9.0)])


class TestGoesOn:
    def test_what_fills_up_and_stays_does_not_last(self):
        """Half of its time it grew, and the slope of the whole says so; what lasts is nothing."""
        found = trend_of([(float(t), float(min(t, 100))) for t in range(200)])
        assert found is not None
        assert found.slope_per_h > 0
        assert 0.0 == found.lasting_per_h
        assert (True, False) == (found.climbs, found.grows)

    def test_what_grows_to_the_end_lasts_and_climbs(self):
        """As fast in its second half as in all."""
        found = trend_of([(float(t), float(t // 10)) for t in range(200)])
        assert found is not None
        assert (True, True) == (found.grows, found.climbs)
        assert pytest.approx(360.0, rel=0.1) == found.lasting_per_h

    def test_a_few_points_have_no_second_half(self):
        """Then the slope of the whole is all there is."""
        found = trend_of([(float(t), float(t)) for t in range(10)])
        assert found is not None
        assert (None, True) == (found.late_per_h, found.climbs)
        assert found.slope_per_h == found.lasting_per_h

    def test_what_wanders_about_does_not_climb(self):
        """Its neighbours are alike, so the test of significance takes it for a trend; it goes down again and again."""
        rng = random.Random(10)
        walk, points = 30.0, []
        for t in range(1440):
            walk += rng.gauss(0, 0.06)
            points.append((t * 5.0, walk + math.sin(t / 60)))
        found = trend_of(points)
        assert found is not None
        assert found.significant
        assert (False, False) == (found.climbs, found.grows)
