"""What ``soak load`` is asked to send, and the traffic classes that this makes. Pure; refuses what cannot be carried out.

Two kinds of order: GET requests for any URL, whose answers are a stranger's (status and framing are what is checked); or named
shapes against a proxy that stands before our own origins (every check is on).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import SplitResult, quote, urlsplit

from soak.errors import PlanError, nearest
from soak.load.dial import client_context
from soak.load.traffic import ClassSpec, scheme_of, spec_of
from soak.plan import TrafficClassPlan
from soak.shapes import SHAPES

LAB_HOST = "soak.test"
"""Name of the site in soak's labs."""
_MAX_WORKERS = 16
_MOST_COALESCED_S = 0.005
"""Half of the lag past which a slot is missed."""
_PATH_SAFE = "/%:@!$&'()*+,;=~-._?[]"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")
_SHARE_SLACK = 1e-6
_OK = 200
_PIPE = "tls"
_MEANINGS = {"http": "plain", "https": "TLS", _PIPE: "a byte pipe"}
"""What is behind a URL, by scheme."""


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """What to send. ``connections`` bounds requests in flight (default: rate x the time that one may take)."""

    url: str
    rate: float
    seconds: float
    connections: int | None = None
    workers: int = 1
    arrivals: str = "uniform"
    seed: int = 1
    new_connections: bool = False
    """Open a connection for each request instead of keeping them."""
    status: int = _OK
    response_timeout_s: float = 10.0
    ca_file: str | None = None
    """Authority to trust instead of the system's."""
    traffic: Sequence[tuple[str, float]] = ()
    """Named shapes with their shares; none: GET requests for the URL."""
    other_url: str | None = None
    """The proxy's address of another scheme, for shapes that ``url`` does not fit."""
    third_url: str | None = None
    """The one of the last scheme."""
    coalesce_s: float | None = None
    """How long a due slot may wait for those behind it; None: as the rate suggests."""
    realtime: bool = True
    """Run before ordinary programs, where the kernel allows it."""
    host: str | None = None
    """Value of the Host header and, without its port, name asked for in TLS; default: the URL's, or the lab's for shapes."""


@dataclass(frozen=True, slots=True)
class _Address:
    text: str
    url: SplitResult
    host: str
    port: int

    @property
    def tls(self) -> bool:
        return self.url.scheme != "http"

    @property
    def authority(self) -> str:
        named = f"[{self.host}]" if ":" in self.host else self.host
        return named if self.url.port is None else f"{named}:{self.port}"


def parse_traffic(words: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """Return shapes and shares for ``["h2=0.5", "post", "slow"]``: who names no share gets an equal part of what is left.

    Raises ``PlanError`` for an unknown shape, one that is named twice, and shares that do not add up to 1.
    """
    shares: dict[str, float | None] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if name not in SHAPES:
            raise PlanError(f"there is no traffic shape {name!r}{nearest(name, SHAPES)}")
        if name in shares:
            raise PlanError(f"the traffic shape {name!r} is asked for twice; name each once, with its share")
        shares[name] = _share(word, text) if equals else None
    given = sum(share for share in shares.values() if share is not None)
    silent = sum(share is None for share in shares.values())
    left = 1.0 - given
    if silent and left < _SHARE_SLACK:
        raise PlanError(f"the shares add up to {given:g} already; nothing is left for the shapes without one")
    if shares and not silent and abs(left) > _SHARE_SLACK:
        raise PlanError(f"the shares of the traffic shapes add up to {given:g}; they must add up to 1")
    return tuple((name, left / silent if share is None else share) for name, share in shares.items())


def _share(word: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise PlanError(
            f"{word!r}: {text!r} is no share; write it like h2=0.5, more than 0 and at most 1"
        ) from None
    return share


def classes_of_order(order: LoadOrder) -> list[ClassSpec]:
    """Return the traffic classes of an order. Raises ``PlanError`` for one that cannot be carried out."""
    urls = (order.url, order.other_url, order.third_url)
    addresses = [address_of(text) for text in urls if text is not None]
    _check_numbers(order)
    if order.host is not None and not _NAME.fullmatch(order.host):
        raise PlanError(f"{order.host!r} is no host name; write it like soak.test or soak.test:8080")
    classes = _shapes_of(order, addresses) if order.traffic else [_plain_of(order, addresses)]
    if any(c.tls for c in classes):
        try:
            client_context(order.ca_file)
        except OSError as error:  # ssl.SSLError is one
            raise PlanError(f"{order.ca_file!r} is no file of PEM certificates to trust: {error}") from error
    return classes


def _check_numbers(order: LoadOrder) -> None:
    for name, value, low, top in (
        ("rate", order.rate, 0.001, 1e6),
        ("seconds", order.seconds, 0.001, 31 * 86_400),
        ("response timeout", order.response_timeout_s, 0.001, 3600),
    ):
        if not low <= value <= top:
            raise PlanError(f"{name} is {value:g}; it must be at least {low:g} and at most {top:,.0f}")
    if order.coalesce_s is not None and not 0 <= order.coalesce_s <= _MOST_COALESCED_S:
        raise PlanError(
            f"coalesce is {order.coalesce_s:g} s; it must be at most {_MOST_COALESCED_S:g} s, for a slot that is 0.01 s late is missed"
        )
    if not 1 <= order.workers <= _MAX_WORKERS:
        raise PlanError(f"workers is {order.workers}; it must be between 1 and {_MAX_WORKERS}")
    if order.connections is not None and order.connections < order.workers:
        raise PlanError(
            f"connections is {order.connections}; it must be at least 1 for each of {order.workers} workers"
        )


def _plain_of(order: LoadOrder, addresses: Sequence[_Address]) -> ClassSpec:
    """Return the class of GET requests for the URL."""
    at = addresses[0]
    if len(addresses) > 1:
        raise PlanError(
            f"{order.other_url!r} is a second URL; several are for --traffic with shapes of several schemes"
        )
    if at.url.scheme == _PIPE:
        raise PlanError(f"{at.text!r} is the address of a byte pipe; it is for --traffic l4")
    query = f"?{quote(at.url.query, safe=_PATH_SAFE)}" if at.url.query else ""
    return ClassSpec(
        name="url",
        rate=order.rate,
        host=at.host,
        port=at.port,
        authority=order.host or at.authority,
        tls=at.tls,
        server_name=_without_port(order.host) if order.host else at.host,
        connection="new" if order.new_connections else "reuse",
        path=quote(at.url.path or "/", safe=_PATH_SAFE) + query,
        check_body=False,
        check_identity=False,
        status=order.status,
    )


def _shapes_of(order: LoadOrder, addresses: Sequence[_Address]) -> list[ClassSpec]:
    """Return a class for each shape, sent to the URL whose scheme it needs: ``http``, ``https``, or ``tls`` for a byte pipe."""
    by_scheme = {at.url.scheme: at for at in addresses}
    if len(by_scheme) < len(addresses):
        same = " and ".join(repr(at.text) for at in addresses)
        raise PlanError(f"{same} have the same scheme; give one, or one of each")
    for at in addresses:
        if at.url.path not in ("", "/") or at.url.query:
            raise PlanError(f"{at.text!r} has a path, but each shape asks for its own; leave the path out")
    if order.new_connections or order.status != _OK:
        raise PlanError(
            "a shape says itself how it connects and which status it expects; leave that out with --traffic"
        )
    authority = order.host or LAB_HOST
    classes = []
    for name, share in order.traffic:
        shape = TrafficClassPlan.model_validate({"shape": name, "share": share})
        wanted = scheme_of(shape)
        if wanted not in by_scheme:
            raise PlanError(
                f"the shape {name!r} needs the proxy's {wanted}:// URL, but {order.url!r} is {_MEANINGS[addresses[0].url.scheme]}; "
                "give that one, or both"
            )
        at = by_scheme[wanted]
        made = spec_of(shape, order.rate, host=at.host, port=at.port, authority=authority)
        classes.append(replace(made, server_name=_without_port(authority)))
    return classes


def _without_port(authority: str) -> str:
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]


def address_of(text: str) -> _Address:
    """Return a URL's parts, its host in ASCII and its port. Raises ``PlanError`` for what cannot be loaded."""
    example = "write it like http://127.0.0.1:8080/path"
    try:
        url = urlsplit(text)
        port = url.port
        host = url.hostname or ""
        if not host.isascii():
            host = host.encode("idna").decode()
    except (ValueError, UnicodeError) as error:
        raise PlanError(f"{text!r} is not a URL to load ({error}); {example}") from error
    if url.scheme not in _MEANINGS or not host or any(c <= " " for c in host):
        raise PlanError(f"{text!r} is not a URL to load; {example}")
    if port == 0:
        raise PlanError(f"{text!r} names port 0, on which nothing can listen; {example}")
    if url.username is not None:
        raise PlanError(f"{text!r} carries a user name, which is not sent; {example}")
    return _Address(text, url, host, port or (80 if url.scheme == "http" else 443))
