"""What both sides of a request agree on: slices as JSON, known bodies, classes of a plan."""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soak.load.traffic import ClassSpec, LoadSlice, cache_body, classes_of, pattern, spec_of
from soak.plan import Plan, TrafficClassPlan
from soak.shapes import SHAPES


def test_a_slice_survives_the_pipe():
    """As JSON, header pairs included."""
    spec = ClassSpec("a", 5.0, "127.0.0.1", 80, "x", headers=(("X-A", "1"),), hosts=3)
    load = LoadSlice(worker=1, workers=2, t0_ns=5, seconds=1, seed=1, classes=[spec], lost={"a": 2})
    assert load == LoadSlice.from_json(json.loads(json.dumps(load.to_json())))


@given(st.integers(0, 40_000), st.integers(0, 40_000))
def test_patterns_are_prefixes_of_each_other(m, n):
    """The first bytes of a longer one are the shorter one."""
    short, long = sorted((m, n))
    assert pattern(long).startswith(pattern(short))
    assert len(pattern(long)) == long


def test_a_shifted_or_repeated_block_changes_the_checksum():
    """What a proxy might do to a body."""
    body = pattern(4096)
    assert zlib.crc32(body[256:] + body[:256]) != zlib.crc32(body)
    assert zlib.crc32(body[:1024] * 4) != zlib.crc32(body)


@given(st.text(min_size=1, max_size=8), st.text(max_size=4), st.integers(16, 3000))
def test_cacheable_bodies_tell_key_and_variant_apart(key, variant, n):
    """From 16 bytes on, a cache that mixes two up is seen."""
    assert len(cache_body(key, variant, n)) == n
    assert cache_body(key, variant, n) != cache_body(f"{key}x", variant, n)
    assert cache_body(key, variant, n) != cache_body(key, f"{variant}x", n)


def test_classes_share_the_rate_and_go_to_the_port_of_their_kind():
    """TLS to one port, plain to the other."""
    plan = Plan.model_validate(
        {
            "rate": 200,
            "traffic": {"classes": [{"shape": "h2", "share": 0.25}, {"shape": "churn", "share": 0.75}]},
        }
    )
    h2, churn = classes_of(plan, host="127.0.0.1", http_port=80, https_port=443, authority="soak.test")
    assert ("h2", 50.0, 443, 16) == (h2.protocol, h2.rate, h2.port, h2.streams)
    assert ("http1", 150.0, 80, True) == (churn.protocol, churn.rate, churn.port, churn.spread_sources)


def test_a_class_through_the_pipe_goes_to_its_port():
    """With TLS, for the pipe ends at the origin's."""
    plan = Plan.model_validate({"traffic": {"classes": [{"shape": "l4", "share": 1}]}})
    ports = {"http_port": 80, "https_port": 443, "tcp_port": 4443}
    (pipe,) = classes_of(plan, host="127.0.0.1", authority="soak.test", **ports)
    assert (4443, True, "l4", "/bytes/1024") == (pipe.port, pipe.tls, pipe.through, pipe.path)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_streaming_class_has_time_for_its_body(shape):
    """Only that one has a limit of its own."""
    c = TrafficClassPlan.model_validate({"shape": shape, "share": 1})
    spec = spec_of(c, 10.0, host="h", port=1, authority="h")
    assert (spec.body_timeout_s is not None) == (shape == "stream")
