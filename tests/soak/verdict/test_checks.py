"""Checks of the whole run: traffic, ourselves, and its end. What soak did wrong never fails the proxy."""

from __future__ import annotations

import pytest

from soak.model import Outcome, Unwell
from soak.plan import ObjectivesPlan
from soak.store import StoreReader
from soak.verdict import Word, gather, judge
from soak.verdict.facts import RunFacts
from tests.soak.synthetic import SyntheticRun, record
from tests.soak.verdict.planted import stale
from tests.soak.verdict.runs import eventful, only_missed


class TestTraffic:
    def test_dropped_slots_fail_the_proxy(self, verdict):
        """It was too slow to take them."""
        run = SyntheticRun()
        run.changes[5] = {"scheduled": 150, "dropped": 50}
        missed = only_missed(v := verdict(run))
        assert ("fail", "rate_held", 1) == (v.verdict, missed.name, v.exit_code)
        assert "50 of 6050 slots were dropped" in missed.reason
        assert missed.reason.endswith("; 50 of them in phase steady")

    def test_dropped_slots_are_told_with_the_fault_under_which_most_were(self, verdict):
        """A reload during which the proxy took nothing."""
        run = SyntheticRun()
        run.add_fault(record(1, "reload", 30.0))
        run.changes[30] = {"scheduled": 150, "dropped": 50}
        missed = only_missed(verdict(run))
        assert ("rate_held", 30.0, 1) == (missed.name, missed.at_s, missed.fault)
        assert missed.reason.endswith("; 50 of them under reload #1 at 30.0s")

    def test_missed_slots_are_our_own_fault(self, verdict):
        """The run is invalid, the proxy is not blamed."""
        run = SyntheticRun()
        run.changes[5] = {"scheduled": 150, "missed": 50}
        missed = only_missed(v := verdict(run))
        assert ("invalid", "rate_held", 3) == (v.verdict, missed.name, v.exit_code)
        assert "soak itself missed 50" in missed.reason

    def test_success(self, verdict):
        """Many failures under a fault: only the success of the whole run is missed."""
        run = SyntheticRun()
        run.add_fault(record(1, "backend-down", 30.0))
        run.fail(31, Outcome.STATUS_5XX, 50)
        missed = only_missed(verdict(run))
        assert "success" == missed.name
        assert "50 status_5xx" in missed.reason
        assert (
            "first a status_5xx of class get at 31.0s under backend-down #1 of b1 at 30.0s" in missed.reason
        )
        assert (31.0, 1, ("1", "e1")) == (missed.at_s, missed.fault, missed.evidence)
        assert missed.sentence.endswith("(see: soak report --evidence 1)")

    def test_steady_failures(self, verdict):
        """One failure while nothing is going on."""
        run = SyntheticRun(seconds=600)
        run.fail(12, Outcome.CUT_MID_RESPONSE)
        missed = only_missed(verdict(run))
        assert ("steady_failures", 1, 0, ("steady", "e1")) == (
            missed.name,
            missed.value,
            missed.limit,
            missed.evidence,
        )
        assert "first a cut_mid_response of class get at 12.0s in phase steady" in missed.reason

    def test_a_steady_failure_is_told_with_what_came_before(self, verdict):
        """Ten seconds after a reload an old worker is ended with what it had: traffic had long been steady."""
        run = SyntheticRun(seconds=600)
        run.add_fault(record(1, "reload", 100.0))
        run.fail(110, Outcome.CUT_MID_RESPONSE)
        missed = only_missed(verdict(run))
        assert "steady_failures" == missed.name
        assert "at 1m50s in phase steady, 10 s after reload #1 at 1m40s" in missed.reason

    def test_what_came_long_before_explains_nothing(self, verdict):
        """Two minutes later nobody would ask the reload."""
        run = SyntheticRun(seconds=600)
        run.add_fault(record(1, "reload", 100.0))
        run.fail(220, Outcome.CUT_MID_RESPONSE)
        assert only_missed(verdict(run)).reason.endswith("at 3m40s in phase steady")

    def test_transition_failures(self, verdict):
        """A reload lost a request."""
        run = eventful()
        run.fail(10, Outcome.CONNECT_RESET)
        missed = only_missed(verdict(run))
        assert ("transition_failures", 1) == (missed.name, missed.fault)
        assert "1 requests lost to reloads and rotations (limit 0): 1 connect_reset; first" in missed.reason
        assert "under reload #1 at 10.0s" in missed.reason

    def test_a_backend_fault_explains_what_a_reload_beside_it_lost(self, verdict):
        """A scope with both is not the reload's alone."""
        run = SyntheticRun(seconds=90)
        run.add_fault(record(1, "backend-down", 30.0, reverted_s=60.0), until_s=62.0)
        run.faults.append(record(2, "reload", 40.0))
        run.scopes[1] = type(run.scopes[1])(1, run.scopes[1].phase, (1, 2), 30.0)
        run.fail(41, Outcome.STATUS_5XX)
        assert "pass" == verdict(run).verdict

    def test_stale_reuse_has_its_own_budget(self, verdict):
        """It is no steady and no transition failure; past its share it is named."""
        run = eventful()
        run.fail(10, Outcome.STALE_REUSE, 4)
        assert "pass" == verdict(run).verdict

    @pytest.mark.parametrize(
        ("n", "after_s", "word"), [(5, 0.08, "fail"), (5, 0.02, "pass"), (4, 0.08, "pass")]
    )
    def test_what_the_proxy_had_and_dropped_is_no_race_and_has_no_budget(self, verdict, n, after_s, word):
        """A race is seen within milliseconds; a few late ones may have met a busy host."""
        v = verdict(stale(n, after_s=after_s))
        assert word == v.verdict
        if word == "fail":
            missed = only_missed(v)
            assert ("stale_reuse", 1) == (missed.name, missed.fault)
            assert (
                "5 of 5 kept as evidence closed later than 50 ms after the request was sent" in missed.reason
            )
            assert "the proxy had these requests and dropped them" in missed.reason

    def test_stale_reuse_past_its_budget(self, verdict):
        """With the share that no client may repeat blindly."""
        run = eventful()
        run.fail(10, Outcome.STALE_REUSE, 6)
        run.changes[10] = {"stale_non_idempotent": 2}
        missed = only_missed(verdict(run))
        assert ("stale_reuse", 1) == (missed.name, missed.fault)
        assert "2 of 6 not idempotent" in missed.measured

    def test_sessions_that_were_not_resumed_have_their_own_budget(self, verdict):
        """A full handshake is a cost, no loss: not in phase steady, and not for a transition."""
        run = eventful()
        run.fail(10, Outcome.TLS_NOT_RESUMED, 2)
        run.fail(70, Outcome.TLS_NOT_RESUMED, 2)
        assert "pass" == verdict(run, ObjectivesPlan(tls_not_resumed=0.05)).verdict

    def test_sessions_not_resumed_past_their_budget(self, verdict):
        """As a share of the attempts, with where it began."""
        run = eventful()
        run.fail(10, Outcome.TLS_NOT_RESUMED, 1)
        missed = only_missed(verdict(run))
        assert ("tls_not_resumed", 1) == (missed.name, missed.fault)
        assert pytest.approx(1 / 91) == missed.value
        assert "1 of 91 TLS sessions were not resumed (1.10%, limit 1.00%); first a tls_not_resumed" in (
            missed.reason
        )

    @pytest.mark.parametrize("outcome", [Outcome.IDENTITY_MISMATCH, Outcome.BODY_MISMATCH])
    def test_mismatches_are_never_right(self, verdict, outcome):
        """Not even under a fault."""
        run = SyntheticRun()
        run.add_fault(record(1, "backend-down", 30.0))
        run.fail(31, outcome)
        missed = only_missed(verdict(run))
        assert ("mismatches", 1, 1) == (missed.name, missed.value, missed.fault)


class TestOurselves:
    def test_unwell_seconds_cannot_fail_the_proxy(self, verdict):
        """Failures in them are set apart: the run is judged by the rest."""
        run = SyntheticRun(seconds=300)
        run.unwell = [Unwell(50.2, 51.5, "the event loop stood still for 1.3 s")]
        run.fail(50, Outcome.RESPONSE_TIMEOUT, 60)
        run.fail(51, Outcome.STATUS_5XX, 40)
        run.changes[51] = {
            "scheduled": 120,
            "dropped": 20,
            "outcomes": {Outcome.OK: 60, Outcome.STATUS_5XX: 40},
        }
        v = verdict(run)
        assert ("pass", []) == (v.verdict, v.reasons)

    @pytest.mark.parametrize("outcome", [Outcome.IDENTITY_MISMATCH, Outcome.BODY_MISMATCH])
    def test_our_illness_excuses_no_wrong_answer(self, verdict, outcome):
        """Being late mixes up nothing: the one thing for which such a second is held against the proxy."""
        run = SyntheticRun(seconds=300)
        run.unwell = [Unwell(50.2, 51.5, "the event loop stood still for 1.3 s")]
        run.fail(50, outcome)
        missed = only_missed(verdict(run))
        assert ("mismatches", 1, 50.0) == (missed.name, missed.value, missed.at_s)
        assert f"first a {outcome} of class get at 50.0s" in missed.reason

    def test_the_same_failures_in_well_seconds_fail_it(self, verdict):
        """So it is the unwell stretch that excused them."""
        run = SyntheticRun(seconds=300)
        run.fail(50, Outcome.RESPONSE_TIMEOUT, 60)
        assert "fail" == verdict(run).verdict

    def test_too_many_unwell_seconds_are_invalid(self, verdict):
        """Stopped for 20 s: it says so, and does not blame the proxy."""
        run = SyntheticRun(seconds=100)
        run.unwell = [Unwell(40.0, 60.0, "stopped for 20 s")]
        for s in range(40, 60):
            run.changes[s] = {"sent": 0, "missed": 100, "outcomes": {}}
        v = verdict(run)
        assert ("invalid", 3) == (v.verdict, v.exit_code)
        assert ["rate_held", "self_healthy"] == [o.name for o in v.objectives if not o.ok]
        assert (
            "soak was unwell in 20 of 100 s (20.0%, limit 1.0%), first at 40.0s: stopped for 20 s"
            in v.reasons[1]
        )

    def test_client_resource_is_our_own(self, verdict):
        """EMFILE makes the run invalid, never the proxy fail."""
        run = SyntheticRun()
        run.fail(5, Outcome.CLIENT_RESOURCE, 50)
        missed = only_missed(verdict(run))
        assert ("self_healthy", Word.INVALID) == (missed.name, missed.word)
        assert "50 requests failed for want of our own resources" in missed.reason

    def test_a_broken_identity_is_invalid(self, verdict):
        """Requests that neither ended nor are in flight."""
        run = SyntheticRun()
        run.changes[5] = {"outcomes": {Outcome.OK: 98}}
        missed = only_missed(verdict(run))
        assert "class get at second 5: sent 600 is not done 598 + in flight 0" == missed.reason

    def test_requests_in_flight_are_no_break(self, verdict):
        """They end in a later second; both identities hold at every second."""
        run = SyntheticRun()
        run.changes[5] = {"outcomes": {Outcome.OK: 98}, "in_flight": 2}
        run.changes[6] = {"outcomes": {Outcome.OK: 102}}
        assert "pass" == verdict(run).verdict

    def test_no_traffic_is_invalid(self, verdict):
        """Nothing was sent, so nothing is shown."""
        v = verdict(SyntheticRun(seconds=0, plan={"length": 60}))
        assert "invalid" == v.verdict
        assert any("not one request was sent" in r for r in v.reasons)

    def test_records_lost_by_the_store_are_invalid(self, tmp_path):
        """A hole in the store is a hole in the proof."""
        with StoreReader(SyntheticRun().write(tmp_path / "run.db")) as r:
            facts = gather(r)
        holed = RunFacts(
            **{**{f: getattr(facts, f) for f in facts.__slots__}, "counters": {"lost_workerreport": 3}}
        )
        assert "3 workerreport records were lost by the store" in only_missed(judge(holed)).reason


class TestTheRun:
    def test_a_killed_run_is_judged_on_what_is_there(self, verdict):
        """At best invalid, with how far it came."""
        run = SyntheticRun(seconds=30, plan={"length": 120}, killed=True)
        missed = only_missed(v := verdict(run))
        assert ("invalid", "run_complete") == (v.verdict, missed.name)
        assert (
            "the run ended by itself after 30.0s of 2m00s: its daemon was killed or crashed" == missed.reason
        )

    def test_a_killed_run_can_still_fail(self, verdict):
        """What the proxy did wrong before stays wrong."""
        run = SyntheticRun(seconds=30, plan={"length": 120}, killed=True)
        run.fail(5, Outcome.IDENTITY_MISMATCH)
        v = verdict(run)
        assert ("fail", "run_complete") == (v.verdict, v.reasons[-1].split(":")[0])

    def test_a_running_run_says_so(self, verdict):
        """It is not called killed."""
        run = SyntheticRun(seconds=30, plan={"length": 120}, killed=True)
        assert "the run is still going: 30.0s of 2m00s" == only_missed(verdict(run, live=True)).reason

    def test_a_run_that_was_stopped_on_purpose_is_judged_by_what_it_did(self, verdict):
        """Somebody wanted that end."""
        run = SyntheticRun(
            seconds=30, plan={"length": 120}, ended={"at_s": 30, "reason": "stopped", "dirty": False}
        )
        assert "pass" == verdict(run).verdict

    def test_a_load_that_ended_by_itself_is_invalid(self, verdict):
        """All workers gone before their time."""
        run = SyntheticRun(
            seconds=30, plan={"length": 120}, ended={"at_s": 30, "reason": "finished", "dirty": False}
        )
        assert "the load ended by itself after 30.0s of 2m00s" == only_missed(verdict(run)).reason

    def test_a_finished_run_whose_daemon_still_lives_is_finished(self, verdict):
        """The end is written before the daemon is gone; its drain is not part of the length."""
        run = SyntheticRun(seconds=30, ended={"at_s": 33.3, "reason": "finished", "dirty": False})
        v = verdict(run, live=True)
        assert ("pass", 30.0) == (v.verdict, next(o.value for o in v.objectives if o.name == "run_complete"))

    def test_any_other_end_is_invalid(self, verdict):
        """The load worker died, the disk was full: the reason is told."""
        run = SyntheticRun(
            seconds=30, plan={"length": 120}, ended={"at_s": 30, "reason": "the disk is full", "dirty": False}
        )
        assert (
            "the run ended early, after 30.0s of 2m00s: the disk is full" == only_missed(verdict(run)).reason
        )
