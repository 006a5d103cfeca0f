"""The abort guard: trips late enough, holds, and begins anew only when told."""

from __future__ import annotations

from chaos.guard import AbortGuard


def seconds(guard: AbortGuard, *failures: int) -> list[bool]:
    return [guard.feed(100, count) for count in failures]


def test_it_trips_after_enough_bad_seconds():
    """The tenth bad second trips it, not the ninth."""
    assert seconds(AbortGuard(0.5, 10), *[50] * 10) == [False] * 9 + [True]


def test_a_clearly_good_second_clears_the_count():
    """A spike is no reason to stop."""
    assert not any(seconds(AbortGuard(0.5, 3), 90, 90, 0, 90, 90, 24, 90, 90))


def test_a_second_between_the_limits_neither_counts_nor_clears():
    """With ratios that swing around the limit it still trips."""
    assert seconds(AbortGuard(0.5, 3), 60, 40, 60, 40, 60) == [False, False, False, False, True]


def test_it_says_why():
    """The reason names the share and the limit."""
    guard = AbortGuard(0.5, 2)
    seconds(guard, 75, 75)
    assert guard.tripped == (
        "75% of requests failed outside every fault, and 2 seconds were at or above the limit of 50%: chaos is stopped"
    )


def test_it_trips_once_and_stays_so():
    """Neither further bad nor good seconds change a tripped guard."""
    guard = AbortGuard(0.5, 1)
    assert seconds(guard, 90, 90, 0, 0) == [True, False, False, False]
    assert guard.tripped


def test_a_second_without_requests_says_nothing():
    """Silence is no failure (a fault covers all requests, or soak stood still)."""
    guard = AbortGuard(0.5, 2)
    assert [guard.feed(100, 90), guard.feed(0, 0), guard.feed(100, 90)] == [False, False, True]
