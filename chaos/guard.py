"""The abort guard: notices that the proxy fails although no fault explains it, and says that chaos must stop.

Pure: fed one second after the other. With hysteresis, so that it neither trips on a spike nor chatters: bad seconds
count up, only a clearly good one (below half the limit) clears the count, and once tripped it stays so.
"""

from __future__ import annotations


class AbortGuard:
    """Trips after ``seconds`` seconds with a failure ratio of at least ``ratio``, no clearly good second between them."""

    def __init__(self, ratio: float, seconds: int = 10) -> None:
        self.ratio = ratio
        self.seconds = seconds
        self.tripped = ""
        """Why it tripped; empty while it did not."""
        self._bad = 0

    def feed(self, requests: int, failures: int) -> bool:
        """Take one second of requests outside every fault; returns True when it trips now.

        A second without requests says nothing and changes nothing.
        """
        if self.tripped or requests <= 0:
            return False
        share = failures / requests
        if share >= self.ratio:
            self._bad += 1
        elif share < self.ratio / 2:
            self._bad = 0
        if self._bad < self.seconds:
            return False
        self.tripped = (
            f"{share:.0%} of requests failed outside every fault, and {self._bad} seconds were at or above the limit "
            f"of {self.ratio:.0%}: chaos is stopped"
        )
        return True
