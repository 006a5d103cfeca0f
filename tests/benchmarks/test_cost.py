"""What a command costs, by the kernel's books, start-up taken out."""

import sys
from dataclasses import asdict

import pytest

from benchmarks.load.cost import (
    Cost,
    CpuRun,
    RunFailed,
    Spread,
    before_others,
    difference,
    realtime,
    run_pinned,
)

BURN = "import time; end = time.process_time() + {}; sum(1 for _ in iter(lambda: time.process_time() < end, False))"


def test_start_up_is_taken_out():
    """Half a second of start, then 10 us for each request."""
    short = CpuRun(0.4, 0.11, 1.5, "")
    long = CpuRun(0.6, 0.31, 5.5, "")
    expected = Cost(requests=40_000, cpu_us=10, system_share=0.5, rate=10_000, start_cpu_s=0.5)
    assert pytest.approx(asdict(expected)) == asdict(difference(short, 1000, long, 41_000))


def test_a_longer_run_that_did_no_more_is_a_failure():
    """No number is made of nothing."""
    with pytest.raises(RunFailed, match="5 requests, the shorter one 5"):
        difference(CpuRun(1, 0, 1, ""), 5, CpuRun(2, 0, 2, ""), 5)


def test_children_that_were_waited_for_count():
    """A generator's workers are part of its cost."""
    child = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN.format(0.3)!r}]); print('done')"
    )
    run = run_pinned([sys.executable, "-c", child])
    assert run.cpu_s >= 0.3
    assert run.output == "done\n"


def test_the_command_runs_on_one_cpu():
    """As the others do."""
    run = run_pinned([sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))"])
    assert "1" == run.output.strip()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["/nonexistent/generator"], "does not start"),
        ([sys.executable, "-c", "import sys; sys.exit('no such option')"], "ended with 1: no such option"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "ended with -9"),
    ],
    ids=["missing", "refuses", "too late"],
)
def test_a_command_that_ends_badly_says_how(command, says):
    """Its last words, or that it was killed after its time."""
    with pytest.raises(RunFailed, match=says):
        run_pinned(command, timeout_s=1)


def test_a_spread_is_median_and_range():
    """One wild value does not move the middle."""
    assert Spread(3.0, 1.0, 90.0, 3) == Spread.of([90.0, 1.0, 3.0])
    with pytest.raises(ValueError, match="no measurements"):
        Spread.of([])


def test_priority_is_given_back(monkeypatch):
    """Only root may have it, and only for a while."""
    monkeypatch.setenv("SOAK_BENCH_REALTIME", "0")
    with before_others() as allowed:
        assert realtime() is allowed
    assert not realtime()
