"""An absolute timer that wakes an event loop to the microsecond: Linux ``timerfd`` on CLOCK_MONOTONIC.

The event loop's own timers round to 1 ms (uvloop) and are relative, so they drift. ``os.timerfd_*`` came with Python
3.13; before it a few lines of ctypes do the same. See timerfd_create(2).
"""

from __future__ import annotations

import ctypes
import os

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_NS = 1_000_000_000


_Itimerspec = ctypes.c_long * 4
"""struct itimerspec: seconds and nanoseconds of the interval, then of the instant."""


class TimerFd:
    """A one-shot absolute timer as a file descriptor. Arming it again clears what was due before."""

    __slots__ = ("_ref", "_settime", "_value", "fd")

    def __init__(self) -> None:
        libc = ctypes.PyDLL(None, use_errno=True)  # neither call blocks, so the GIL need not be let go
        self.fd: int = libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"timerfd_create: {os.strerror(code)}")
        self._settime = libc.timerfd_settime
        self._settime.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        self._value = _Itimerspec()
        self._ref = ctypes.addressof(self._value)

    def arm(self, at_ns: int) -> None:
        """Become readable at this instant of CLOCK_MONOTONIC; at once when it has passed."""
        value = self._value
        value[2], value[3] = divmod(at_ns if at_ns > 0 else 1, _NS)
        if self._settime(self.fd, _TFD_TIMER_ABSTIME, self._ref, None) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"timerfd_settime: {os.strerror(code)}")

    def close(self) -> None:
        """Give the descriptor back."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
