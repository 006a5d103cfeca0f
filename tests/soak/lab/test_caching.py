"""What an origin says of cacheable resources, and that both sides compute the same body."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soak.lab.caching import LAST_MODIFIED, MAX_KEPT_BYTES, Cacheable, cacheable
from soak.lab.shared import CACHE, NAMES
from soak.load.traffic import cache_body


def ask(query: bytes, n: int = 100, key: bytes = b"k1", **headers: bytes) -> Cacheable:
    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    found = cacheable(key, n, query, named)
    assert found is not None
    return found


def lines(found: Cacheable) -> dict[bytes, bytes]:
    pairs = (line.partition(b": ") for line in found.headers.split(b"\r\n")[1:])
    return {name: value for name, _, value in pairs}


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20), st.integers(16, 3000))
def test_bodies_differ_when_key_or_variant_do(a, b, variant, n):
    """From 16 bytes on; otherwise a cache that mixes them up would not show."""
    assert n == len(cache_body(a, variant, n))
    assert (a == b) is (cache_body(a, variant, n) == cache_body(b, variant, n))
    assert (a == variant) is (cache_body("k", a, n) == cache_body("k", variant, n))


def test_a_key_and_a_variant_are_not_one_text():
    """("ab", "c") is not ("a", "bc"), also far behind the label."""
    assert cache_body("ab", "c", 500) != cache_body("a", "bc", 500)
    assert cache_body("k1", "", 9000)[64:] != cache_body("k2", "", 9000)[64:]


@pytest.mark.parametrize("n", [0, 15, MAX_KEPT_BYTES, MAX_KEPT_BYTES + 1, 100_000])
def test_the_body_is_the_one_that_clients_expect(n):
    """Kept ready or made on demand."""
    found = ask(b"", n)

    assert (200, n, (cache_body("k1", "", n),)) == (found.status, found.length, tuple(found.body))


@pytest.mark.parametrize(
    ("expected", "column", "query"),
    [
        ({b"Cache-Control": b"max-age=60"}, "cache_plain_full", b""),
        ({b"Cache-Control": b"max-age=5"}, "cache_plain_full", b"ttl=5"),
        ({b"Cache-Control": b"max-age=0"}, "cache_plain_full", b"x=1&ttl=0&&y"),
        ({b"Cache-Control": b"max-age=31536000"}, "cache_plain_full", b"ttl=999999999"),
        ({b"Cache-Control": b"no-store"}, "cache_no-store_full", b"no-store&ttl=5"),
        ({b"Cache-Control": b"no-store"}, "cache_no-store_full", b"no-store=1"),
        ({b"Cache-Control": b"max-age=9", b"Vary": b"X-Soak-Variant"}, "cache_vary_full", b"vary&ttl=9"),
    ],
)
def test_options_are_headers_and_kinds(expected, column, query):
    """In any order; unknown ones mean nothing."""
    found = ask(query)

    assert expected == lines(found)
    assert column == NAMES[found.column]


@pytest.mark.parametrize("query", [b"ttl=", b"ttl=-1", b"ttl=1s", b"ttl=1234567890"])
def test_a_ttl_that_is_no_number_is_refused(query):
    """A typo in a plan must not become a default."""
    assert cacheable(b"k", 1, query, {}) is None


def test_a_client_that_has_it_is_told_so():
    """By ETag, in a list, weak, or any; by date only without an ETag (RFC 9110 section 13.2.2)."""
    tag = lines(ask(b"etag"))[b"ETag"]
    assert {b"Cache-Control", b"ETag", b"Last-Modified"} == set(lines(ask(b"etag")))

    for known in (tag, b'"other", ' + tag, b"W/" + tag, b"*"):
        found = ask(b"etag", if_none_match=known)
        assert (304, 0, ()) == (found.status, found.length, tuple(found.body))
        assert "cache_etag_not_modified" == NAMES[found.column]
        assert tag == lines(found)[b"ETag"]
    assert 200 == ask(b"etag", if_none_match=b'"other"', if_modified_since=LAST_MODIFIED).status
    assert 304 == ask(b"etag", if_modified_since=LAST_MODIFIED).status
    assert 200 == ask(b"", if_none_match=tag).status


def test_tags_and_bodies_follow_the_variant_only_with_vary():
    """Without it the header is ignored, as a server that does not vary would."""
    one, two = (ask(b"vary&etag", x_soak_variant=v) for v in (b"one", b"two"))

    assert lines(one)[b"ETag"] != lines(two)[b"ETag"]
    assert (cache_body("k1", "one", 100),) == tuple(one.body) != tuple(two.body)
    assert (cache_body("k1", "", 100),) == tuple(ask(b"etag", x_soak_variant=b"one").body)
    assert "cache_vary_full" == NAMES[one.column]


def test_columns_are_counters_of_the_cache():
    """Two for each kind, the last ones of a row."""
    assert ["cache_plain_full", "cache_plain_not_modified"] == list(NAMES[CACHE : CACHE + 2])
    assert CACHE + 8 == len(NAMES)
