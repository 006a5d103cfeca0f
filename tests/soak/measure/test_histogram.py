"""The histogram: at most 1 % off, exact at its maximum, merged without loss, read back from blob and wire as it was."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from soak.measure.histogram import DenseHistogram, Histogram, bucket_low_ns, bucket_of

durations = st.one_of(
    st.integers(0, 200_000),
    st.integers(0, 150 * 10**9),
    st.integers(10_000, 2_000_000),
    st.integers(0, 2**50),
)
samples = st.lists(durations, max_size=200)


def of(values: list[int]) -> Histogram:
    h = Histogram()
    for v in values:
        h.add(v)
    return h


def same(a: Histogram, b: Histogram) -> bool:
    return (a.counts, a.count, a.sum_ns, a.max_ns) == (b.counts, b.count, b.sum_ns, b.max_ns)


@given(st.lists(durations, min_size=1, max_size=200), st.floats(0.001, 1.0))
def test_a_quantile_is_within_one_percent_of_the_exact_one(values, q):
    """Above the 8 us below which buckets are 64 ns wide; never above the maximum."""
    exact = sorted(values)[max(0, math.ceil(q * len(values)) - 1)]
    got = of(values).quantile_ns(q)
    assert abs(got - exact) <= max(0.01 * exact, 64)
    assert got <= max(values)


@given(durations)
def test_a_duration_lies_in_its_bucket(ns):
    """Buckets touch and are at most 1 % wide."""
    low, high = bucket_low_ns(bucket_of(ns)), bucket_low_ns(bucket_of(ns) + 1)
    assert low <= ns < high
    assert high - low <= max(0.01 * low, 64)


@given(samples, samples, samples)
def test_merging_is_associative_commutative_and_loses_nothing(a, b, c):
    """In whatever order workers and seconds are merged, the result is that of all samples."""
    left, right = of(a), of(b)
    left.merge(of(b))
    left.merge(of(c))
    right.merge(of(c))
    other = of(a)
    other.merge(right)
    assert same(of(a + b + c), left)
    assert same(left, other)
    backwards = of(c)
    backwards.merge(of(b))
    backwards.merge(of(a))
    assert same(left, backwards)


@given(samples)
def test_blob_and_wire_round_trip(values):
    """The store's and the pipe's forms read back exactly."""
    h = of(values)
    assert same(h, Histogram.from_blob(h.to_blob()))
    assert same(h, Histogram.from_wire(json.loads(json.dumps(h.to_wire()))))


@given(st.lists(durations, min_size=1, max_size=50), durations)
def test_count_at_most_counts_whole_buckets(values, bound):
    """Never fewer than the exact count, and never a sample more than 1 % above the bound."""
    got = of(values).count_at_most(bound)
    assert sum(v <= bound for v in values) <= got <= sum(v <= max(bound * 1.01, bound + 64) for v in values)


def test_an_empty_one_answers_zero():
    """No samples: every quantile is 0, and it survives the blob."""
    h = Histogram.from_blob(Histogram().to_blob())
    assert (0, 0, 0) == (h.quantile_ns(0.5), h.quantile_ns(1.0), h.count)


def test_the_maximum_is_exact_and_negative_durations_count_as_zero():
    """The clock's worst case does not make a negative bucket."""
    h = of([123_456_789, -5])
    assert 123_456_789 == h.quantile_ns(1.0)
    assert 1 == h.counts[0]


def test_many_equal_samples_are_one_bucket():
    """Adding n at once is adding one n times."""
    h = Histogram()
    h.add(1_000_000, 1000)
    assert same(of([1_000_000] * 1000), h)
    assert 1 == len(h.counts)


def test_a_full_second_is_a_small_blob():
    """A day of them must fit: 850 samples over three octaves stay below 700 bytes."""
    h = of([300_000 + i * 2_500 for i in range(850)])
    assert len(h.to_blob()) < 700


@given(samples, samples, st.floats(0.0, 1.0))
def test_a_dense_one_is_the_same_in_a_fixed_table(a, b, q):
    """Whatever was added or merged, also durations past its table; read back from blob and wire alike."""
    dense = DenseHistogram()
    for value in a:
        dense.add(value)
    dense.merge(of(b))
    assert same(of(a + b), dense)
    assert of(a + b).quantile_ns(q) == dense.quantile_ns(q)
    assert of(a + b).count_at_most(10**6) == dense.count_at_most(10**6)
    assert of(a + b).to_blob() == dense.to_blob()
    assert same(dense, DenseHistogram.from_blob(dense.to_blob()))
    assert same(dense, DenseHistogram.from_wire(json.loads(json.dumps(dense.to_wire()))))


def test_a_dense_one_takes_no_more_memory_later():
    """All of it is there before the first sample, up to the longest timeouts."""
    dense = DenseHistogram()
    before = dense.__sizeof__(), len(dense._cells)
    for exponent in range(2700):
        dense.add(int(1.01**exponent) % (200 * 10**9))
    assert before == (dense.__sizeof__(), len(dense._cells))
    assert 2700 == dense.count
