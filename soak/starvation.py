"""Notices when other programs take the processors that the lab needs: what fails then says little of the proxy.

Load workers run before ordinary programs, so they stay on time on a host that starves everybody else. Without this look the
proxy would be blamed for it. Pure but for ``read_processors``: books of the kernel, and what the run itself used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soak.model import Vital

STARVED = "host.starved"
"""The event: ``from_s``, ``to_s``, and shares of all processors: ``others``, ``own``, ``idle``."""
_IDLE_SHARE = 0.1
"""Above this share of idle time nobody waits for a processor for long."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Processors:
    """All processors of this host since boot, in seconds summed over them (proc_stat(5))."""

    total_s: float
    idle_s: float
    interrupts_s: float
    """Hard and soft interrupts, which nobody is charged for: the packets of our own traffic, mostly."""


def read_processors(path: Path = Path("/proc/stat")) -> Processors:
    """Read the kernel's books."""
    user, nice, system, idle, iowait, irq, softirq, steal = (
        int(field) / _TICKS for field in path.read_text().split("\n", 1)[0].split()[1:9]
    )
    total_s = user + nice + system + idle + iowait + irq + softirq + steal
    return Processors(total_s, idle + iowait, irq + softirq)


class HostWatch:
    """Compares, look by look, what everybody used with what the run used. ``limit`` is ``self.max_others`` of the plan."""

    def __init__(self, limit: float, tell: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._limit = limit
        self._tell = tell
        self._before: tuple[float, Processors, dict[str, float]] | None = None

    def look(self, at_s: float, vitals: Sequence[Vital], processors: Processors) -> None:
        """Take the next look; tells of a stretch since the last one in which the lab was starved."""
        used = {vital.subject: vital.cpu_s for vital in vitals}
        before, self._before = self._before, (at_s, processors, used)
        if before is None:
            return
        from_s, then, had = before
        total_s = processors.total_s - then.total_s
        if total_s <= 0:
            return
        # A subject that was restarted has less than before: then all of it is new.
        own_s = sum(s - had.get(name, 0.0) if s >= had.get(name, 0.0) else s for name, s in used.items())
        idle_s = processors.idle_s - then.idle_s
        others_s = total_s - idle_s - (processors.interrupts_s - then.interrupts_s) - own_s
        idle, others = idle_s / total_s, max(others_s, 0.0) / total_s
        if idle < _IDLE_SHARE and others > self._limit:
            shares = {"others": round(others, 3), "own": round(own_s / total_s, 3), "idle": round(idle, 3)}
            self._tell(STARVED, {"from_s": from_s, "to_s": at_s, **shares})
