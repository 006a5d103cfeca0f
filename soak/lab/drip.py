"""A body that leaves evenly over a time, a few pieces a second. Pure: the connection asks what is due."""

from __future__ import annotations

import math

_LONGEST_STEP_S = 0.25
_SHORTEST_STEP_S = 0.1
_LEAST_STEPS = 4


class Drip:
    """One body on its way. The last byte is due at ``began_s + seconds``; four to ten pieces a second."""

    def __init__(self, body: bytes | memoryview, seconds: float, began_s: float) -> None:
        self._body = memoryview(body)
        self._began_s = began_s
        most = max(1, math.floor(seconds / _SHORTEST_STEP_S))
        wanted = max(_LEAST_STEPS, math.ceil(seconds / _LONGEST_STEP_S))
        self._steps = max(1, min(wanted, most, len(self._body)))
        self._step_s = seconds / self._steps
        self._sent = 0

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return self._sent == len(self._body)

    def due(self, now_s: float) -> memoryview:
        """Take what is due by now and was not taken yet; a late look gets all of it."""
        # Half a millisecond: timers of the event loop are rounded, and a look just before the instant would cost a second one.
        elapsed = now_s + 0.0005 - self._began_s
        step = self._steps if self._step_s == 0 else min(self._steps, int(elapsed / self._step_s))
        upto = max(self._sent, len(self._body) * step // self._steps)
        piece = self._body[self._sent : upto]
        self._sent = upto
        return piece

    def next_s(self, now_s: float) -> float:
        """Return the instant of the next piece after now."""
        if self._step_s == 0:
            return now_s
        return self._began_s + self._step_s * (int((now_s + 0.0005 - self._began_s) / self._step_s) + 1)
