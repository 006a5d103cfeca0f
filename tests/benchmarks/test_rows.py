"""The search for the highest rate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load.rows import ROWS, highest
from benchmarks.load.tables import RENDER


@given(limit=st.integers(5_000, 80_000))
def test_the_highest_rate_is_found_within_a_step(limit):
    """Whatever it is."""
    found = highest(lambda rate: rate <= limit, start=5_000, top=80_000, step=1_000)
    assert found <= limit < found + 2_000


@pytest.mark.parametrize(("limit", "found"), [(4_999, 0), (10**9, 80_000)])
def test_at_the_ends(limit, found):
    """Nothing holds; everything holds."""
    assert found == highest(lambda rate: rate <= limit, start=5_000, top=80_000, step=1_000)


def test_every_table_can_be_printed():
    """What is measured has a form."""
    assert set(ROWS) == set(RENDER)
