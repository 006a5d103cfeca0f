"""Counters that outlive an origin, and ids that were delivered before."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.lab.shared import BUCKETS, DUPLICATES, NAMES, REQUESTS, ROWS, Shared, create, stats_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    create(tmp_path / "shared")
    return tmp_path / "shared"


def test_counters_survive_who_counts(path):
    """A restarted origin goes on where it stopped, and another row is another origin."""
    first = Shared.open(path, 3)
    first.counters[REQUESTS] += 5
    again = Shared.open(path, 3)
    again.counters[REQUESTS] += 1

    assert (6, 6) == (first.counters[REQUESTS], again.counters[REQUESTS])
    assert 0 == Shared.open(path, 4).counters[REQUESTS]


def test_every_counter_has_a_name_and_a_place_in_the_stats():
    """The cache's are grouped by kind."""
    shared = Shared.alone()
    for column in range(len(NAMES)):
        shared.counters[column] = column + 1
    stats = stats_of(shared.counters)

    assert (1, 2, 3) == (stats["requests"], stats["non_idempotent"], stats["duplicates"])
    assert ["plain", "etag", "vary", "no-store"] == list(stats["cache"])
    assert {"full": 9, "not_modified": 10} == stats["cache"]["etag"]
    assert len(NAMES) == shared.counters.nbytes // 8


def test_an_id_is_delivered_once_whoever_asks(path):
    """Two origins share what they know; an id of nobody is new."""
    one, two = Shared.open(path, 0), Shared.open(path, ROWS - 1)

    assert [False, True, True] == [
        one.delivered_before(b"a"),
        one.delivered_before(b"a"),
        two.delivered_before(b"a"),
    ]
    assert [False, True] == [two.delivered_before(b"b"), one.delivered_before(b"b")]


def test_thousands_of_younger_ids_do_not_make_it_forget():
    """The oldest of 10,000 are still known, and nothing new is taken for old."""
    shared = Shared.alone()
    ids = [b"w0-%x" % i for i in range(10_000)]

    assert not any(shared.delivered_before(i) for i in ids)
    known = sum(shared.delivered_before(i) for i in ids)
    assert known >= 9_999


def test_memory_is_bounded_and_new_ids_stay_new():
    """Four times as many as fit: the youngest are known, none is a false alarm."""
    shared = Shared.alone()
    many = BUCKETS * 5

    assert 0 == sum(shared.delivered_before(b"%d" % i) for i in range(many))
    assert all(shared.delivered_before(b"%d" % i) for i in range(many - 100, many))


def test_a_mark_never_touches_a_counter(path):
    """The table begins behind the last row."""
    shared = Shared.open(path, ROWS - 1)
    for i in range(1000):
        shared.delivered_before(b"%d" % i)

    assert [0] * len(NAMES) == list(shared.counters)
    shared.counters[DUPLICATES] = 2**63
    assert 2**63 == Shared.open(path, ROWS - 1).counters[DUPLICATES]


@pytest.mark.parametrize("row", [-1, ROWS])
def test_a_row_that_does_not_exist_is_refused(path, row):
    """Its neighbour is the table."""
    with pytest.raises(ValueError, match=f"row {row} of .* does not exist; there are 64"):
        Shared.open(path, row)


def test_another_file_is_refused(tmp_path):
    """Empty, missing."""
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="is not a table of origins"):
        Shared.open(tmp_path / "empty", 0)
    with pytest.raises(FileNotFoundError):
        Shared.open(tmp_path / "missing", 0)
