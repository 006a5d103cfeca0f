"""When the pieces of a dripped body are due."""

from __future__ import annotations

from itertools import pairwise

import pytest

from soak.lab.drip import Drip


def pour(n: int, seconds: float) -> list[tuple[float, int]]:
    """Take pieces exactly when they are due; return when, and how long each was."""
    drip, now = Drip(b"x" * n, seconds, 100.0), 100.0
    out = []
    while not drip.done:
        now = drip.next_s(now)
        out.append((round(now - 100.0, 6), len(drip.due(now))))
        assert len(out) <= 3000
    return out


@pytest.mark.parametrize(
    ("pieces", "n", "seconds"),
    [(4, 1024, 1.0), (120, 100_000, 30.0), (4, 4096, 0.4), (2, 4096, 0.2), (1, 10, 0.05), (3, 3, 30.0)],
)
def test_pieces_are_even_and_the_last_is_due_at_the_end(pieces, n, seconds):
    """Four to ten a second, never more than there are bytes."""
    poured = pour(n, seconds)

    assert pieces == len(poured)
    assert n == sum(length for _, length in poured)
    assert seconds == pytest.approx(poured[-1][0])
    assert max(length for _, length in poured) - min(length for _, length in poured) <= 1
    steps = [b[0] - a[0] for a, b in pairwise(poured)]
    assert [pytest.approx(seconds / pieces)] * (pieces - 1) == steps


def test_nothing_is_due_before_its_time_and_a_late_look_gets_all():
    """A peer that did not read for a while is not punished with a longer stream."""
    drip = Drip(b"0123456789", 1.0, 0.0)

    assert b"" == bytes(drip.due(0.1))
    assert b"01" == bytes(drip.due(0.25))
    assert b"" == bytes(drip.due(0.3))
    assert b"23456789" == bytes(drip.due(5.0))
    assert drip.done


def test_a_look_just_before_the_instant_counts():
    """Timers are rounded; half a millisecond must not cost a second wake."""
    assert b"01" == bytes(Drip(b"01234567", 1.0, 0.0).due(0.2496))


def test_no_time_is_at_once():
    """And it ends."""
    drip = Drip(b"abc", 0.0, 7.0)

    assert (b"abc", 7.0, True) == (bytes(drip.due(7.0)), drip.next_s(7.0), drip.done)
