"""Watches the workers of the proxy one by one: which of them are missing at a look, and whether anything explains that. Pure.

A worker that crashes is replaced by its master within milliseconds, so no count shows it; identities do. Explained is one that was
seen to be leaving, one that is missed while soak disturbs the proxy itself or a moment after, and one that was there when the newest
disturbance began, for as long as old workers may take: not every proxy says which of its workers are old. Faults of backends
explain nothing, and neither does a look that came late. Remembers only who lives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from chaos.model import FaultRecord
from soak.model import Member, Vital, WorkerEnd

KNOWN = "proxy.workers_known"
"""Told once, as soon as there are workers to tell apart."""
DIED = "proxy.worker_died"
SETTLE_S = 3.0
"""After the look that saw a disturbance under way or just over: looks are five seconds apart, so one more is explained by it."""
_WORKER, _OLD, _MASTER = "worker", "old_worker", "master"
_AT_PROXY = ("", "proxy")
_SHOWN = 16

Identity = tuple[int, float]


@dataclass(slots=True)
class _Worker:
    old: bool
    outdated: bool
    """It was there when the newest disturbance of the proxy began."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Workers that are missing since the look before, though none was seen to be leaving."""

    from_s: float
    """When all of them were seen last."""
    to_s: float
    pids: Mapping[int, bool]
    """Each, and whether anything of soak's explains it."""
    born: int
    """How many workers are new since then."""


class WorkerWatch:
    """Folds looks at the proxy. ``drain_s`` is how long old workers may take.

    ``taken_over`` says that somebody else's proxy was reloaded before the first look, so that its workers may be old ones.
    """

    def __init__(self, drain_s: float, *, taken_over: bool = False) -> None:
        self._drain_s = drain_s
        self._taken_over = taken_over
        self._known: dict[Identity, _Worker] = {}
        self._masters: frozenset[Identity] = frozenset()
        self._last_s = -inf
        self._faults: frozenset[int] = frozenset()
        self._settled_s = self._drained_s = -inf
        self._replaced = taken_over
        """Whether workers were born since the newest disturbance: else it replaced none, and those that are there are no old ones."""
        self.known = False
        """Whether there was ever a worker to tell apart."""

    def look(self, vital: Vital, disturbing: Iterable[FaultRecord]) -> Missing | None:
        """Take a look at the proxy, and the faults that were under way at any time since the last one."""
        self._disturbed(vital.at_s, disturbing)
        if not vital.members:  # it does not run, or cannot be seen: others tell that, and what is known stays
            return None
        living = {(member.pid, member.started): member for member in vital.members}
        self._same_master(vital, living)
        gone = {pid: worker for (pid, started), worker in self._known.items() if (pid, started) not in living}
        pids = {pid: self._explained(worker) for pid, worker in gone.items() if not worker.old}
        born = self._fold(living)
        missing = Missing(self._last_s, vital.at_s, pids, born) if pids else None
        self._last_s = vital.at_s
        if not self._replaced and vital.at_s >= self._settled_s:
            for worker in self._known.values():
                worker.outdated = False
        return missing

    def _disturbed(self, at_s: float, disturbing: Iterable[FaultRecord]) -> None:
        faults = frozenset(fault.id for fault in disturbing if fault.target in _AT_PROXY)
        if faults:
            self._settled_s, self._drained_s = at_s + SETTLE_S, at_s + self._drain_s
        if faults - self._faults:
            self._replaced = False
            for worker in self._known.values():
                worker.outdated = True
        self._faults = faults

    def _same_master(self, vital: Vital, living: Mapping[Identity, Member]) -> None:
        """Begin anew with another master: that the first one ended is told as such, and takes its workers along."""
        masters = frozenset(who for who, member in living.items() if member.role == _MASTER)
        if masters and self._masters and not masters & self._masters:
            self._known.clear()
            self._last_s = -inf
        if self._last_s == -inf and self._taken_over:
            self._drained_s = max(self._drained_s, vital.at_s + self._drain_s)
        self._masters = masters or self._masters

    def _explained(self, worker: _Worker) -> bool:
        return self._last_s < self._settled_s or (worker.outdated and self._last_s < self._drained_s)

    def _fold(self, living: Mapping[Identity, Member]) -> int:
        """Remember who lives, and return how many workers are new. Once old is always old; who tells by age may see it otherwise."""
        now: dict[Identity, _Worker] = {}
        born = 0
        for who, member in living.items():
            before = self._known.get(who)
            if before is None and member.role in (_WORKER, _OLD):
                now[who] = _Worker(
                    old=member.role == _OLD, outdated=self._last_s == -inf and self._taken_over
                )
                born += 1
            elif before is not None:
                now[who] = _Worker(before.old or member.role == _OLD, before.outdated)
        self._known = now
        self._replaced = self._replaced or born > 0
        self.known = self.known or bool(now)
        return born


def told_of(missing: Missing, ends: Mapping[int, WorkerEnd]) -> Mapping[str, Any] | None:
    """Return what the event says of workers that nothing explains, None when there is none.

    ``ends`` is what the proxy's log says of how processes ended: a crash is one whatever soak was doing, an end in order is none.
    """
    pids = [
        pid for pid, explained in sorted(missing.pids.items()) if _died(ends.get(pid), explained=explained)
    ]
    if not pids:
        return None
    how = {str(pid): ends[pid].words for pid in pids[:_SHOWN] if pid in ends}
    return {
        "workers": len(pids),
        "pids": pids[:_SHOWN],
        "from_s": missing.from_s,
        "to_s": missing.to_s,
        "replaced": min(missing.born, len(pids)),
        **({"how": how} if how else {}),
    }


def _died(end: WorkerEnd | None, *, explained: bool) -> bool:
    crashed = None if end is None else end.crashed
    return not explained if crashed is None else crashed
