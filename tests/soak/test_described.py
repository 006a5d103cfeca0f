"""What a run writes down of itself at its start."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

from soak.described import describe_run, facts_of, write_live
from soak.lab.base import Lab
from soak.live import Facts
from soak.plan import Plan
from tests.soak.fakelab import FakeLab

FACTS = Facts(
    "r1",
    12,
    "2026-12-01T08:00:00Z",
    "1.31.3",
    "https://127.0.0.1:1",
    "http://127.0.0.1:2",
    "http://127.0.0.1:3/metrics",
)


class Kept(dict[str, Any]):
    """A store's meta, in memory."""

    def set_meta(self, key: str, value: Any) -> None:
        self[key] = value


def test_the_store_says_what_was_run_with_what_and_since_when():
    """Enough to judge the run again, offline; the plan reads back as it was."""
    kept, plan = Kept(), Plan(rate=500, seed=7)
    describe_run(kept, plan, FACTS, t0_ns=5, started_wall_s=9.5, fault_shapes={"reload": "transition"})
    assert ("r1", "nginx", "1.31.3", "local", 500, 7) == tuple(
        kept["run"][key] for key in ("id", "proxy", "proxy_version", "lab", "rate", "seed")
    )
    assert "http://127.0.0.1:3/metrics" == kept["run"]["proxy_metrics_url"]
    assert {"monotonic_ns": 5, "wall_s": 9.5} == kept["t0"]
    assert {"reload": "transition"} == kept["fault_shapes"]
    assert plan == Plan.model_validate(json.loads(json.dumps(kept["plan"])))


def test_facts_are_those_of_the_lab_and_of_this_process(tmp_path: Path):
    """The start in UTC, the proxy over TLS, its own metrics where it has some."""
    lab = cast("Lab", FakeLab(tmp_path / "certs", 8443))
    found = facts_of("r1", lab, started_wall_s=0.0, http_url="http://127.0.0.1:2")
    addresses = ("https://127.0.0.1:8443", "http://127.0.0.1:2", "http://metrics")
    assert Facts("r1", os.getpid(), "1970-01-01T00:00:00Z", "1.2.3", *addresses) == found


def test_the_addresses_of_a_live_run_are_left_whole(tmp_path: Path):
    """A reader never sees half a file, and no other file stays."""
    write_live(tmp_path / "live.json", FACTS, 5)
    assert (12, 5) == tuple(json.loads((tmp_path / "live.json").read_text())[key] for key in ("pid", "t0_ns"))
    assert FACTS.proxy_metrics_url == json.loads((tmp_path / "live.json").read_text())["proxy_metrics_url"]
    assert ["live.json"] == [path.name for path in tmp_path.iterdir()]
