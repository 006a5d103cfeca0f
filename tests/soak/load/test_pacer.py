"""Slots: exact, without drift, and split among workers without a gap or a double."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soak.load.pacer import (
    PoissonPacer,
    UniformPacer,
    connections_before,
    exact_rate,
    patience_ns,
    skip_to,
    slots_due_before,
)

NS = 1_000_000_000
T0 = 123_456_789_012
rates = st.floats(min_value=0.01, max_value=100_000, allow_nan=False)


def take(pacer: UniformPacer | PoissonPacer, n: int) -> list[int]:
    out = []
    for _ in range(n):
        out.append(pacer.due_ns)
        pacer.advance()
    return out


@given(rate=rates, workers=st.integers(1, 7), n=st.integers(1, 60))
def test_workers_together_send_exactly_the_slots_of_one(rate: float, workers: int, n: int) -> None:
    """The union over N workers, in order, is the sequence of a single worker."""
    alone = take(UniformPacer(rate, T0), n * workers)
    shares = [take(UniformPacer(rate, T0, worker=k, workers=workers), n) for k in range(workers)]
    assert alone == [shares[i % workers][i // workers] for i in range(n * workers)]


@given(rate=rates, seed=st.integers(0, 2**32), workers=st.integers(1, 5))
def test_poisson_workers_together_send_exactly_the_slots_of_one(rate: float, seed: int, workers: int) -> None:
    """All workers draw the same random sequence and each keeps its own share."""
    alone = take(PoissonPacer(rate, T0, seed), 20 * workers)
    shares = [take(PoissonPacer(rate, T0, seed, worker=k, workers=workers), 20) for k in range(workers)]
    assert alone == [shares[i % workers][i // workers] for i in range(20 * workers)]


def test_a_day_of_slots_does_not_drift() -> None:
    """Slot 86,400,000 of 1,000 req/s is due exactly 24 h after slot 0."""
    pacer = UniformPacer(1000, T0, worker=86_400_000, workers=1)
    assert T0 + 86_400 * NS == pacer.due_ns
    pacer.advance()
    assert T0 + 86_400 * NS + 1_000_000 == pacer.due_ns


@given(rate=rates, elapsed=st.integers(-5, 20 * NS))
def test_slots_due_before_counts_what_the_pacer_makes(rate: float, elapsed: int) -> None:
    """The last counted slot is due before the instant and the next one is not."""
    n = slots_due_before(rate, elapsed)
    if n:
        assert UniformPacer(rate, 0, worker=n - 1).due_ns < elapsed
    assert UniformPacer(rate, 0, worker=n).due_ns >= max(elapsed, 0)


@pytest.mark.parametrize(
    ("rate", "seconds", "slots"),
    [(1000, 1, 1000), (850, 2, 1700), (1000 * 0.05, 60, 3000), (1 / 3, 6, 2), (7, 1, 7), (1000, 0, 0)],
)
def test_a_rate_gives_the_slots_that_a_person_would_count(rate: float, seconds: float, slots: int) -> None:
    """Whole seconds hold rate x seconds slots, [0, end)."""
    assert slots == slots_due_before(rate, int(seconds * NS))


def test_a_share_of_the_rate_is_exact() -> None:
    """0.85 of 1,000 is 850 and nothing else, whatever the binary fraction says; a tiny rate is not zero."""
    assert Fraction(850) == exact_rate(1000 * 0.85)
    assert Fraction(1, 1_000_000) == exact_rate(1e-9)


def test_poisson_is_seeded_and_has_the_mean_of_its_rate() -> None:
    """The same seed gives the same slots, another one gives others, and the mean gap is 1/rate."""
    one, same, other = (take(PoissonPacer(1000, 0, seed), 20_000) for seed in (7, 7, 8))
    assert one == same
    assert one != other
    assert one == sorted(one)
    assert 0.97e6 < one[-1] / len(one) < 1.03e6


@pytest.mark.parametrize("pacer", [UniformPacer(700, T0, worker=1, workers=3), PoissonPacer(700, T0, 3)])
def test_skip_to_passes_over_the_slots_before_an_instant(pacer: UniformPacer | PoissonPacer) -> None:
    """The next slot is the first at or after the instant, and still this worker's own."""
    skip_to(pacer, T0 + 5 * NS)
    assert T0 + 5 * NS <= pacer.due_ns < T0 + 5 * NS + NS // 10
    if isinstance(pacer, UniformPacer):
        assert 1 == pacer.index % 3


def test_skip_to_an_instant_in_the_past_changes_nothing() -> None:
    """Slot 0 stays the next one."""
    pacer = UniformPacer(10, T0)
    skip_to(pacer, T0)
    assert (0, T0) == (pacer.index, pacer.due_ns)


@pytest.mark.parametrize(
    ("rate", "waits"), [(1, 0), (1000, 0), (9_999, 0), (10_000, 1_000_000), (40_000, 250_000)]
)
def test_only_a_crowd_waits_for_company(rate: float, waits: int) -> None:
    """At the rates people soak with, every slot is sent at its own instant."""
    assert waits == patience_ns(rate)


def test_who_asks_for_company_waits_for_it_at_every_rate() -> None:
    """And who asks for none never waits."""
    assert (1_000_000, 0) == (patience_ns(1000, 0.001), patience_ns(40_000, 0.0))


@pytest.mark.parametrize(("rate", "n"), [(1, 0), (4_999, 0), (5_000, 25), (25_000, 125), (1e6, 256)])
def test_connections_are_made_before_the_first_slot_only_at_high_rates(rate: float, n: int) -> None:
    """Where slots follow each other faster than connections are made."""
    assert n == connections_before(rate)
