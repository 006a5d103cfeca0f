"""Lanes whose requests differ from one to the next: round the hosts of many routes, and among cacheable objects.

What slot ``i`` asks for depends on the seed and on ``i`` alone: neither on the number of workers nor on what became of other
slots. Other lanes pay nothing for any of this.
"""

from __future__ import annotations

import ssl
import zlib
from array import array
from bisect import bisect
from itertools import accumulate
from typing import TYPE_CHECKING, cast

from soak.load import outcome as classify
from soak.load.flight import Flight
from soak.load.http1 import Http1Connection
from soak.load.http1lane import Http1Lane
from soak.load.traffic import ClassSpec, LoadSlice, cache_body
from soak.model import Outcome

if TYPE_CHECKING:
    from soak.load.engine import Engine

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def draw(seed: int, i: int) -> int:
    """Return 64 random bits for slot ``i``: splitmix64 at place ``i``, so that no slot depends on another."""
    z = (seed + (i + 1) * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


# -- many routes -------------------------------------------------------------------------------------------------------


class RouteConnection(Http1Connection):
    """A connection that knows which route its request must take, and which it took by the answer's own word."""

    __slots__ = ("route", "seen_route")

    lane: RoutesLane

    def assign(self, request_id: bytes, due: int, sent: int, scope: int) -> None:
        """Take a request; its slot says for which host."""
        super().assign(request_id, due, sent, scope)
        lane = self.lane
        self.route = lane.pacer.index % lane.spec.hosts
        self.seen_route = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the route too."""
        if len(name) == _ROUTE_LENGTH and name.lower() == _ROUTE_HEADER:
            self.seen_route = value
        else:
            super().on_header(name, value)


_ROUTE_HEADER = b"x-soak-route"
_ROUTE_LENGTH = len(_ROUTE_HEADER)


class RoutesLane(Http1Lane):
    """Slot ``i`` goes to the host ``r{i mod N + 1}`` of the site; the answer must name that route in ``X-Soak-Route``."""

    connection_type = RouteConnection

    def _build_request(self, spec: ClassSpec) -> None:
        super()._build_request(spec)
        site = f"\r\nHost: {spec.authority}\r\n".encode("latin-1")
        before, _, after = self.request_head.partition(site)
        self.routes = [b"r%d" % k for k in range(1, spec.hosts + 1)]
        """Names as the proxy spells them."""
        self.heads = [before + site.replace(b": ", b": " + route + b".", 1) + after for route in self.routes]

    def compose(self, flight: Flight) -> bytes:
        """Return the request, to the host of its slot."""
        route = cast("RouteConnection", flight).route
        return self.heads[route] + flight.request_id + self.request_tail

    def judge(self, flight: Flight) -> Outcome:
        """Compare; an answer by another route is somebody else's."""
        ended = super().judge(flight)
        connection = cast("RouteConnection", flight)
        lost = self.check_identity and connection.seen_route != self.routes[connection.route]
        return Outcome.IDENTITY_MISMATCH if lost and ended in _BEHIND_IDENTITY else ended

    def mismatch(self, flight: Flight) -> str:
        """Say which route was taken, too."""
        connection = cast("RouteConnection", flight)
        seen = connection.seen_route[:64].decode("latin-1")
        return f"route {seen!r} instead of {self.routes[connection.route].decode()!r}; {super().mismatch(flight)}"


_BEHIND_IDENTITY = (Outcome.OK, Outcome.BODY_MISMATCH)
"""What an answer may be besides, for its identity to be what is said of it: the order of ``outcome.of_answer``."""


# -- a cache -----------------------------------------------------------------------------------------------------------

ZIPF_EXPONENT = 0.9
"""The key of rank ``k`` is asked for in proportion to ``1 / k ** 0.9``, as web objects are (0.6 to 1.0 in studies)."""
VARIANTS = (b"a", b"b", b"c")
OBJECT_BYTES = 8192
"""Length of an object for a class that promises none."""
OPTIONS = ("ttl=10",) * 6 + ("etag&ttl=1",) * 2 + ("vary&ttl=10", "no-store")
"""What an object is, by its key modulo 10: mostly kept for 10 s, some revalidated each second, some vary, some never kept."""
_VARY = frozenset(i for i, options in enumerate(OPTIONS) if options.startswith("vary"))
_MOST_SUMS = 16_384
_WAYS = len(VARIANTS) + 1
_UNIT = 2.0**-53


class CacheConnection(Http1Connection):
    """A connection that knows which object its request asked for."""

    __slots__ = ("key", "variant")

    lane: CacheLane

    def assign(self, request_id: bytes, due: int, sent: int, scope: int) -> None:
        """Take a request; its slot says for what."""
        super().assign(request_id, due, sent, scope)
        self.key, self.variant = self.lane.choice(self.lane.pacer.index)


class CacheLane(Http1Lane):
    """Requests for cacheable objects, some often and most rarely, in every kind that a cache must tell apart.

    A cached answer echoes another request's id, so identity is not checked; the checksum is, and it depends on key and variant.
    """

    connection_type = CacheConnection

    def __init__(
        self, engine: Engine, spec: ClassSpec, load: LoadSlice, number: int, context: ssl.SSLContext | None
    ) -> None:
        self._seed = draw(load.seed, number)
        weights = (1.0 / rank**ZIPF_EXPONENT for rank in range(1, spec.cache_keys + 1))
        self._popularity = array("d", accumulate(weights))
        self._total = self._popularity[-1]
        self._sums: dict[int, int] = {}
        super().__init__(engine, spec, load, number, context)

    def _build_request(self, spec: ClassSpec) -> None:
        super()._build_request(spec)
        self.object_bytes = OBJECT_BYTES if spec.response_bytes is None else spec.response_bytes
        line = f"{spec.method} {spec.path} HTTP/1.1".encode("latin-1")
        rest = self.request_head.removeprefix(line)
        self._heads = [
            (line[:-9] + b"/k", f"/bytes/{self.object_bytes}?{options} HTTP/1.1".encode() + rest)
            for options in OPTIONS
        ]

    def _build_expectations(self, spec: ClassSpec) -> None:
        super()._build_expectations(spec)
        self.expect_length = self.object_bytes
        self.max_body = max(self.object_bytes, 64 * 1024)

    def choice(self, i: int) -> tuple[int, int]:
        """Return key and variant (0: none) of slot ``i``."""
        bits = draw(self._seed, i)
        key = bisect(self._popularity, (bits >> 11) * _UNIT * self._total)
        key = min(key, len(self._popularity) - 1)  # the product may round up to the total
        return key, 1 + (bits & 0x7FF) % len(VARIANTS) if key % len(OPTIONS) in _VARY else 0

    def compose(self, flight: Flight) -> bytes:
        """Return the request for the object of its slot."""
        connection = cast("CacheConnection", flight)
        before, after = self._heads[connection.key % len(OPTIONS)]
        head = before + b"%d" % connection.key + after + flight.request_id
        if connection.variant:
            head += b"\r\nX-Soak-Variant: " + VARIANTS[connection.variant - 1]
        return head + self.request_tail

    def expected_sum(self, key: int, variant: int) -> int:
        """Return the checksum of an object's body; the sums of the last thousands of objects are remembered."""
        place = key * _WAYS + variant
        known = self._sums.get(place)
        if known is None:
            if len(self._sums) >= _MOST_SUMS:
                self._sums.clear()
            name = VARIANTS[variant - 1].decode() if variant else ""
            known = self._sums[place] = zlib.crc32(cache_body(f"k{key}", name, self.object_bytes))
        return known

    def judge(self, flight: Flight) -> Outcome:
        """Compare status, length and checksum."""
        connection = cast("CacheConnection", flight)
        return classify.of_answer(
            status=flight.status,
            expected_status=self.expect_status,
            identity_ok=True,
            body_ok=flight.body_length == self.object_bytes
            and (
                not self.spec.check_body
                or flight.body_crc == self.expected_sum(connection.key, connection.variant)
            ),
        )

    def mismatch(self, flight: Flight) -> str:
        """Say what was asked for and what came; whose body it was, when it was another variant's."""
        connection = cast("CacheConnection", flight)
        key, variant = connection.key, connection.variant
        wanted = f"k{key}" + (f" variant {VARIANTS[variant - 1].decode()}" if variant else "")
        whose = ""
        for other in range(_WAYS):
            if other != variant and flight.body_crc == self.expected_sum(key, other):
                whose = (
                    f", the body of {f'variant {VARIANTS[other - 1].decode()}' if other else 'no variant'}"
                )
        return (
            f"asked for {wanted}; status {flight.status}, body {flight.body_length} bytes crc32 {flight.body_crc:08x}{whose}; "
            f"expected status {self.expect_status}, body {self.object_bytes} bytes "
            f"crc32 {self.expected_sum(key, variant):08x}"
        )
