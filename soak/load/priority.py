"""Run the load worker before ordinary programs, where this process may: its lateness must not depend on who else is busy.

Real-time round robin at the lowest real-time priority (sched(7)). The kernel keeps 5 % of each processor for everybody
else, and one processor more than there are workers is left to the proxy, so a worker that is overloaded starves nobody.
"""

from __future__ import annotations

import os

_LOWEST = 1


def run_first(workers: int, *, processors: int | None = None) -> str:
    """Ask for real-time priority; returns "" when this process has it, else why it runs as everybody does.

    ``workers`` is how many load workers ask at the same time. Nothing that this process starts inherits it.
    """
    available = len(os.sched_getaffinity(0)) if processors is None else processors
    if available <= workers:
        return f"{workers} workers on {available} processors would leave none to the proxy"
    policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
    try:
        os.sched_setscheduler(0, policy, os.sched_param(_LOWEST))
    except OSError as error:
        return f"the kernel refuses it ({error.strerror}); it takes root, CAP_SYS_NICE, or an rtprio limit of {_LOWEST}"
    return ""
