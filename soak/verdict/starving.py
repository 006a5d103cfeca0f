"""Stretches in which other programs took the processors that the lab needed, as the daemon recorded them.

They excuse failures and take nothing from a pass: a proxy that kept its promises although it was starved has kept them.
"""

from __future__ import annotations

from soak.model import Unwell
from soak.store import StoreReader

_EVENT = "host.starved"


def starved(reader: StoreReader) -> list[Unwell]:
    """Return the stretches in order, each with its reason."""
    return [
        Unwell(
            float(event.data["from_s"]),
            float(event.data["to_s"]),
            f"other programs took {event.data['others']:.0%} of this host's processors and "
            f"{event.data['idle']:.0%} was idle, so the lab was starved",
        )
        for event in reader.events(_EVENT)
    ]
