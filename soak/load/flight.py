"""A request under way, as far as its lane and the engine must know it: a connection of HTTP/1.1, a stream, a message.

One protocol for all shapes, so that slots, ends, deadlines and evidence are booked in one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from soak.load.outcome import Stage
from soak.model import Outcome

if TYPE_CHECKING:
    from soak.load.lane import Lane


class Flight(Protocol):
    """One request from its slot to its end. Instants are nanoseconds of CLOCK_MONOTONIC, 0 while not reached."""

    @property
    def lane(self) -> Lane:
        """The class that it belongs to."""
        ...

    @property
    def id(self) -> int:
        """Number of the connection that carries it."""
        ...

    request_id: bytes
    due: int
    sent: int
    wrote_ns: int
    """When it went onto the wire."""
    first_byte: int
    row_scope: int
    """Scope in which it was sent."""
    stage: Stage
    status: int
    seen_id: bytes
    origin: bytes
    generation: bytes
    body_length: int
    body_crc: int

    @property
    def connected_ns(self) -> int:
        """When its connection came up."""
        ...

    @property
    def serial(self) -> str:
        """Serial of the certificate that its connection showed; empty without TLS."""
        ...

    @property
    def reused(self) -> bool:
        """Whether its connection had carried a request before."""
        ...

    def give_up(self, ended: Outcome, error: str, now: int) -> None:
        """End it because a deadline passed; books it through its lane."""
        ...
