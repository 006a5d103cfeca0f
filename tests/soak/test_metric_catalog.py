"""The boundaries of histograms."""

import itertools

from soak.metric_catalog import CATALOG, LATENCY_BOUNDS_S, SPECS, ladder


def test_ladder_has_both_ends_and_no_gap_above_a_quarter():
    """Preferred numbers, twelve a decade, from the lower to the upper end."""
    bounds = ladder(0.001, 1.0)

    assert (0.001, 1.0, 37) == (bounds[0], bounds[-1], len(bounds))
    assert max(b / a for a, b in itertools.pairwise(bounds)) <= 1.2501


def test_objectives_are_boundaries():
    """A limit that somebody judges by is resolved exactly, among the others and sorted."""
    bounds = ladder(0.001, 1.0, [0.25, 0.001])

    assert 0.25 in bounds
    assert sorted(set(bounds)) == list(bounds)


def test_latency_is_resolved_from_half_a_millisecond_to_ten_seconds():
    """The range that OBSERVE asks for."""
    assert LATENCY_BOUNDS_S[0] <= 0.0005
    assert 10.0 == LATENCY_BOUNDS_S[-1]
    assert {0.001, 0.01, 0.1, 1.0} < set(LATENCY_BOUNDS_S)


def test_names_are_given_once():
    """Two families of one name could not be told apart."""
    assert len(CATALOG) == len(SPECS)
