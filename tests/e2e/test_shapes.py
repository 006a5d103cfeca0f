"""Every traffic shape against a real lab, as a user types it; and what only the origins can tell of a whole run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from soak.shapes import SHAPES
from tests.e2e.runs import SOAK, soak, started, wait_for

pytestmark = pytest.mark.e2e
HELD = 0.8
"""Share of slots that a busy test machine must send; outcomes have no such slack."""


@dataclass
class Lab:
    """`soak lab` as it says of itself."""

    home: Path
    facts: dict[str, Any]

    def load(self, *words: str, rate: float, seconds: float = 2, timeout: float = 100) -> dict[str, Any]:
        """Run `soak load` against all URLs of the proxy and return what it found."""
        urls = (
            *(self.facts[f"{scheme}_url"] for scheme in ("http", "https", "tls")),
            "--ca",
            self.facts["ca_file"],
            "--json",
        )
        length = ("--rate", str(rate), "--seconds", str(seconds))
        done = soak(self.home, "load", *urls, *length, *words, timeout=timeout)
        assert done.returncode in (0, 3), (
            done.stdout + done.stderr
        )  # 3: the machine was too busy for the rate
        result: dict[str, Any] = json.loads(done.stdout)
        assert [] == result["violations"]
        return result


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    home = tmp_path_factory.mktemp("lab")
    env = {**os.environ, "SOAK_HOME": str(home)}
    command = [*SOAK, "lab", "--routes", "1000", "--json"]
    with (home / "lab.json").open("w") as out, (home / "lab.err").open("w") as err:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=err, start_new_session=True)
    try:
        text = wait_for((home / "lab.json").read_text, 40, "the lab saying where it is")
        family = psutil.Process(process.pid).children(recursive=True)
        yield Lab(home, json.loads(text))
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, (home / "lab.err").read_text()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert [] == alive


def checked(result: dict[str, Any], *names: str) -> dict[str, Any]:
    """Assert that every request of every class ended well and was counted; return the load."""
    load: dict[str, Any] = result["load"]
    assert set(names) == set(load["classes"])
    for part in (load, *load["classes"].values()):
        assert {"ok": part["sent"]} == part["outcomes"], load["examples"]
        assert part["scheduled"] == part["sent"] + part["dropped"] + part["missed"]
        assert part["sent"] >= HELD * part["scheduled"] > 0
        assert 0 < part["latency_ms"]["p50"] <= part["latency_ms"]["p99"] <= part["latency_ms"]["max"]
    return load


RATES = {"large-1m": 15, "large-100k": 40, "stream": 5, "slow": 40, "tls-new": 30, "tls-resumed": 30}
"""Requests per second, where 60 are too many for two seconds on any machine."""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_request_of_a_shape_ends_well(lab: Lab, shape: str) -> None:
    """Identity, length and checksum of each answer are checked; the class has statistics of its own."""
    rate = RATES.get(shape, 60)
    result = lab.load("--traffic", shape, rate=rate)
    load = checked(result, shape)
    assert 2 * rate == load["scheduled"]
    assert 0 == result["duplicates"]
    if shape == "stream":
        assert result["waited_s"] > 20
        assert load["latency_ms"]["p50"] < 10_000  # to the first byte
    else:
        assert result["waited_s"] < 20
    match shape:
        case "single":
            assert {"b1"} == set(result["origins"])
        case "balance":
            assert {"b1", "b2", "b3"} == set(result["origins"])
            assert all(0.2 < o["share"] < 0.5 for o in result["origins"].values())
        case "slow":
            assert load["latency_ms"]["p50"] >= 100
        case "churn" | "tls-new":
            assert load["sent"] == result["connections"]["opened"]
        case "tls-resumed":
            assert result["connections"]["tls_resumed"] > 0
        case "h2":
            assert result["connections"]["opened"] <= 16


@pytest.mark.timeout(240)
def test_several_shapes_share_the_rate_of_several_workers(lab: Lab) -> None:
    """Each has its share; gaps are random, the totals of both workers add up."""
    words = ("--workers", "2", "--arrivals", "poisson", "--seed", "5")
    shares = {"post": 0.2, "cache-mixed": 0.2, "many-routes": 0.6}
    asked = [word for name, share in shares.items() for word in ("--traffic", f"{name}={share}")]
    result = lab.load(*words, *asked, rate=150, seconds=3)
    load = checked(result, *shares)
    for name, share in shares.items():
        assert load["classes"][name]["scheduled"] == pytest.approx(450 * share, rel=0.4)
    assert load["scheduled"] == sum(c["scheduled"] for c in load["classes"].values())


@pytest.mark.timeout(240)
def test_the_same_load_again_is_not_a_second_delivery(lab: Lab) -> None:
    """Each run has ids of its own: an origin remembers those of the last minutes."""
    for _ in range(2):
        assert 0 == lab.load("--traffic", "post", rate=50, seconds=1)["duplicates"]


@pytest.mark.timeout(240)
def test_a_name_without_a_route_is_somebody_elses(lab: Lab) -> None:
    """A proxy that does not know the hosts answers 200 by its default: each is an identity mismatch."""
    words = ("--traffic", "many-routes", "--host", "nowhere.test", "--rate", "40", "--seconds", "1", "--json")
    done = soak(lab.home, "load", lab.facts["http_url"], *words)
    assert done.returncode == 1, done.stderr
    load = json.loads(done.stdout)["load"]
    assert {"identity_mismatch": load["sent"]} == load["outcomes"]
    assert load["examples"][0]["error"].startswith("route '' instead of 'r")


LIMITS = """
    objectives: {rate_held: 0.8}
    self: {max_lag_p99: 2s, max_loop_gap: 3s, max_unwell: 0.3, max_others: 1}
"""
"""What a busy test machine meets, beside traffic of the plan's own."""


def all_shapes() -> str:
    """The classes of a plan with every shape, the long and the large ones least."""
    small = {"large-1m": 0.02, "stream": 0.01, "large-100k": 0.04}
    each = (1 - sum(small.values())) / (len(SHAPES) - len(small))
    rows = [f"{{shape: {name}, share: {small.get(name, each):.12f}}}" for name in SHAPES]
    return f"[{', '.join(rows)}]"


@pytest.mark.xdist_group("calm")
@pytest.mark.timeout(240)
def test_all_shapes_at_once_in_one_run(tmp_path: Path) -> None:
    """Each has statistics; backends and cache are told as the origins counted them; downloads are waited for."""
    plan = f"length: 10s\nrate: 200\ntraffic: {{classes: {all_shapes()}}}\n"
    with started(tmp_path, plan, "--json", calm=LIMITS) as live:
        out, err = live.process.communicate(timeout=150)
    assert live.process.returncode == 0, out + err
    report = json.loads(out)
    assert set(SHAPES) == set(report["load"]["classes"])
    for name, part in report["load"]["classes"].items():
        assert {"ok"} == set(part["outcomes"]), name
        assert 0 == part["in_flight"]
    assert {"b1", "b2", "b3"} == set(report["origins"])
    assert report["origins"]["b1"]["requests"] > report["origins"]["b2"]["requests"] > 100
    assert 1 == pytest.approx(sum(o["share"] for o in report["origins"].values()), abs=1e-4)
    cache = report["cache"]
    assert cache["requests"] == report["load"]["classes"]["cache-mixed"]["sent"]
    assert 0 < cache["origin_answers"] < cache["requests"]
    assert cache["hit_ratio"] == pytest.approx(1 - cache["origin_answers"] / cache["requests"], abs=1e-5)
    assert 0 == report["duplicates"]
    assert [True] == [o["ok"] for o in report["objectives"] if o["name"] == "duplicates"]


REPEATING = """
    length: 22s
    rate: 60
    proxy: {extra: "proxy_next_upstream error timeout non_idempotent;"}
    traffic: {classes: [{shape: post, share: 1}]}
    chaos:
      series:
        - {fault: backend-hang, every: 60s, first: 3s, hold: 4s, targets: [b2]}
"""


@pytest.mark.xdist_group("calm")
@pytest.mark.timeout(240)
def test_a_proxy_that_repeats_posts_fails_by_name(tmp_path: Path) -> None:
    """It sends what hung at one backend to another; the first one wakes up and does it again. No client sees that."""
    with started(tmp_path, REPEATING, "--json", calm=LIMITS) as live:
        out, err = live.process.communicate(timeout=100)
    assert live.process.returncode == 1, out + err
    report = json.loads(out)
    assert report["duplicates"] > 0
    (judged,) = [o for o in report["objectives"] if o["name"] == "duplicates"]
    assert (False, report["duplicates"]) == (judged["ok"], judged["value"])
    assert "delivered again (limit 0); first at b2, between" in judged["reason"]
    assert set(report["load"]["classes"]["post"]["outcomes"]) <= {"ok", "status_5xx", "stale_reuse"}
