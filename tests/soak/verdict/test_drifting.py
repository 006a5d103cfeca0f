"""Checks of slow change, on a short run that is told to judge drift early."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from soak.model import Vital
from tests.soak.synthetic import SyntheticRun, histogram, record, window
from tests.soak.verdict.runs import only_missed


class TestDrift:
    def run(self, seconds: int = 400, grow: Callable[[float], dict[str, Any]] = lambda _: {}) -> SyntheticRun:
        run = SyntheticRun(seconds=seconds, plan={"objectives": {"drift_after": 300}})
        for i in range(0, seconds, 5):
            values: dict[str, Any] = {"rss_bytes": 10**8, "cpu_s": i / 10, "fds": 50, "processes": 3}
            run.vitals.append(Vital(at_s=i, subject="proxy", **{**values, **grow(i)}))
            run.vitals.append(Vital(i, "b1", i, 0.0, i, i))
        return run

    def test_flat_vitals_pass(self, verdict):
        """All four are judged, and hold; other subjects do not count."""
        v = verdict(self.run())
        assert "pass" == v.verdict
        assert {"p99_drift", "rss_growth", "fds_growth", "processes_growth"} < {o.name for o in v.objectives}

    def test_a_look_at_nobody_is_no_measurement(self, verdict):
        """A proxy that was dead for a while, and one that comes back late: the dead hold no memory to grow from."""
        dead = {"rss_bytes": 0, "fds": 0, "processes": 0}
        run = self.run(grow=lambda t: dead if t < 150 else {})
        v = verdict(run)
        assert "pass" == v.verdict
        assert {"rss_growth", "fds_growth", "processes_growth"} < {o.name for o in v.objectives}

    @pytest.mark.parametrize(
        ("name", "grow", "words"),
        [
            ("rss_growth", lambda t: {"rss_bytes": int(10**8 + t * 2000)}, "memory grew by 7"),
            ("fds_growth", lambda t: {"fds": int(50 + t / 10)}, "open files grew by 36"),
            ("processes_growth", lambda t: {"processes": int(3 + t / 100)}, "processes grew by"),
        ],
    )
    def test_growth_is_named(self, verdict, name, grow, words):
        """Each by itself, with the slope and where it went."""
        missed = only_missed(verdict(self.run(grow=grow)))
        assert name == missed.name
        assert words in missed.reason

    @pytest.mark.parametrize(("spins", "word"), [(1.0, "fail"), (0.04, "pass")])
    def test_a_worker_that_spins_after_a_reload_is_found_by_its_processor_time(self, verdict, spins, word):
        """It holds no memory and fails no request; a few hundredths of a core more are noise."""
        v = verdict(self.run(grow=lambda t: {"cpu_s": t * 0.05 + max(0.0, t - 200) * spins}))
        assert word == v.verdict
        if word == "fail":
            assert (
                "the proxy used 0.05 cores in the first quarter and 1.05 in the last" in only_missed(v).reason
            )

    def test_p99_drift(self, verdict):
        """Slower in the last quarter than in the first."""
        run = self.run()
        for s in range(300, 400):
            run.changes[s] = {"latency": histogram(100, 1.5)}
        missed = only_missed(verdict(run))
        assert "p99_drift" == missed.name
        assert "from 1.00 ms in the first quarter to 1.50 ms in the last (x 1.50, limit 1.2)" in missed.reason

    def test_a_class_that_gets_slower_behind_a_slower_one_is_named(self, verdict):
        """Full handshakes make the p99 of the whole; what most requests need creeps up unseen behind them."""
        run = self.run()
        run.plan = {
            **run.plan,
            "traffic": {
                "classes": [{"name": "get", "share": 0.9}, {"name": "new", "share": 0.1, "connection": "new"}]
            },
        }
        for s in range(400):
            run.changes[s] = {"latency": histogram(100, 1.0 + s / 400)}
        run.beside = lambda s: [window(s, "new", latency=histogram(100, 30.0))]
        missed = only_missed(verdict(run))
        assert "p99_drift" == missed.name
        assert missed.reason.startswith("class get got slower: p50 rose from 1.1")

    @pytest.mark.parametrize("leak", [True, False], ids=["one a reload", "a pool that wanders"])
    def test_files_that_grow_by_less_than_the_limit_per_hour_but_with_each_reload(self, verdict, leak):
        """Twelve an hour pass the limit per hour; one with each reload is a leak."""
        run = SyntheticRun(seconds=7300)
        for i in range(1, 24):
            run.add_fault(record(i, "reload", i * 300.0))
        run.vitals = [
            Vital(
                float(t),
                "proxy",
                10**8,
                1.0,
                50 + (t // 300 if leak else int(t / 300 + 6 * math.sin(t / 600))),
                3,
            )
            for t in range(0, 7300, 30)
        ]
        v = verdict(run)
        if not leak:
            assert "pass" == v.verdict
            return
        missed = only_missed(v)
        assert ("fds_growth", 1.0, 0.5) == (missed.name, missed.value, missed.limit)
        assert (
            "the proxy's open files grew by 1.0 per reload or rotation (limit 0.5), 12.0 per hour"
            in missed.reason
        )

    def test_memory_that_fills_up_and_stays_is_no_leak(self, verdict):
        """A heap or a cache on its way to its size: its first half has a slope, its second has none."""
        run = self.run(grow=lambda t: {"rss_bytes": int(10**8 * (1 + 0.3 * (1 - math.exp(-t / 20))))})
        assert "pass" == verdict(run).verdict

    def test_growth_per_reload_is_told(self, verdict):
        """A leak at each reload."""
        run = self.run(grow=lambda t: {"fds": 50 + int(t // 50)})
        for i in range(1, 8):
            run.add_fault(record(i, "reload", i * 50.0))
        missed = only_missed(verdict(run))
        assert "fds_growth" == missed.name
        assert "1.0 per reload" in missed.reason

    def test_a_proxy_that_was_never_looked_at_is_not_judged(self, verdict):
        """No vitals: no claim."""
        run = self.run()
        run.vitals = []
        v = verdict(run)
        assert "pass" == v.verdict
        assert {"rss_growth", "fds_growth", "processes_growth"} <= {n.name for n in v.not_judged}
