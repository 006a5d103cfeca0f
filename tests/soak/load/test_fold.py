"""Rows, slices and small parts of the load engine."""

from __future__ import annotations

import json
import resource
import selectors
import subprocess
import sys
from time import monotonic_ns

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soak.load.fold import Row
from soak.load.limits import raise_open_file_limit
from soak.load.slices import slices_of
from soak.load.timer import TimerFd
from soak.load.traffic import ClassSpec, LoadSlice, classes_of, pattern
from soak.model import Outcome
from soak.plan import Plan


def test_a_row_freezes_into_a_window_that_adds_up() -> None:
    """Scheduled is derived, ok joins the outcomes, the last failure is in run seconds."""
    row = Row(3)
    assert row.empty
    row.sent, row.dropped, row.missed, row.ok = 5, 2, 1, 3
    row.outcomes[Outcome.STATUS_5XX] = 1
    row.last_failure_due = 2_500_000_000
    row.latency[10], row.latency_sum, row.latency_max = 4, 2600, 700
    window = row.freeze(7, "tls", 1, 1_000_000_000)
    assert not row.empty
    assert (7, "tls", 3, 8, 1) == (
        window.second,
        window.traffic,
        window.scope,
        window.scheduled,
        window.in_flight,
    )
    assert {Outcome.OK: 3, Outcome.STATUS_5XX: 1} == window.outcomes
    assert (3, 1) == (window.ok, window.failed)
    assert 1.5 == window.last_failure_due_s
    assert (4, 700) == (window.latency.count, window.latency.max_ns)


def test_a_row_without_failures_has_no_last_failure() -> None:
    """None rather than a made-up instant."""
    assert Row(0).freeze(0, "x", 0, 5).last_failure_due_s is None


def test_a_slice_survives_the_pipe() -> None:
    """JSON and back gives an equal slice, headers and lost counts included."""
    spec = ClassSpec("a", 0.1 + 0.2, "h", 1, "h:1", headers=(("X-A", "b"), ("X-C", "d")), response_bytes=None)
    load = LoadSlice(1, 2, 10**18, 86_400.0, 7, [spec], ca_file="/ca", from_second=9, lost={"a": 4})
    assert load == LoadSlice.from_json(json.loads(json.dumps(load.to_json())))


def test_classes_come_from_the_plan_with_their_share_of_the_rate() -> None:
    """Rates add up to the plan's rate; TLS classes go to the TLS port."""
    plan = Plan()
    specs = classes_of(plan, host="127.0.0.1", http_port=80, https_port=443, authority="soak.test")
    assert plan.rate == pytest.approx(sum(s.rate for s in specs))
    assert {443} == {s.port for s in specs if s.tls}
    assert {"soak.test"} == {s.authority for s in specs}
    assert [c.idempotent for c in plan.traffic.classes] == [s.idempotent for s in specs]


def test_a_plan_is_cut_into_slices_that_share_its_bounds() -> None:
    """Each worker gets its number, the same start, and its part of what may be in flight."""
    plan = Plan(workers=3)
    specs = classes_of(plan, host="127.0.0.1", http_port=80, https_port=443, authority="soak.test")
    slices = slices_of(plan, specs, t0_ns=5, ca_file="/ca.pem", open_files=20_000)
    assert [(0, 3), (1, 3), (2, 3)] == [(s.worker, s.workers) for s in slices]
    assert {5} == {s.t0_ns for s in slices}
    total = plan.rate * plan.traffic.response_timeout
    assert total - 3 <= sum(s.max_in_flight for s in slices) <= total
    (few,) = slices_of(Plan(), specs, t0_ns=5, ca_file="/ca.pem", open_files=1000)
    assert 800 == few.max_in_flight


@given(n=st.integers(0, 40_000))
def test_the_pattern_is_known_and_prefix_stable(n: int) -> None:
    """Exactly n printable bytes, and a longer one begins with a shorter one."""
    assert n == len(pattern(n))
    assert pattern(n) == pattern(n + 977)[:n]
    assert all(c in b"0123456789abcdef" for c in pattern(n))


def test_a_shifted_block_of_the_pattern_is_another_block() -> None:
    """A proxy that repeats or shifts a buffer of a common size changes the content."""
    whole = pattern(40_000)
    for size in (256, 1024, 4096, 8192, 16_384):
        assert whole[:size] != whole[size : 2 * size]


class _Wait:
    def __init__(self, timer: TimerFd) -> None:
        self._selector = selectors.DefaultSelector()
        self._selector.register(timer.fd, selectors.EVENT_READ)

    def readable(self, timeout_s: float) -> bool:
        return bool(self._selector.select(timeout_s))


def test_the_timer_is_readable_at_its_instant_and_not_before() -> None:
    """Absolute: not early, however the machine is loaded."""
    timer = TimerFd()
    wait = _Wait(timer)
    assert not wait.readable(0)
    at = monotonic_ns() + 20_000_000
    timer.arm(at)
    assert not wait.readable(0) or monotonic_ns() >= at
    assert wait.readable(5)
    assert monotonic_ns() >= at
    timer.close()


def test_arming_again_clears_what_was_due() -> None:
    """No read is needed: setting a new time resets the expiry count. A past instant is due at once."""
    timer = TimerFd()
    wait = _Wait(timer)
    timer.arm(0)
    assert wait.readable(5)
    timer.arm(monotonic_ns() + 3_600_000_000_000)
    assert not wait.readable(0)
    timer.arm(monotonic_ns() - 1)
    assert wait.readable(5)
    timer.close()
    timer.close()
    assert -1 == timer.fd


def test_a_timer_that_is_closed_says_so() -> None:
    """Arming a closed timer is an OSError with the call's name."""
    timer = TimerFd()
    timer.close()
    with pytest.raises(OSError, match="timerfd_settime"):
        timer.arm(1)


def test_no_files_for_a_timer_is_an_error_with_its_reason() -> None:
    """timerfd_create's errno reaches the caller."""
    code = (
        "import resource\nfrom soak.load.timer import TimerFd\n"
        "TimerFd().close()\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "try:\n    TimerFd()\nexcept OSError as e:\n    print(e.errno)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "24\n" == done.stdout


def test_the_open_file_limit_is_raised_to_the_hard_limit() -> None:
    """The soft limit equals what is returned."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]), before[1]))
        assert before[1] == raise_open_file_limit()
        assert (before[1], before[1]) == resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
