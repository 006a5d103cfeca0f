"""How evenly requests come in, as the server saw it: a generator that sends in bursts is cheap, but its rate is a mean.

The server notes the millisecond in which it answered each request. At 10,000 a second sent evenly every millisecond has
some ten of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Evenness:
    """The middle of a run, millisecond by millisecond."""

    milliseconds: int
    requests: int
    empty_share: float
    """Share of milliseconds without a request."""
    most: int
    """Requests in the fullest millisecond but for the fullest 1 %."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return asdict(self)


def evenness_of(log: str) -> Evenness | None:
    """Return the evenness of lines of epoch seconds with three decimals; None when they span less than a second."""
    stamps = [int(line.replace(".", "")) for line in log.split()]
    if not stamps:
        return None
    first, last = min(stamps), max(stamps)
    span = last - first
    if span < 1000:
        return None
    begin, end = first + span // 4, last - span // 4  # the ends of a run are not even
    counts = Counter(s for s in stamps if begin <= s < end)
    length = end - begin
    ranked = sorted((counts.get(ms, 0) for ms in range(begin, end)), reverse=True)
    return Evenness(
        milliseconds=length,
        requests=sum(ranked),
        empty_share=1 - len(counts) / length,
        most=ranked[length // 100],
    )
