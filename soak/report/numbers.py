"""How numbers are spelled for people: short, with their unit, never more precise than they are."""

from __future__ import annotations

_MIB = 1024 * 1024
_DASH = "-"


def count(n: float | None) -> str:
    """Return ``86,398,211``."""
    return _DASH if n is None else f"{n:,.0f}"


def percent(share: float | None) -> str:
    """Return ``99.998 %``, ``0.00021 %``, ``0 %``: never rounded to a whole that it is not."""
    if share is None:
        return _DASH
    value = share * 100
    if value in (0, 100):
        return f"{value:.0f} %"
    if value > 99.9:
        return f"{min(value, 99.999):.3f} %"
    return f"{value:.2g} %" if value < 0.1 else f"{value:.4g} %"


def millis(ms: float | None) -> str:
    """Return ``0.42 ms``, ``9.8 ms``, ``412 ms``, ``1.20 s``."""
    if ms is None:
        return _DASH
    if ms >= 1000:
        return f"{ms / 1000:.2f} s"
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms" if ms >= 1 else f"{ms:.2f} ms"


def seconds(s: float | None) -> str:
    """Return ``0.08 s``, ``2.2 s``, ``31 s``."""
    if s is None:
        return _DASH
    return f"{s:.2f} s" if s < 1 else f"{s:.1f} s" if s < 10 else f"{s:.0f} s"


def length(s: float | None) -> str:
    """Return ``24 h``, ``1 h 30 min``, ``2 min``, ``45 s``."""
    if s is None:
        return _DASH
    minutes, rest = divmod(round(s), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{n} {unit}" for n, unit in ((hours, "h"), (minutes, "min"), (rest, "s")) if n]
    return " ".join(parts[:2]) or "0 s"


def instant(s: float | None) -> str:
    """Return ``9h20m00s``, ``12m05s``, ``41.3s``: an instant of the run."""
    if s is None:
        return _DASH
    if s < 60:
        return f"{s:.1f}s"
    minutes, rest = divmod(int(s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m{rest:02d}s" if hours else f"{minutes}m{rest:02d}s"


def mebibytes(n: float | None) -> str:
    """Return ``84 MiB``, ``0.3 MiB``."""
    if n is None:
        return _DASH
    value = n / _MIB
    return f"{value:.0f} MiB" if abs(value) >= 10 else f"{value:.1f} MiB"


def measure(value: float | None, unit: str) -> str:
    """Return an objective's value or limit with its unit."""
    if value is None:
        return _DASH
    if unit == "share":
        return percent(value)
    if unit == "s":
        return length(value) if value >= 60 else seconds(value)
    return f"{value:,.4g}" if value != int(value) else count(value)
