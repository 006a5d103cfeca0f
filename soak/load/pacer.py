"""When slots are due: pure arithmetic on integers, no clock.

Slot ``i`` of a class is due at ``t0 + i / rate``, computed from ``i`` each time, so nothing drifts over a day.
Worker ``k`` of ``N`` takes slots ``k, k + N, ...``; the union over all workers is exactly the sequence of one.
"""

from __future__ import annotations

from fractions import Fraction
from math import log
from random import Random
from typing import Protocol

_NS = 1_000_000_000
_DENOMINATOR = 1_000_000


CROWD_RATE = 10_000.0
"""Slots a second and worker from which on several are sent in one wake, unless the plan says otherwise."""
_COMPANY = 10
"""So many, at most."""


def patience_ns(rate: float, coalesce_s: float | None = None) -> int:
    """Return how long a worker with this many slots a second lets a due slot wait, so that one wake sends several.

    A wake of a sleeping process costs more CPU than all else that a request takes. From 10,000 slots a second on, where ten
    come within a millisecond or less, sharing it is worth the lag; below, every slot has a wake of its own. Who asks for
    a wait (``coalesce_s``, 0 for none) gets it at every rate.
    """
    if coalesce_s is not None:
        return int(coalesce_s * _NS)
    return int(_COMPANY / rate * _NS) if rate >= CROWD_RATE else 0


def connections_before(rate: float) -> int:
    """Return how many connections a worker opens before the first slot of a class that keeps them.

    Making one takes some 0.1 ms (TLS: 1 ms): below 5,000 slots a second they are made when slots need them. Above, for
    5 ms worth of slots, so that a short stall does not make everything behind it dial.
    """
    return min(256, int(rate * 0.005)) if rate >= 5_000 else 0


class Pacer(Protocol):
    """A sequence of due instants; ``due_ns`` is the next one."""

    due_ns: int
    index: int
    """Number of that slot in the sequence of all workers."""

    def advance(self) -> None:
        """Go on to this worker's next slot."""
        ...


def skip_to(pacer: Pacer, instant_ns: int) -> None:
    """Pass over the slots that were due before an instant."""
    while pacer.due_ns < instant_ns:
        pacer.advance()


def exact_rate(rate: float) -> Fraction:
    """Return requests per second as a fraction, so that 850 of 1,000 is exactly 17/20; at least one in 1,000,000 s."""
    return max(Fraction(rate).limit_denominator(_DENOMINATOR), Fraction(1, _DENOMINATOR))


class UniformPacer:
    """Equidistant slots."""

    __slots__ = ("_den", "_num", "_t0_ns", "_workers", "due_ns", "index")

    def __init__(self, rate: float, t0_ns: int, *, worker: int = 0, workers: int = 1) -> None:
        fraction = exact_rate(rate)
        self._num = fraction.numerator
        self._den = fraction.denominator * _NS
        self._t0_ns = t0_ns
        self._workers = workers
        self.index = worker
        self.due_ns = t0_ns + worker * self._den // self._num

    def advance(self) -> None:
        """Go on to this worker's next slot."""
        self.index = index = self.index + self._workers
        self.due_ns = self._t0_ns + index * self._den // self._num


class PoissonPacer:
    """Slots with exponential gaps, from a seed. All workers draw the whole sequence and keep their own share of it."""

    __slots__ = ("_at", "_random", "_scale_ns", "_t0_ns", "_workers", "due_ns", "index")

    def __init__(self, rate: float, t0_ns: int, seed: int, *, worker: int = 0, workers: int = 1) -> None:
        self._random = Random(seed)
        self._scale_ns = _NS / float(exact_rate(rate))
        self._t0_ns = t0_ns
        self._workers = workers
        self._at = 0.0
        self.index = worker
        self._draw(worker)

    def _draw(self, gaps: int) -> None:
        rng = self._random.random
        for _ in range(gaps):
            self._at -= log(1.0 - rng()) * self._scale_ns
        self.due_ns = self._t0_ns + int(self._at)

    def advance(self) -> None:
        """Go on to this worker's next slot."""
        self.index += self._workers
        self._draw(self._workers)


def slots_due_before(rate: float, elapsed_ns: int) -> int:
    """Return how many uniform slots of a class are due in ``[0, elapsed_ns)``: what ``scheduled`` must add up to."""
    fraction = exact_rate(rate)
    if elapsed_ns <= 0:
        return 0
    # slot i is due at floor(i*den*1e9/num); it lies before elapsed when i*den*1e9 < elapsed*num (rounding down keeps that)
    step = fraction.denominator * _NS
    return (elapsed_ns * fraction.numerator + step - 1) // step
