"""Checks of what faults did, each by itself; what was hidden or cut short fails nothing."""

from __future__ import annotations

import pytest

from chaos.model import FaultOutcome
from soak.model import Outcome, SightKind, SightVia, Unwell
from soak.store import StoreReader
from soak.verdict import Word, gather
from soak.verdict.faulting import cut_short
from tests.soak.synthetic import SyntheticRun, histogram, record
from tests.soak.verdict.runs import eventful, only_missed


class TestFaults:
    def test_a_reload_that_took_no_effect_is_named(self, verdict):
        """The planted defect: the signal was swallowed."""
        run = eventful()
        reason = "generation 4 was never seen in traffic within 10 s: the reload took no effect"
        run.add_fault(record(4, "reload", 50.0, active_s=None, outcome=FaultOutcome.FAILED, reason=reason))
        missed = only_missed(v := verdict(run))
        assert ("fail", "faults_verified", 4, 50.0) == (v.verdict, missed.name, missed.fault, missed.at_s)
        assert f"reload #4 at 50.0s: {reason}" == missed.reason

    def test_many_failed_faults_are_not_all_named(self, verdict):
        """Five, and how many more."""
        run = SyntheticRun(seconds=90)
        for i in range(1, 8):
            run.add_fault(
                record(i, "reload", i * 10.0, active_s=None, outcome=FaultOutcome.FAILED, reason="no")
            )
        missed = only_missed(verdict(run))
        assert missed.reason.endswith("; and 2 more")
        assert (7, 5) == (missed.value, len(missed.evidence))

    def test_inconclusive_is_invalid(self, verdict):
        """Nothing showed that it touched anything, so the run proves less than it claims."""
        run = eventful()
        seen = {"active": {"ok": False}}
        run.add_fault(record(4, "backend-down", 50.0, outcome=FaultOutcome.INCONCLUSIVE, evidence=seen))
        missed = only_missed(v := verdict(run))
        assert ("invalid", "faults_verified", Word.INVALID) == (v.verdict, missed.name, missed.word)

    def test_skipped_is_neither(self, verdict):
        """Refused by the arbiter: shown elsewhere, judged nowhere."""
        run = eventful()
        run.faults.append(
            record(4, "reload", 50.0, injected_s=None, active_s=None, outcome=FaultOutcome.SKIPPED)
        )
        assert "pass" == verdict(run).verdict

    def test_a_kind_of_which_none_ran_proves_nothing(self, verdict):
        """The plan asked for reloads and got none: a pass would claim what nobody saw."""
        run = eventful()
        run.faults = [x for x in run.faults if x.kind != "reload"]
        for i in (4, 5):
            skipped = {"outcome": FaultOutcome.SKIPPED, "reason": "it could not begin within 60 s: too busy"}
            run.faults.append(record(i, "reload", 40.0 + i, injected_s=None, active_s=None, **skipped))
        missed = only_missed(v := verdict(run))
        assert ("invalid", "faults_verified") == (v.verdict, missed.name)
        assert (
            "reload never ran, though it was asked for 2 times, so nothing is known of it: "
            "it could not begin within 60 s: too busy" == missed.reason
        )

    @pytest.mark.parametrize(
        "reason", ["the run is stopping", "the run was told to heal before anything was touched"]
    )
    def test_a_fault_that_the_end_of_the_run_kept_from_running_proves_nothing_either_way(
        self, verdict, reason
    ):
        """Somebody stopped the run as its first reload was due."""
        run = SyntheticRun(seconds=90)
        skipped = {"outcome": FaultOutcome.SKIPPED, "reason": reason}
        run.faults.append(record(1, "reload", 89.0, injected_s=None, active_s=None, **skipped))
        assert "pass" == verdict(run).verdict

    @pytest.mark.parametrize("how", ["fault", "ended"])
    def test_dirty_keeps_the_verdict_and_has_its_own_exit_code(self, verdict, how):
        """A revert failed: exit 4, whatever the verdict."""
        run = eventful()
        if how == "fault":
            run.add_fault(record(4, "backend-down", 50.0, outcome=FaultOutcome.DIRTY))
        else:
            run.ended = {"at_s": 90, "reason": "finished", "dirty": True}
        v = verdict(run)
        assert ("pass", True, 4) == (v.verdict, v.dirty, v.exit_code)

    def test_a_slow_reload_and_a_slow_rotation_are_told_apart(self, verdict):
        """Each has its objective."""
        run = eventful()
        run.add_fault(record(4, "reload", 50.0, active_s=62.5))
        missed = only_missed(verdict(run))
        assert ("config_effect", 12.5, 4) == (missed.name, missed.value, missed.fault)
        assert "reload #4 at 50.0s took 12.50 s to take effect (limit 10 s; 1 of 2 over it)" == missed.reason

    def test_a_slow_rotation(self, verdict):
        """The certificate's own objective."""
        run = eventful()
        run.add_fault(record(4, "cert-rotate", 50.0, active_s=61.0))
        missed = only_missed(verdict(run))
        assert ("certificate_effect", 11.0, 4) == (missed.name, missed.value, missed.fault)

    def test_an_old_configuration_that_lives_on(self, verdict):
        """Answers of generation 1 long after 2 took effect: an old worker that never goes."""
        run = eventful()
        run.see(SightKind.GENERATION, "1", 0.0, 55.0)
        missed = only_missed(verdict(run))
        assert ("old_config_gone", 1) == (missed.name, missed.fault)
        assert (
            "generation 1 was still seen 44.9 s after generation 2 took effect at 10.1s by reload #1"
            in missed.reason
        )

    def test_an_old_certificate_that_lives_on(self, verdict):
        """Seen by fresh handshakes; kept connections do not count."""
        run = eventful()
        run.see(SightKind.SERIAL, "aa", 0.0, 70.0, SightVia.PROBE)
        missed = only_missed(verdict(run))
        assert ("old_certificate_gone", 2) == (missed.name, missed.fault)
        assert "certificate aa was still seen 49.5 s after certificate bb" in missed.reason

    def test_a_slow_recovery(self, verdict):
        """The backend's loss disturbed traffic for too long."""
        run = eventful()
        run.add_fault(record(4, "backend-down", 50.0, recovery_s=11.0))
        missed = only_missed(verdict(run))
        assert ("recovery", 11.0, 4) == (missed.name, missed.value, missed.fault)
        assert (
            "backend-down #4 of b1 at 50.0s disturbed traffic for 11.00 s, and lost no request (limit 10 s; 1 of 4 over it)"
            == missed.reason
        )

    def test_traffic_that_never_recovers(self, verdict):
        """Neither live nor by the stored seconds, and the run went on long enough."""
        run = SyntheticRun(seconds=200)
        run.add_fault(record(1, "backend-down", 60.0, recovery_s=None, recovered_s=None), until_s=500.0)
        for s in range(61, 200):
            run.changes[s] = {"latency": histogram(100, 300.0)}
        missed = only_missed(verdict(run))
        assert ("recovery", 1) == (missed.name, missed.fault)
        assert (
            "traffic did not recover within 30 s of the revert of backend-down #1 of b1 at 1m00s"
            in missed.reason
        )

    def test_recovery_is_judged_again_from_the_store(self, tmp_path):
        """A run whose daemon died before it could say: the stored seconds tell, as they would have live."""
        run = SyntheticRun(seconds=120)
        run.add_fault(record(1, "backend-down", 60.0, recovery_s=None, recovered_s=None))
        run.fail(60, Outcome.STATUS_5XX, 5)
        run.fail(65, Outcome.STATUS_5XX, 5)
        with StoreReader(run.write(tmp_path / "run.db")) as r:
            judged = gather(r).recoveries[1]
        assert (65.5, 0.5) == (judged.recovered_s, judged.recovery_s)


class TestHidden:
    @pytest.mark.parametrize(
        ("changes", "what"),
        [
            ({"kind": "reload", "active_s": 161.0}, "effect"),
            ({"kind": "backend-down", "outcome": FaultOutcome.INCONCLUSIVE}, "effect"),
            ({"kind": "backend-down", "recovery_s": 11.0}, "recovery"),
            ({"kind": "backend-down", "recovery_s": None, "recovered_s": None}, "recovery"),
        ],
    )
    def test_a_fault_that_was_hidden_fails_nothing_but_makes_the_run_invalid(self, verdict, changes, what):
        """Its effect or recovery was to be seen in an unwell second."""
        run = SyntheticRun(seconds=400)
        run.add_fault(record(1, at_s=150.0, **changes), until_s=300.0)
        run.unwell = [Unwell(151.0, 153.0, "late"), Unwell(157.0, 158.0, "late")]
        if changes.get("recovery_s", 0) is None:
            for s in range(150, 300):
                run.changes[s] = {"latency": histogram(100, 300.0)}
        missed = only_missed(verdict(run))
        assert (Word.INVALID, "self_healthy") == (missed.word, missed.name)
        assert f"soak was unwell while the {what} of {changes['kind']} #1" in missed.reason

    @pytest.mark.parametrize(
        ("unwell_s", "word", "name"),
        [(4.0, Word.FAIL, "faults_verified"), (6.0, Word.INVALID, "self_healthy")],
    )
    def test_an_effect_that_well_eyes_did_not_see_either_is_not_hidden(self, verdict, unwell_s, word, name):
        """A reload that was never seen, in ten seconds of which soak was well for six, failed; for four, nobody knows."""
        run = SyntheticRun(seconds=2000)
        never = {"active_s": None, "outcome": FaultOutcome.FAILED, "reason": "never seen"}
        run.add_fault(record(1, "reload", 150.0, **never), until_s=165.0)
        run.unwell = [Unwell(152.0, 152.0 + unwell_s, "late")]
        missed = only_missed(verdict(run))
        assert (word, name) == (missed.word, missed.name)

    def test_a_broken_configuration_that_was_accepted_is_never_hidden(self, verdict):
        """The proxy said yes; nobody had to look."""
        run = SyntheticRun(seconds=2000)
        took = {
            "active_s": None,
            "outcome": FaultOutcome.FAILED,
            "reason": "the proxy accepted a broken configuration",
            "evidence": {"applied": {"ok": False}},
        }
        run.add_fault(record(1, "reload-bad", 150.0, **took), until_s=165.0)
        run.unwell = [Unwell(152.0, 160.0, "late")]
        missed = only_missed(verdict(run))
        assert (Word.FAIL, "faults_verified") == (missed.word, missed.name)

    def test_a_recovery_that_may_have_lasted_longer_is_hidden(self, verdict):
        """Calm was seen only after unwell seconds: between the last failure and them lies too much."""
        run = SyntheticRun(seconds=2000)
        run.add_fault(record(1, "backend-down", 150.0, recovery_s=1.5))
        run.fail(151, Outcome.STATUS_5XX, 5)
        run.unwell = [Unwell(152.0, 168.0, "starved")]
        missed = only_missed(verdict(run))
        assert "while the recovery of backend-down #1" in missed.reason


class TestCutShort:
    """Evidence that could not be seen, for the run or its traffic ended first."""

    @pytest.mark.parametrize(
        "changes",
        [
            {"kind": "reload", "outcome": FaultOutcome.FAILED, "evidence": {"applied": {"ok": True}}},
            {"kind": "backend-down", "outcome": FaultOutcome.FAILED, "evidence": {"clean": {"ok": False}}},
            {"kind": "backend-down", "outcome": FaultOutcome.INCONCLUSIVE},
            {"kind": "reload", "outcome": FaultOutcome.INCONCLUSIVE, "evidence": {"active": {"ok": False}}},
        ],
    )
    def test_by_the_end_of_the_run(self, verdict, changes, tmp_path):
        """It fails nothing, and the report says that it was left out; the same fault earlier is judged."""
        late, early = eventful(), eventful()
        late.add_fault(record(4, at_s=82.0, active_s=None, reverted_s=84.0, **changes))
        v = verdict(late)
        assert "pass" == v.verdict
        (o,) = [o for o in v.objectives if o.name == "faults_verified"]
        assert "1 cut short by the end of the run are left out" in o.measured
        early.seconds = 200
        early.add_fault(record(4, at_s=82.0, active_s=None, reverted_s=84.0, **changes))
        with StoreReader(early.write(tmp_path / "early.db")) as r:
            assert not cut_short(gather(r), early.faults[-1])

    def test_a_refusal_is_judged_even_at_the_last_moment(self, verdict):
        """The proxy's own no needs no traffic to be seen."""
        run = eventful()
        refused = {"applied": {"ok": False}}
        run.add_fault(record(4, "reload", 85.0, active_s=None, outcome=FaultOutcome.FAILED, evidence=refused))
        assert "faults_verified" == only_missed(verdict(run)).name

    def test_a_killed_run_cuts_nothing_short(self, verdict):
        """Its faults have no outcome; one that had failed before did fail."""
        run = SyntheticRun(seconds=30, plan={"length": 120}, killed=True)
        run.add_fault(record(1, "reload", 25.0, active_s=None, outcome=FaultOutcome.FAILED, reason="no"))
        run.add_fault(record(2, "reload", 28.0, active_s=None, outcome=None))
        v = verdict(run)
        assert ["faults_verified", "run_complete"] == [o.name for o in v.objectives if not o.ok]
