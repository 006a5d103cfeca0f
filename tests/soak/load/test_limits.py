"""What may be used of the machine: open files to the hard limit, requests in flight within them."""

from __future__ import annotations

import resource
from typing import Any

from soak.load.limits import most_in_flight, raise_open_file_limit
from soak.load.traffic import ClassSpec


def made(rate: float, **changes: Any) -> ClassSpec:
    return ClassSpec("c", rate, "h", 1, "h", **changes)


def test_the_soft_limit_of_open_files_is_the_hard_one():
    """As the function says."""
    hard = raise_open_file_limit()
    assert (hard, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)


def test_the_bound_on_flight_leaves_files_for_the_rest():
    """Rate x timeout over all classes, but never more than the open files allow."""
    assert 10_000 == most_in_flight([made(850), made(50), made(100)], 10, 20_000)
    assert 800 == most_in_flight([made(1000)], 10, 1000)
    assert 1 == most_in_flight([made(0.01)], 1, 1000)


def test_what_is_long_by_design_may_be_in_flight_for_as_long():
    """A download of 30 s at 20 a second is 600 at once; the time for its body counts, that of others does not."""
    assert 2600 == most_in_flight([made(20, streaming=True, body_timeout_s=120)], 10, 20_000)
    assert 200 == most_in_flight([made(20, body_timeout_s=120)], 10, 20_000)
