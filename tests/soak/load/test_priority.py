"""Real-time priority of a load worker: asked for where it may be had, and said where not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from soak.load.priority import run_first

ASK = """
import os, sys
from soak.load.priority import run_first
if sys.argv[1] == "nobody":
    import resource
    resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0))
    os.setuid(65534)
print(run_first(1, processors=2))
print(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR)
sys.stdout.flush()
if os.fork() == 0:
    print(os.sched_getscheduler(0))
else:
    os.wait()
"""


def ask(who: str) -> list[str]:
    """Ask in a process of its own, as root or as nobody; returns the reason, whether it runs first, a child's policy."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, who], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.splitlines()


def test_whoever_may_runs_first_and_hands_it_on_to_nobody():
    """A child of the worker is an ordinary program."""
    if os.geteuid() != 0:
        pytest.skip("only root may surely have it")
    why_not, first, child = ask("root")
    if "the kernel refuses it" in why_not:
        pytest.skip(f"this container may not: {why_not}")
    assert ("", "True", str(os.SCHED_OTHER)) == (why_not, first, child)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_whoever_may_not_is_told_what_it_takes():
    """The load then runs as everybody does."""
    why_not, first, _ = ask("nobody")
    assert "Operation not permitted" in why_not
    assert "CAP_SYS_NICE" in why_not
    assert "False" == first


@pytest.mark.parametrize(("workers", "processors"), [(1, 1), (2, 2), (3, 2)])
def test_a_processor_is_left_to_the_proxy(workers, processors):
    """Workers on every processor could starve what they measure."""
    assert f"{workers} workers on {processors} processors would leave none to the proxy" == run_first(
        workers, processors=processors
    )
