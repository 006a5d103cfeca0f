"""Gives memory back after a burst of connections: an outage of the proxy must not leave the worker large for the rest of the day.

Thousands of handshakes that wait at the same time take some 45 KiB each, most of it OpenSSL's. Once they are gone the C library keeps
their memory, scattered over its heap. Returning it takes some 0.5 ms for each MiB, in which nothing is sent, so it is done once, when
the burst is over, and told.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from time import perf_counter

_BURST = 256
"""So many requests in flight, or connections, at once are a burst."""
_OVER_SHARE = 4
"""A burst is over when no more than one in so many is left,"""
_CALM_S = 10
"""and has been for so many seconds."""
_WORTH_BYTES = 16 * 1024 * 1024
"""What it must have left behind."""


def return_free_memory() -> float:
    """Let the C library give what is free back to the kernel (malloc_trim(3)); returns how many seconds it took."""
    began = perf_counter()
    trim = getattr(ctypes.PyDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)
    return perf_counter() - began


class Trimmer:
    """Decides once a second whether it is time. ``act`` returns the seconds it took."""

    def __init__(self, act: Callable[[], float] = return_free_memory) -> None:
        self._act = act
        self._base: int | None = None
        self._peak = 0
        self._calm_s = 0

    def second(self, busy: int, rss_bytes: int, rss: Callable[[], int]) -> dict[str, float] | None:
        """Take one second: how many requests are in flight or connections open, and the resident memory.

        Returns what was given back in bytes and how long that took, when it was time; ``rss`` is asked after that.
        """
        if busy >= max(self._peak, _BURST):
            self._peak, self._calm_s = busy, 0
        if not self._peak:
            self._base = rss_bytes
            return None
        self._calm_s = self._calm_s + 1 if busy * _OVER_SHARE <= self._peak else 0
        if self._calm_s < _CALM_S:
            return None
        self._peak = self._calm_s = 0
        if rss_bytes - (self._base or 0) < _WORTH_BYTES:
            return None
        took_s = self._act()
        self._base = rss()
        return {"bytes": rss_bytes - self._base, "took_s": round(took_s, 4)}
