"""What does not change while a run lives, written down once: in the store for the report, in ``live.json`` for other tools."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from soak.clock import iso_utc
from soak.lab.base import Lab
from soak.live import Facts
from soak.plan import Plan


class KeepsMeta(Protocol):
    """A store that keeps named JSON."""

    def set_meta(self, key: str, value: Any) -> None:
        """Keep it."""
        ...


def facts_of(run_id: str, lab: Lab, *, started_wall_s: float, http_url: str) -> Facts:
    """Return what does not change while this process runs it, with a lab that is up."""
    address = lab.proxy_address
    return Facts(
        run_id=run_id,
        pid=os.getpid(),
        started_at=iso_utc(started_wall_s),
        proxy_version=lab.proxy_version,
        proxy_url=f"https://{address.host}:{address.https_port}",
        http_url=http_url,
        proxy_metrics_url=address.metrics_url,
    )


def describe_run(
    store: KeepsMeta,
    plan: Plan,
    facts: Facts,
    *,
    t0_ns: int,
    started_wall_s: float,
    fault_shapes: Mapping[str, str],
) -> None:
    """Write down what was run, with what, and since when. ``t0_ns`` is of CLOCK_MONOTONIC."""
    run = {
        "id": facts.run_id,
        "started_at": facts.started_at,
        "started_wall_s": started_wall_s,
        "seed": plan.seed,
        "proxy": plan.proxy.label,
        "proxy_version": facts.proxy_version,
        "lab": plan.lab.kind,
        "rate": plan.rate,
        "length_s": plan.length,
        "proxy_metrics_url": facts.proxy_metrics_url or None,
    }
    store.set_meta("run", run)
    store.set_meta("plan", plan.model_dump(mode="json", by_alias=True))
    store.set_meta("t0", {"monotonic_ns": t0_ns, "wall_s": started_wall_s})
    store.set_meta("fault_shapes", dict(fault_shapes))


def write_live(path: Path, facts: Facts, t0_ns: int) -> None:
    """Leave the addresses of the live run for other tools; whole or not at all."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({**asdict(facts), "t0_ns": t0_ns}, indent=1) + "\n")
    fresh.replace(path)
