"""From facts to a verdict: the worst wins, a crash proves nothing, and a store can be judged again."""

from __future__ import annotations

import pytest

from soak.model import Outcome
from soak.plan import ObjectivesPlan
from soak.store import StoreReader
from soak.verdict import gather, judge
from soak.verdict.facts import RunFacts
from soak.verdict.objectives import Objective
from tests.soak.synthetic import SyntheticRun
from tests.soak.verdict.runs import eventful


def test_a_healthy_run_passes_everything_it_can_be_judged_by(verdict):
    """Drift needs a longer run and says so; all else holds."""
    v = verdict(eventful())
    assert ("pass", [], 0, None) == (v.verdict, v.reasons, v.exit_code, v.worst)
    drift = ["p99_drift", "cpu_drift", "rss_growth", "fds_growth", "processes_growth"]
    unseen = ["duplicates", "balance", "connections_kept", "old_workers_gone", "proxy_alive", "workers_kept"]
    assert [*unseen, *drift] == [n.name for n in v.not_judged]
    assert "the run lasted 1m30s; drift is judged from 2h on" == v.not_judged[-1].reason
    names = {o.name: o for o in v.objectives}
    assert pytest.approx(0.5) == names["certificate_effect"].value
    assert 0.9 == names["recovery"].value
    assert pytest.approx(0.2) == names["old_config_gone"].value
    assert 0.0 == names["old_certificate_gone"].value


def test_a_run_without_faults_fails_no_fault_objective(verdict):
    """What had no instance is not judged, and does not fail."""
    v = verdict(SyntheticRun())
    assert "pass" == v.verdict
    assert {"transition_failures", "faults_verified", "config_effect", "certificate_effect"} < {
        n.name for n in v.not_judged
    }


class TestWorst:
    def test_a_finished_run_is_judged_again_by_other_objectives(self, verdict):
        """From the store alone."""
        run = SyntheticRun(seconds=600)
        run.fail(12, Outcome.STATUS_5XX)
        assert "fail" == verdict(run).verdict
        assert "pass" == verdict(run, ObjectivesPlan(steady_failures=1)).verdict
        assert "fail" == verdict(run, ObjectivesPlan(success=1.0, steady_failures=1)).verdict

    def test_a_checker_that_crashes_never_passes(self, tmp_path):
        """It proves nothing, and says why."""

        def broken(_: RunFacts) -> Objective:
            raise ZeroDivisionError("of all things")

        with StoreReader(SyntheticRun().write(tmp_path / "run.db")) as r:
            v = judge(gather(r), [("broken", broken)])
        assert "invalid" == v.verdict
        assert [
            "broken: the checker crashed, so nothing is known: ZeroDivisionError: of all things"
        ] == v.reasons

    def test_fail_is_worse_than_invalid(self, verdict):
        """Both are told, the worse decides and comes first."""
        run = SyntheticRun(seconds=30, plan={"length": 120}, killed=True)
        run.changes[5] = {"scheduled": 150, "missed": 50}
        run.fail(7, Outcome.IDENTITY_MISMATCH)
        v = verdict(run)
        assert "fail" == v.verdict
        assert ["fail", "fail", "invalid", "invalid"] == [
            str(next(o.word for o in v.objectives if o.sentence == r)) for r in v.reasons
        ]
