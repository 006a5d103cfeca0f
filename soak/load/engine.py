"""The load engine of one worker: wakes at each slot's instant, drains what is due, closes a window each second.

Open model: the timer is absolute, a slow peer never slows it. Slots are handled in the order in which they are due,
and a window is closed before the first slot of the next second, so that after a stall the missed slots are booked on
the seconds in which they were due.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import resource
import ssl
import sys
import traceback
from collections.abc import Callable
from random import Random
from time import monotonic_ns, process_time
from typing import Any

from soak.load import outcome as classify
from soak.load.dial import client_context
from soak.load.flight import Flight
from soak.load.lane import Lane
from soak.load.lanes import lane_of
from soak.load.outcome import Stage
from soak.load.pacer import patience_ns
from soak.load.timer import TimerFd
from soak.load.traffic import LoadSlice
from soak.load.trimming import Trimmer
from soak.measure.histogram import Histogram
from soak.measure.window import Window, WorkerReport
from soak.model import ConnectionStats, FailedRequest, Outcome, SelfStats, Sighting, SightKind, SightVia

_NS = 1_000_000_000
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MAX_SEEN = 64
_MAX_NOTES = 20
_MAX_TRACEBACKS = 5
_COALESCE_NS = 50_000
"""Shortest time between two wakes."""
_SWEEP_S = 0.1
_STALL_NS = _NS // 2
"""A wake that comes so late is an event; every second's worst one is in its report anyway."""

Seen = dict[bytes, list[int]]


class Engine:
    """Sends one slice of the plan. ``emit`` gets one report a second and a last one with ``final`` set."""

    def __init__(self, load: LoadSlice, emit: Callable[[WorkerReport], None]) -> None:
        self.load = load
        self._emit = emit
        self._loop = asyncio.get_running_loop()
        self._timer = TimerFd()
        self._meter = _Meter()
        self._rng = Random(load.seed * 7919 + load.worker)
        self.max_lag_ns = int(load.max_lag_s * _NS)
        self.max_in_flight = load.max_in_flight
        self.tls_timeout_s = load.tls_timeout_s
        self.in_flight = 0
        self.unsupervised = False
        self.busy: set[Flight] = set()
        self.opened = self.closed_by_us = self.closed_by_peer = 0
        self.tls_full = self.tls_resumed = self.reused = 0
        self.open_connections = 0
        self.generations: Seen = {}
        self.origins: Seen = {}
        self.serials: Seen = {}
        self.evidence: list[FailedRequest] = []
        self._evidence_by_outcome: dict[Outcome, int] = {}
        self._evidence_dropped = 0
        self._notes: dict[tuple[str, object], dict[str, Any]] = {}
        self._connections_made = 0
        self._trimmer = Trimmer()
        self._steady_scopes: set[int] = {0}
        self._fds = 0
        self._gap_ns = 0
        self._second = load.from_second
        self._t0 = load.t0_ns
        self._end = load.t0_ns + int(load.seconds * _NS)
        self._boundary = load.t0_ns + (load.from_second + 1) * _NS
        self._armed_ns = 0
        self._patience_ns = patience_ns(sum(c.rate for c in load.classes) / load.workers, load.coalesce_s)
        self._heard_ns = load.t0_ns
        self._dead_man_ns = int(load.dead_man_s * _NS)
        self._pacing = True
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._sweep_handle: asyncio.TimerHandle | None = None
        self.internal_errors = 0
        self.lanes = self._build_lanes()
        self._heap = [(lane.pacer.due_ns, i) for i, lane in enumerate(self.lanes)]
        heapq.heapify(self._heap)

    def _build_lanes(self) -> list[Lane]:
        load = self.load
        context: ssl.SSLContext | None = None
        if any(spec.tls for spec in load.classes):
            context = client_context(load.ca_file)
        return [
            lane_of(self, spec, load, i, context if spec.tls else None) for i, spec in enumerate(load.classes)
        ]

    # -- life ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send until the slice's end, or ``stop``, then wait for what is in flight and emit the last report.

        Raises whatever went wrong in the pacing itself: an engine that cannot pace must die rather than stand still.
        """
        self._loop.add_reader(self._timer.fd, self._wake)
        self._sweep_handle = self._loop.call_later(_SWEEP_S, self._sweep)
        self._arm()
        for lane in self.lanes:
            lane.warm_up()
        try:
            await self._finished
        finally:
            if self._sweep_handle is not None:
                self._sweep_handle.cancel()
            self._loop.remove_reader(self._timer.fd)
            self._timer.close()
            self._meter.close()
            for lane in self.lanes:
                lane.close_idle()

    def stop(self) -> None:
        """Send no more; requests in flight end by themselves or by their deadlines."""
        now = monotonic_ns()
        if self._pacing:
            self._drain(now)
            self._end = min(self._end, now)
            self._stop_pacing()
        self._finish_if_idle()

    def heard(self) -> None:
        """Note a sign of life of the daemon. Without one for ``dead_man_s`` nothing is sent: load needs a supervisor."""
        self._heard_ns = monotonic_ns()

    def enter_scope(self, scope: int, *, steady: bool) -> None:
        """Stamp requests that are sent from now on with this scope."""
        self._drain(monotonic_ns())
        if steady:
            self._steady_scopes.add(scope)
        for lane in self.lanes:
            lane.enter_scope(scope)

    def scope_is_steady(self, scope: int) -> bool:
        """Whether nothing was under way in this scope."""
        return scope in self._steady_scopes

    # -- pacing --------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        try:
            self._pace()
        except Exception as error:  # noqa: BLE001 -- run() raises it
            self._break_down(error)

    def _pace(self) -> None:
        now = monotonic_ns()
        gap = now - self._armed_ns
        self._gap_ns = max(self._gap_ns, gap)
        if gap > _STALL_NS:
            self.note("load.stalled", late_s=round(gap / _NS, 3))
        self._drain(now)
        if self._pacing and now >= self._end:
            self._stop_pacing()
        self._arm()

    def _drain(self, now: int) -> None:
        """Fire every slot that is due by ``now``, in order, closing windows on the way."""
        heap = self._heap
        lanes = self.lanes
        silent_ns = now - self._heard_ns
        if self.load.supervised and silent_ns > self._dead_man_ns:
            if not self.unsupervised and self._pacing:
                self.note("load.unsupervised", silent_s=round(silent_ns / _NS, 3))
            self.unsupervised = True
        else:
            self.unsupervised = False
        end = self._end
        first = True
        while self._pacing:
            due, i = heap[0]
            if due > now or due >= end:
                break
            if due >= self._boundary:
                self._close_window()
                continue
            lane = lanes[i]
            lane.fire(due, now if first else monotonic_ns())
            first = False
            lane.pacer.advance()
            heapq.heapreplace(heap, (lane.pacer.due_ns, i))
        while now >= self._boundary:
            self._close_window()

    def _arm(self) -> None:
        at = self._boundary
        if self._pacing:
            at = min(at, self._heap[0][0] + self._patience_ns, self._end)
        at = max(at, monotonic_ns() + _COALESCE_NS)
        self._armed_ns = at
        self._timer.arm(at)

    def _stop_pacing(self) -> None:
        self._pacing = False
        self._finish_if_idle()

    def _finish_if_idle(self) -> None:
        if not self._pacing and self.in_flight == 0 and not self._finished.done():
            self._close_window(final=True)
            self._finished.set_result(None)

    def _break_down(self, error: Exception) -> None:
        self._loop.remove_reader(self._timer.fd)
        if not self._finished.done():
            self._finished.set_exception(error)

    def _sweep(self) -> None:
        """Give up on what passed its deadline; look after idle connections; notice the end."""
        try:
            self._look_after()
        except Exception as error:  # noqa: BLE001 -- run() raises it
            self._break_down(error)
        if not self._finished.done():
            self._sweep_handle = self._loop.call_later(_SWEEP_S, self._sweep)

    def _look_after(self) -> None:
        now = monotonic_ns()
        self._gap_ns = max(self._gap_ns, now - self._armed_ns)  # after a stall this may come before the timer
        load = self.load
        connect_ns = int(load.connect_timeout_s * _NS)
        tls_ns = int((load.connect_timeout_s + load.tls_timeout_s) * _NS)
        response_ns = int(load.response_timeout_s * _NS)
        for flight in tuple(self.busy):
            stage = flight.stage
            if stage is Stage.BUSY:
                late = (
                    now - flight.first_byte > flight.lane.body_timeout_ns
                    if flight.first_byte
                    else now - flight.wrote_ns > response_ns
                )
            else:
                late = now - flight.sent > (tls_ns if stage is Stage.HANDSHAKING else connect_ns)
            if late:
                ended = classify.of_timeout(stage, first_byte=bool(flight.first_byte))
                flight.give_up(ended, f"gave up while {stage.name.lower()}", now)
        for lane in self.lanes:
            lane.tidy(now)
        self._finish_if_idle()

    # -- used by lanes and connections ---------------------------------------------------------------------------

    def at(self, instant_ns: int) -> float:
        """Convert an instant to seconds since run start."""
        return (instant_ns - self._t0) / _NS

    def jitter(self) -> float:
        """Return a factor between 0.8 and 1.2, seeded."""
        return 0.8 + 0.4 * self._rng.random()

    def next_connection(self) -> int:
        """Return a number for a new connection, unique over all workers."""
        self._connections_made += 1
        return self._connections_made * self.load.workers + self.load.worker

    def see(self, seen: Seen, value: bytes, now: int) -> None:
        """Keep first and last instant of an observed value; the number of values per second is bounded."""
        self.see_many(seen, value, now, now, 1)

    def see_many(self, seen: Seen, value: bytes, first: int, last: int, count: int) -> None:
        """Keep what was observed ``count`` times from ``first`` to ``last``."""
        entry = seen.get(value)
        if entry is not None:
            if last > entry[1]:  # noqa: PLR1730 -- hot path: max() is a call
                entry[1] = last
            if first < entry[0]:  # noqa: PLR1730 -- same; a download's answer began before it was booked
                entry[0] = first
            entry[2] += count
        elif len(seen) < _MAX_SEEN:
            seen[value] = [first, last, count]

    def room_for_evidence(self, ended: Outcome) -> bool:
        """Whether one more failed request of this outcome is kept whole this second. A common failure leaves room for rare ones."""
        cap = self.load.evidence_per_second
        taken = self._evidence_by_outcome.get(ended, 0)
        if len(self.evidence) >= 4 * cap or taken >= cap:
            self._evidence_dropped += 1
            return False
        self._evidence_by_outcome[ended] = taken + 1
        return True

    def internal_error(self, error: BaseException) -> None:
        """Count an exception that nobody expected; its traceback goes to stderr, the first few times."""
        self.internal_errors += 1
        self.note(
            "load.internal_error", error=f"{type(error).__name__}: {error}"[:300], total=self.internal_errors
        )
        if self.internal_errors <= _MAX_TRACEBACKS:
            traceback.print_exception(error, file=sys.stderr)

    def note(self, name: str, **data: object) -> None:
        """Have an event recorded: one a second of each name and class, with how often it happened (``count``)."""
        key = (name, data.get("traffic"))
        known = self._notes.get(key)
        if known is not None:
            known["count"] += 1
        elif len(self._notes) < _MAX_NOTES:
            self._notes[key] = {"name": name, **data, "count": 1}

    # -- windows -------------------------------------------------------------------------------------------------

    def _close_window(self, *, final: bool = False) -> None:
        second = self._second
        windows: list[Window] = []
        lag = Histogram()
        for lane in self.lanes:
            lane.tell_seen()
            for row in lane.take_rows():
                window = row.freeze(second, lane.name, lane.in_flight, self._t0, streaming=lane.streaming)
                windows.append(window)
                lag.merge(window.lag)
        if second % 5 == 0 or final:
            self._fds = self._meter.open_files()
        busy = max(self.in_flight, self.open_connections)
        if returned := self._trimmer.second(busy, self._meter.rss_bytes(), self._meter.rss_bytes):
            self.note("load.memory_returned", **returned)
        report = WorkerReport(
            worker=self.load.worker,
            second=second,
            windows=windows,
            sightings=self._take_sightings(),
            connections=self._take_connections(),
            open_connections=self.open_connections,
            idle_connections=sum(lane.idle_connections for lane in self.lanes),
            evidence=self.evidence,
            evidence_dropped=self._evidence_dropped,
            stats=self._stats(lag),
            final=final,
            notes=list(self._notes.values()),
        )
        self.evidence = []
        self._evidence_by_outcome = {}
        self._evidence_dropped = 0
        self._notes = {}
        self._gap_ns = 0
        self._second += 1
        self._boundary += _NS
        self._emit(report)

    def _stats(self, lag: Histogram) -> SelfStats:
        return SelfStats(
            cpu_s=process_time(),
            rss_bytes=self._meter.rss_bytes(),
            fds=self._fds,
            loop_gap_s=max(self._gap_ns, 0) / _NS,
            lag_p50_s=lag.quantile_ns(0.5) / _NS,
            lag_p99_s=lag.quantile_ns(0.99) / _NS,
            lag_p999_s=lag.quantile_ns(0.999) / _NS,
            lag_max_s=lag.max_ns / _NS,
        )

    def _take_connections(self) -> ConnectionStats:
        stats = ConnectionStats(
            opened=self.opened,
            closed_by_peer=self.closed_by_peer,
            closed_by_us=self.closed_by_us,
            tls_full=self.tls_full,
            tls_resumed=self.tls_resumed,
            reused=self.reused,
        )
        self.opened = self.closed_by_peer = self.closed_by_us = 0
        self.tls_full = self.tls_resumed = self.reused = 0
        return stats

    def _take_sightings(self) -> list[Sighting]:
        out: list[Sighting] = []
        for kind, seen in (
            (SightKind.GENERATION, self.generations),
            (SightKind.ORIGIN, self.origins),
            (SightKind.SERIAL, self.serials),
        ):
            for value, (first, last, count) in seen.items():
                text = value[:64].decode("latin-1")
                out.append(Sighting(kind, text, SightVia.TRAFFIC, self.at(first), self.at(last), count))
            seen.clear()
        return out


class _Meter:
    """This process as the kernel sees it. Keeps a file open, for when there are no more files to be had."""

    def __init__(self) -> None:
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def rss_bytes(self) -> int:
        return int(os.pread(self._statm, 128, 0).split()[1]) * _PAGE

    def open_files(self) -> int:
        try:
            return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- a count only, in the load process
        except OSError:  # none left to look with: all are in use
            return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def close(self) -> None:
        if self._statm >= 0:
            os.close(self._statm)
            self._statm = -1
