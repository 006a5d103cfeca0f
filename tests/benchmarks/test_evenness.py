"""Bursts and even spacing, told apart from the server's own stamps."""

from benchmarks.load.evenness import evenness_of


def log(stamps_ms):
    return "\n".join(f"{1_700_000_000 + ms // 1000}.{ms % 1000:03d}" for ms in stamps_ms)


def test_even_spacing():
    """Ten in every millisecond."""
    found = evenness_of(log([ms for ms in range(2001) for _ in range(10)]))
    assert found is not None
    assert (1000, 10_000, 0.0, 10) == (found.milliseconds, found.requests, found.empty_share, found.most)


def test_bursts():
    """Fifty every five milliseconds are the same rate, but four of five milliseconds are empty."""
    found = evenness_of(log([ms for ms in range(0, 2001, 5) for _ in range(50)]))
    assert found is not None
    assert (10_000, 0.8, 50) == (found.requests, round(found.empty_share, 9), found.most)


def test_too_little_is_nothing():
    """Neither an empty file nor half a second says anything."""
    assert evenness_of("") is None
    assert evenness_of(log(range(500))) is None
