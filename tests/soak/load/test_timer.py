"""The absolute timer: readable at its instant and not before; arming it again clears what was due."""

from __future__ import annotations

import os
import select
from time import monotonic_ns

import pytest

from soak.load.timer import TimerFd


@pytest.fixture
def timer():
    made = TimerFd()
    yield made
    made.close()


def readable(timer: TimerFd, timeout_ms: float) -> bool:
    poll = select.poll()
    poll.register(timer.fd, select.POLLIN)
    return bool(poll.poll(timeout_ms))


def test_it_is_readable_at_its_instant_and_not_before(timer):
    """By the monotonic clock, read after the wake."""
    at = monotonic_ns() + 20_000_000
    timer.arm(at)
    assert not readable(timer, 0)
    assert readable(timer, 5000)
    assert monotonic_ns() >= at


def test_an_instant_that_has_passed_is_due_at_once(timer):
    """Also the origin of the clock, which would disarm a timer by the system call's own rule."""
    timer.arm(0)
    assert readable(timer, 5000)
    timer.arm(monotonic_ns() - 1)
    assert readable(timer, 5000)


def test_arming_it_again_clears_what_was_due(timer):
    """No read is needed between two wakes."""
    timer.arm(1)
    assert readable(timer, 5000)
    timer.arm(monotonic_ns() + 3_600_000_000_000)
    assert not readable(timer, 0)


def test_its_descriptor_is_private_and_given_back():
    """Closed on exec, non-blocking; closing twice is no error."""
    made = TimerFd()
    assert not os.get_inheritable(made.fd)
    assert not os.get_blocking(made.fd)
    made.close()
    made.close()
    assert made.fd == -1


def test_a_closed_timer_cannot_be_armed(timer):
    """The system's own word."""
    timer.close()
    with pytest.raises(OSError, match="timerfd_settime"):
        timer.arm(1)
