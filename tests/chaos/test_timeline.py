"""The timeline: the same seed gives the same one, nothing overlaps, and the missions' counts hold."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.faults.catalog import registry
from chaos.timeline import EARLIEST_S, SETTLE_S, Series, Timeline, _Slots, plan_timeline

BACKENDS = ("b1", "b2", "b3")
QUICK = (Series("reload", 20), Series("backend-down", 40, 10, BACKENDS), Series("cert-rotate", 30))
DAY = (Series("reload", 300), Series("backend-down", 900, 60, BACKENDS), Series("cert-rotate", 1800))

series = st.builds(
    lambda kind, every, hold, targets, jitter: Series(
        kind, every, every * hold, targets, None, every * jitter
    ),
    st.sampled_from(sorted(registry())),
    st.floats(1, 500).map(lambda s: round(s, 1)),
    st.floats(0, 0.95),
    st.sampled_from([(), ("b1",), BACKENDS]),
    st.sampled_from([0.0, 0.1, 0.5]),
)
plans = st.tuples(
    st.lists(series, min_size=1, max_size=4), st.floats(5, 4000), st.integers(0, 2**31), st.floats(0, 30)
)


def made(plan: tuple[list[Series], float, int, float]) -> Timeline:
    all_series, length_s, seed, gap_s = plan
    return plan_timeline(all_series, length_s=length_s, seed=seed, gap_s=gap_s)


def counts(timeline: Timeline) -> Counter[str]:
    return Counter(p.request.kind for p in timeline.planned)


@pytest.mark.parametrize("seed", range(20))
def test_the_quick_preset_holds_what_it_promises(seed: int):
    """Two minutes hold at least 5 reloads, 2 lost backends and 3 rotations, and nothing is skipped."""
    timeline = plan_timeline(QUICK, length_s=120, seed=seed, gap_s=4)
    assert counts(timeline) == {"reload": 5, "backend-down": 2, "cert-rotate": 3}
    assert timeline.skipped == ()


@pytest.mark.parametrize("seed", range(5))
def test_the_day_holds_what_it_promises(seed: int):
    """24 hours hold 287 reloads, 95 lost backends and 47 rotations: one less than periods, none at the very end."""
    timeline = plan_timeline(DAY, length_s=86_400, seed=seed, gap_s=4)
    assert counts(timeline) == {"reload": 287, "backend-down": 95, "cert-rotate": 47}
    assert timeline.skipped == ()


def test_the_rarest_series_keep_their_instants():
    """What is rare stays on its period; what is frequent makes way, and says from where."""
    timeline = plan_timeline(DAY, length_s=86_400, seed=1, gap_s=4)
    moved = [p for p in timeline.planned if p.moved_from_s is not None]
    assert all(p.moved_from_s is None for p in timeline.planned if p.request.kind == "cert-rotate")
    assert moved
    at_half_an_hour = {
        p.request.kind: (p.planned_s, p.moved_from_s) for p in timeline.planned if 1790 <= p.planned_s <= 1810
    }
    assert at_half_an_hour == {
        "cert-rotate": (1800, None),
        "backend-down": (1805, 1800),
        "reload": (1795, 1800),
    }


@given(plans)
def test_the_same_seed_gives_the_same_timeline(plan: tuple[list[Series], float, int, float]):
    """Nothing but the arguments decides."""
    assert made(plan) == made(plan)


@given(plans)
def test_nothing_overlaps_and_the_gap_is_kept(plan: tuple[list[Series], float, int, float]):
    """Between the end of a hold and the next start lie the gap and the settling time."""
    for one, following in pairwise(made(plan).planned):
        assert following.planned_s >= one.end_s + plan[3] + SETTLE_S - 0.002


@given(plans)
def test_nothing_begins_too_early_or_ends_too_late(plan: tuple[list[Series], float, int, float]):
    """Each fault begins after the first two seconds and ends a margin before the end of the run."""
    timeline = made(plan)
    for planned in timeline.planned:
        assert planned.planned_s >= EARLIEST_S
        assert planned.end_s <= timeline.length_s - timeline.end_margin_s + 0.001


@given(plans)
def test_a_fault_moves_at_most_half_its_period_and_holds_inside_it(
    plan: tuple[list[Series], float, int, float],
):
    """Moving never turns one period's fault into another's."""
    every = {(s.kind, s.hold_s): s.every_s for s in sorted(plan[0], key=lambda s: s.every_s)}
    for planned in made(plan).planned:
        period_s = every[planned.request.kind, planned.request.hold_s]
        assert planned.request.hold_s < period_s
        if planned.moved_from_s is not None:
            assert 0 < abs(planned.planned_s - planned.moved_from_s) <= period_s / 2 + 0.001


@given(plans)
def test_every_due_instant_is_planned_or_skipped_with_a_reason(plan: tuple[list[Series], float, int, float]):
    """Nothing vanishes."""
    all_series, length_s, _, _ = plan
    due = sum(
        1
        for s in all_series
        for n in range(1, int(length_s / s.every_s) + 2)
        if s.every_s + (n - 1) * s.every_s < length_s
    )
    timeline = made(plan)
    assert due == len(timeline.planned) + len(timeline.skipped)
    assert all(s.reason for s in timeline.skipped)


def test_backends_are_taken_in_turn_from_a_seeded_start():
    """Each seed starts somewhere, and then the order is kept."""
    starts = set()
    for seed in range(20):
        timeline = plan_timeline([Series("backend-down", 60, 5, BACKENDS)], length_s=400, seed=seed)
        targets = [p.request.target for p in timeline.planned]
        starts.add(targets[0])
        first = BACKENDS.index(str(targets[0]))
        assert targets == [BACKENDS[(first + n) % 3] for n in range(len(targets))]
    assert starts == set(BACKENDS)


def test_the_first_instant_can_be_told():
    """``first`` replaces one period after the start."""
    timeline = plan_timeline([Series("reload", 60, first_s=5)], length_s=100, seed=1)
    assert [p.planned_s for p in timeline.planned] == [5, 65]


def test_jitter_moves_every_instant_by_the_seed():
    """Two seeds jitter differently, both within the limit, and a jittered instant counts as its own, not as moved."""
    a, b = (
        plan_timeline([Series("reload", 60, jitter_s=10)], length_s=1000, seed=seed).planned
        for seed in (1, 2)
    )
    assert [p.planned_s for p in a] != [p.planned_s for p in b]
    assert all(abs(p.planned_s - 60 * (n + 1)) <= 10 for n, p in enumerate(a))
    assert all(p.moved_from_s is None for p in a)


def test_what_finds_no_slot_says_so():
    """A crowded plan lists what it left out."""
    crowded = plan_timeline(
        [Series("backend-down", 20, 19, BACKENDS), Series("reload", 10)], length_s=100, seed=1, gap_s=4
    )
    assert {s.reason for s in crowded.skipped} >= {"no free slot within half a period (5 s) of 30 s"}


def test_what_comes_too_late_says_so():
    """A fault whose recovery could not be seen before the end is left out, with the instant that it misses."""
    late = plan_timeline([Series("backend-down", 40, 30, BACKENDS)], length_s=60, seed=1)
    assert late.planned == (*late.planned[:0], late.planned[0])
    assert late.planned[0].moved_from_s == 40
    never = plan_timeline([Series("backend-down", 50, 45, BACKENDS)], length_s=55, seed=1)
    assert [s.reason for s in never.skipped] == [
        "too late: it could not end by 45 s, and moving it half a period (25 s) earlier finds no free slot"
    ]


def test_a_run_that_is_too_short_for_a_fault_says_that_and_not_a_negative_instant():
    """Nothing could end before it begins."""
    short = plan_timeline([Series("backend-down", 6, 5, BACKENDS)], length_s=8, seed=1)
    assert {s.reason for s in short.skipped} == {
        "too late: the run is too short for its hold of 5 s and the time after it"
    }


@pytest.mark.parametrize(("every", "hold"), [(10, 10), (10, 11), (0, 0), (-1, 0)])
def test_a_series_that_cannot_be_is_refused(every: float, hold: float):
    """A hold must be shorter than its period, and a period positive."""
    with pytest.raises(ValueError, match="is not shorter than every"):
        plan_timeline([Series("backend-down", every, hold)], length_s=100, seed=1)


@pytest.mark.timeout(10)
def test_a_search_ends_where_rounding_leads_to_the_same_place_again():
    """A length of half milliseconds: the place before an interval, rounded, overlaps it by less than that."""
    slots = _Slots(2.0, 3000.0)
    assert 825.638 == slots.take(825.638, 11.515, 1.0005, reach=0.0)
    found = slots.take(826.0, 11.515, 1.0005, reach=100.0)
    assert found is not None
    assert found + 12.5155 <= 825.6385 or found >= 838.153
