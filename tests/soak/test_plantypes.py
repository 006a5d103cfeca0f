"""Durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soak.plantypes import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("spelled", "seconds"),
    [
        ("15m", 900.0),
        ("1h30m", 5400.0),
        ("250ms", 0.25),
        ("2d", 172_800.0),
        ("90", 90.0),
        (1.5, 1.5),
        ("1.5h", 5400.0),
    ],
)
def test_a_duration_reads_as_people_write_it(spelled, seconds):
    """Units from days to milliseconds, or plain seconds."""
    assert parse_duration(spelled) == seconds


@pytest.mark.parametrize("wrong", ["", "soon", "5 parsecs", "-1s", -1, "inf", "nan", True, None, "1h 2x"])
def test_what_is_no_duration_is_refused_with_its_value(wrong):
    """The message shows the value."""
    with pytest.raises(ValueError, match="duration"):
        parse_duration(wrong)


@given(st.integers(0, 10_000_000_000))
def test_a_duration_survives_its_spelling(ms):
    """Spelled and read again, to the millisecond."""
    assert abs(parse_duration(format_duration(ms / 1000)) - ms / 1000) < 0.0005


@pytest.mark.parametrize(
    ("seconds", "spelled"),
    [(0, "0s"), (90, "1m30s"), (0.25, "250ms"), (0.0001, "0.1ms"), (0.0015, "1.5ms"), (0.0995, "99.5ms")],
)
def test_a_duration_is_spelled_shortly(seconds, spelled):
    """The shortest exact form; small ones as a fraction of a millisecond."""
    assert format_duration(seconds) == spelled


@pytest.mark.parametrize(
    ("written", "size", "spelled"),
    [
        ("1GiB", 1024**3, "1GiB"),
        ("512m", 512 * 1024**2, "512MiB"),
        (1536, 1536, "1536"),
        ("1.5k", 1536, "1536"),
        (0, 0, "0"),
    ],
)
def test_sizes_are_read_and_spelled(written, size, spelled):
    """As people write them; spelled exactly."""
    assert size == parse_size(written)
    assert spelled == format_size(size)
    assert size == parse_size(spelled)


@pytest.mark.parametrize("written", ["much", "-1", True, "1 parsec", ""])
def test_what_is_no_size_is_refused(written):
    """With the value and how to write it."""
    with pytest.raises(ValueError, match=r"is not a size; write it like 512MiB"):
        parse_size(written)


@pytest.mark.parametrize("text", ["99999999999999999999TiB", "9" * 400])
def test_a_size_that_no_machine_has_is_refused(text):
    """Before it overflows where it is used."""
    with pytest.raises(ValueError, match="is more than any machine has; write it like 512MiB or 1GiB"):
        parse_size(text)


def test_a_number_of_hundreds_of_digits_is_no_duration():
    """Nor an overflow."""
    with pytest.raises(ValueError, match="a number of more than 308 digits is not a duration"):
        parse_duration(10**400)
