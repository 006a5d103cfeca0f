"""What a command costs: its CPU seconds and those of every process it waited for, from the kernel's own books.

A generator's start-up (an interpreter, a thousand virtual users) is no part of the cost of a request. It is taken out by
running a command twice, for a short and for a longer time, and dividing differences.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter

SERVER_CPU = 0
GENERATOR_CPU = 1


class RunFailed(Exception):  # noqa: N818 -- it says what happened
    """A command ended badly: its name, its exit status and its last words."""


@dataclass(frozen=True, slots=True)
class CpuRun:
    """One run of a command. Times in seconds."""

    user_s: float
    system_s: float
    wall_s: float
    output: str

    @property
    def cpu_s(self) -> float:
        """User and system time together."""
        return self.user_s + self.system_s


@dataclass(frozen=True, slots=True)
class Cost:
    """The difference between a long and a short run of the same command."""

    requests: int
    cpu_us: float
    """CPU microseconds per request, start-up taken out."""
    system_share: float
    rate: float
    """Requests per second of the longer run, by its wall time less that of the shorter one."""
    start_cpu_s: float
    """CPU seconds that did not grow with the requests: start and end of the command."""


def realtime() -> bool:
    """Whether servers and generators run before everything else (environment variable SOAK_BENCH_REALTIME; needs root)."""
    return os.environ.get("SOAK_BENCH_REALTIME") == "1"


@contextmanager
def before_others() -> Iterator[bool]:
    """Have servers and generators run before everything else in this block, where that is allowed; say whether it is."""
    previous = os.environ.get("SOAK_BENCH_REALTIME", "0")
    allowed = os.geteuid() == 0
    os.environ["SOAK_BENCH_REALTIME"] = "1" if allowed else previous
    try:
        yield allowed
    finally:
        os.environ["SOAK_BENCH_REALTIME"] = previous


def pin(cpu: int) -> Callable[[], None]:
    """Return what a child does before it becomes its command: stay on one CPU, with the priority that all share."""
    first = realtime()

    def stay() -> None:
        os.sched_setaffinity(0, {cpu % (os.cpu_count() or 1)})
        if first:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))

    return stay


def run_pinned(
    command: Sequence[str],
    *,
    cpu: int = GENERATOR_CPU,
    timeout_s: float = 120.0,
    env: Mapping[str, str] | None = None,
) -> CpuRun:
    """Run a command to its end on one CPU. Raises ``RunFailed`` when it cannot start, fails, or outlives its time."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = perf_counter()
        try:
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=None if env is None else dict(env),
                preexec_fn=pin(cpu),  # noqa: PLW1509 -- no threads are running here
                start_new_session=True,
            )
        except OSError as error:
            raise RunFailed(f"{command[0]} does not start: {error}") from error
        status, usage = _wait(child, timeout_s)
        wall_s = perf_counter() - started
        out.seek(0)
        err.seek(0)
        output = out.read().decode(errors="replace")
        words = err.read().decode(errors="replace")
    if status:
        raise RunFailed(f"{command[0]} ended with {status}: {(words or output).strip()[-400:]}")
    return CpuRun(usage.ru_utime, usage.ru_stime, wall_s, output or words)


def _wait(child: subprocess.Popen[bytes], timeout_s: float) -> tuple[int, resource.struct_rusage]:
    """Wait with the books of the whole tree (wait4(2)). A command past its time is killed with its session."""

    def too_late(*_: object) -> None:
        os.killpg(child.pid, signal.SIGKILL)

    previous = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        _, status, usage = os.wait4(child.pid, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage


def difference(short: CpuRun, short_requests: int, long: CpuRun, long_requests: int) -> Cost:
    """Return the cost of what the longer run did more. Raises ``RunFailed`` when it did not do more."""
    more = long_requests - short_requests
    if more <= 0:
        raise RunFailed(f"the longer run did {long_requests} requests, the shorter one {short_requests}")
    cpu_s = long.cpu_s - short.cpu_s
    system_s = long.system_s - short.system_s
    each_s = cpu_s / more
    return Cost(
        requests=more,
        cpu_us=each_s * 1e6,
        system_share=system_s / cpu_s if cpu_s > 0 else 0.0,
        rate=more / max(long.wall_s - short.wall_s, 1e-9),
        start_cpu_s=max(0.0, short.cpu_s - each_s * short_requests),
    )


@dataclass(frozen=True, slots=True)
class Spread:
    """Several measurements of one thing."""

    middle: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Median and range. Raises ``ValueError`` without values."""
        if not values:
            raise ValueError("no measurements")
        return cls(median(values), min(values), max(values), len(values))
