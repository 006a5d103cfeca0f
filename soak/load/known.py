"""The short way for answers that were judged before: the same bytes with another request id are judged the same.

A server that is well gives the same answer again and again, but for the id that it echoes and, once a second, the date. To
parse each one into the same headers, and to fold each body into the same checksum, is the largest part of what a request
costs here. So the bytes of an answer that the long way found good are remembered without the id; an answer that equals them byte by
byte, with *its own* id in that place, is good for the same reasons (equal bytes have equal checksums). Whatever
differs in a single byte, or does not come in one piece, goes the long way.
"""

from __future__ import annotations

from dataclasses import dataclass

from soak.load.flight import Flight

MOST_BYTES = 16_384
"""A longer answer seldom comes in one piece."""
_MOST = 6
"""Answers remembered: one of each origin, before and after a change."""
_LESSONS = 6
"""Answers learned between two calls of ``rest``: a server whose answers all differ must not cost much."""
_SAID_APART = b"x-soak-duplicate"
"""A header that is no part of the judgement and is told apart: an answer with it always goes the long way."""


@dataclass(slots=True)
class KnownAnswer:
    """A good answer without its id, what was found in it, and how often it came again since that was last told."""

    before: bytes
    after: bytes
    body_length: int
    origin: bytes
    generation: bytes
    count: int = 0
    first_ns: int = 0
    last_ns: int = 0


class KnownAnswers:
    """What one traffic class has learned. Only for a class whose every request expects the same answer."""

    __slots__ = ("_forgotten", "_known", "_lessons")

    def __init__(self) -> None:
        self._known: list[KnownAnswer] = []
        self._forgotten: list[KnownAnswer] = []
        self._lessons = _LESSONS

    def find(self, data: bytes, request_id: bytes) -> KnownAnswer | None:
        """Return the known answer that these bytes are, with this id; else None."""
        for known in self._known:
            if data.startswith(known.before) and data == known.before + request_id + known.after:
                return known
        return None

    def learn(self, data: bytes, flight: Flight) -> None:
        """Remember an answer that was judged good. ``data`` is the whole of it and nothing else."""
        if not self._lessons or len(data) > MOST_BYTES:
            return
        self._lessons -= 1
        before, found, after = data.partition(flight.request_id)
        if not found or flight.request_id in after or _SAID_APART in data.lower():
            return
        self._known.insert(
            0, KnownAnswer(before, after, flight.body_length, flight.origin, flight.generation)
        )
        self._forgotten += (known for known in self._known[_MOST:] if known.count)
        del self._known[_MOST:]

    def take(self) -> list[KnownAnswer]:
        """Return those that came again since the last call. Who looked at one sets its ``count`` to zero."""
        came = [known for known in (*self._forgotten, *self._known) if known.count]
        self._forgotten.clear()
        return came

    def rest(self) -> None:
        """Be ready to learn again; called ten times a second."""
        self._lessons = _LESSONS
