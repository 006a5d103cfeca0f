"""What the fields of a plan are made of: durations, shares, and a base that is immutable and refuses unknown keys."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)(d|h|ms|m|s)\s*)")
_UNIT_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def parse_duration(value: object) -> float:
    """Return seconds for ``"15m"``, ``"1h30m"``, ``"250ms"``, or a plain number of seconds.

    Raises ``ValueError`` with the value and the rule for anything else, for negative and for non-finite numbers.
    """
    if value is None or isinstance(value, bool):
        shown = "nothing (an empty value)" if value is None else str(value).lower()
        raise ValueError(f"{shown} is not a duration; write it like 30s, 15m, 1h30m or 250ms")
    if isinstance(value, int | float):
        try:
            seconds = float(value)
        except OverflowError:  # an integer of more than 308 digits
            raise ValueError("a number of more than 308 digits is not a duration") from None
    else:
        text = str(value).strip().lower()
        parts = _DURATION.findall(text)
        if parts and _DURATION.sub("", text) == "":
            seconds = sum(float(n) * _UNIT_S[unit] for n, unit in parts)
        else:
            try:
                seconds = float(text)
            except ValueError:
                raise ValueError(
                    f"{value!r} is not a duration; write it like 30s, 15m, 1h30m or 250ms"
                ) from None
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{value!r} is not a duration: it must be zero or more and finite")
    return seconds


_FINE_S = 0.1


def format_duration(seconds: float) -> str:
    """Return the shortest spelling, exact to the millisecond, below a tenth of a second to six digits.

    ``90.0`` -> ``"1m30s"``, ``0.25`` -> ``"250ms"``, ``0.0002`` -> ``"0.2ms"``.
    """
    if seconds < _FINE_S:
        return f"{seconds * 1000:g}ms" if seconds else "0s"
    whole, ms = divmod(round(seconds * 1000), 1000)
    out = ""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        n, whole = divmod(whole, size)
        if n:
            out += f"{n}{unit}"
    return out + (f"{ms}ms" if ms else "")


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": ["string", "number"], "examples": ["30s", "15m", "1h30m", "250ms"]}),
]
"""Seconds as a float; spelled ``15m`` in YAML."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
_UNIT_BYTES = {"k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


MAX_SIZE = 2**50
"""A pebibyte: what is larger is a slip of the hand, and past 2^63 no engine can be told."""


def parse_size(value: object) -> int:
    """Return bytes for ``"512MiB"``, ``"1g"``, or a plain number of bytes. Raises ``ValueError`` with the value and the rule."""
    found = None if isinstance(value, bool) else _SIZE.fullmatch(str(value).strip())
    if found is None:
        raise ValueError(f"{value!r} is not a size; write it like 512MiB or 1GiB")
    size = float(found[1]) * _UNIT_BYTES.get((found[2] or "").lower(), 1)
    if size > MAX_SIZE:
        raise ValueError(
            f"a size of {size:g} bytes is more than any machine has; write it like 512MiB or 1GiB"
        )
    return int(size)


def format_size(size: int) -> str:
    """Return the shortest exact spelling: ``1073741824`` -> ``"1GiB"``."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


Size = Annotated[
    int,
    BeforeValidator(parse_size),
    PlainSerializer(format_size, return_type=str, when_used="json"),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["512MiB", "1GiB"]}),
]
"""Bytes as an integer; spelled ``1GiB`` in YAML."""

Share = Annotated[float, Field(gt=0, le=1)]


class Frozen(BaseModel):
    """Base of everything in a plan: immutable, and unknown keys and numbers that are not finite are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
