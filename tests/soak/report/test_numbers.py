"""How numbers are spelled for people."""

from __future__ import annotations

import pytest

from soak.report.numbers import count, instant, length, measure, mebibytes, millis, percent, seconds


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("86,398,211", count(86_398_211)),
        ("99.998 %", percent(86_398_211 / 86_400_000)),
        ("99.999 %", percent(0.9999999)),
        ("100 %", percent(1.0)),
        ("0.00021 %", percent(181 / 86_398_211)),
        ("0 %", percent(0.0)),
        ("12.5 %", percent(0.125)),
        ("0.42 ms", millis(0.42)),
        ("9.8 ms", millis(9.8)),
        ("412 ms", millis(412)),
        ("1.20 s", millis(1200)),
        ("0.08 s", seconds(0.08)),
        ("2.2 s", seconds(2.2)),
        ("31 s", seconds(31.4)),
        ("24 h", length(86_400)),
        ("1 h 30 min", length(5400)),
        ("45 s", length(45)),
        ("0 s", length(0)),
        ("9h20m00s", instant(33_600)),
        ("84 MiB", mebibytes(84 * 2**20)),
        ("0.3 MiB", mebibytes(0.3 * 2**20)),
        ("2 min", measure(120, "s")),
        ("0.05 %", measure(0.0005, "share")),
        ("1.2", measure(1.2, "ratio")),
        ("-", measure(None, "s")),
    ],
)
def test_numbers_are_spelled_for_people(expected, got):
    """Short, with their unit, and never rounded to a whole that they are not."""
    assert expected == got


@pytest.mark.parametrize("spell", [count, percent, millis, seconds, length, instant, mebibytes])
def test_what_is_unknown_is_a_dash(spell):
    """Never a zero."""
    assert "-" == spell(None)
