"""One vital of several parts: a proxy with what stands beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from soak.model import Vital


def together(parts: Sequence[Vital]) -> Vital:
    """Return the sum of looks at the parts of one subject, the first of which gives its name.

    All zeroes when one of them does not run: then it is not whole.
    """
    first, *others = parts
    if not others:
        return first
    if not all(part.processes for part in parts):
        return Vital(first.at_s, first.subject, rss_bytes=0, cpu_s=0.0, fds=0, processes=0)
    return Vital(
        at_s=first.at_s,
        subject=first.subject,
        rss_bytes=sum(part.rss_bytes for part in parts),
        cpu_s=sum(part.cpu_s for part in parts),
        fds=sum(part.fds for part in parts),
        processes=sum(part.processes for part in parts),
        old_processes=sum(part.old_processes for part in parts),
        detail=_details(parts),
        members=[member for part in parts for member in part.members],
    )


def _details(parts: Sequence[Vital]) -> dict[str, Any]:
    """Return what is said of the first, with roles and kills of all; what could not be read of one was not read."""
    detail: dict[str, Any] = {}
    roles: Counter[str] = Counter()
    kills = 0
    for part in reversed(parts):
        detail |= part.detail
        roles.update(part.detail.get("roles", {}))
        kills += int(part.detail.get("oom_kills", 0))
    return {**detail, "roles": dict(roles), **({"oom_kills": kills} if "oom_kills" in detail else {})}
