"""Resources that a proxy may cache: ``/cache/KEY/bytes/N?...``. Pure.

The body depends on the key, the length and, with ``vary``, on ``X-Soak-Variant``, and on nothing else, so an answer can be checked
whoever gives it. It carries no request id: a cached answer would echo somebody else's. Who was asked is counted here, at
the origin; the hit rate is 1 - answers of the origins / requests, whatever the proxy's own headers say.

Options, in the query, in any order: ``ttl=SECONDS`` (``Cache-Control: max-age``, default 60), ``no-store``, ``etag`` (ETag and
Last-Modified; answered with 304 when the client has it), ``vary`` (``Vary: X-Soak-Variant``). Others are part of the key
of a cache and mean nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from soak.lab.shared import CACHE, CACHE_KINDS
from soak.load.traffic import cache_body
from soak.proxies.base import VARIANT_HEADER

MAX_KEPT_BYTES = 4096
"""Longest body that is kept ready; 512 of them at most."""
LAST_MODIFIED = b"Mon, 01 Jan 2024 00:00:00 GMT"
_DEFAULT_TTL_S = 60
_MAX_TTL_S = 31_536_000


@dataclass(frozen=True, slots=True)
class Cacheable:
    """What to answer. ``column`` is where it is counted."""

    status: int
    body: Sequence[bytes]
    length: int
    headers: bytes
    """Header lines, each after its line break."""
    column: int


def cacheable(key: bytes, n: int, query: bytes, headers: Mapping[bytes, bytes]) -> Cacheable | None:
    """Decide the answer to a request for a cacheable resource; None for options that make no sense.

    ``headers`` are those of the request that matter, by lower-case name.
    """
    options = dict(_option(text) for text in query.split(b"&") if text)
    ttl = options.get(b"ttl", b"%d" % _DEFAULT_TTL_S)
    if not ttl.isdigit() or len(ttl) > 9:
        return None
    variant = headers.get(VARIANT_HEADER.lower().encode(), b"") if b"vary" in options else b""
    kind = _kind(options)
    lines = [b"no-store" if kind == "no-store" else b"max-age=%d" % min(int(ttl), _MAX_TTL_S)]
    lines[0] = b"Cache-Control: " + lines[0]
    if b"vary" in options:
        lines.append(b"Vary: " + VARIANT_HEADER.encode())
    column = CACHE + 2 * CACHE_KINDS.index(kind)
    unchanged = False
    if b"etag" in options:
        tag = _tag(key, variant, n)
        lines += [b"ETag: " + tag, b"Last-Modified: " + LAST_MODIFIED]
        unchanged = _has_it(headers, tag)
    text = b"".join(b"\r\n" + line for line in lines)
    if unchanged:
        return Cacheable(304, (), 0, text, column + 1)
    return Cacheable(200, (_body(key, variant, n),), n, text, column)


def _option(text: bytes) -> tuple[bytes, bytes]:
    name, _, value = text.partition(b"=")
    return name, value


def _kind(options: Mapping[bytes, bytes]) -> str:
    """Return the last kind that applies, in the order of ``CACHE_KINDS``."""
    return next((kind for kind in reversed(CACHE_KINDS) if kind.encode() in options), "plain")


def _has_it(headers: Mapping[bytes, bytes], tag: bytes) -> bool:
    """Tell whether the client named the present version (RFC 9110 section 13.2.2: If-None-Match comes first)."""
    if (known := headers.get(b"if-none-match")) is not None:
        return known.strip() == b"*" or tag in (
            candidate.strip().removeprefix(b"W/") for candidate in known.split(b",")
        )
    return headers.get(b"if-modified-since") == LAST_MODIFIED


def _tag(key: bytes, variant: bytes, n: int) -> bytes:
    return b'"%s"' % sha256(b"%s\0%s\0%d" % (key, variant, n)).hexdigest()[:16].encode()


def _body(key: bytes, variant: bytes, n: int) -> bytes:
    if n <= MAX_KEPT_BYTES:
        return _kept(key, variant, n)
    return cache_body(key.decode("latin-1"), variant.decode("latin-1"), n)


@lru_cache(maxsize=512)
def _kept(key: bytes, variant: bytes, n: int) -> bytes:
    return cache_body(key.decode("latin-1"), variant.decode("latin-1"), n)
