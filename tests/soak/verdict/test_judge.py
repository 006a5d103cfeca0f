"""Every objective fails alone and is named; what soak itself did wrong never fails the proxy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.model import FaultOutcome
from soak.model import CertificateRecord, Outcome, SightKind, SightVia, Unwell, Vital
from soak.plan import ObjectivesPlan
from soak.store import StoreReader
from soak.verdict import Verdict, Word, gather, judge
from soak.verdict.facts import RunFacts, stretches_of
from soak.verdict.objectives import Objective, clock
from tests.soak.synthetic import SyntheticRun, failed, histogram, record, window

Verdicts = Callable[..., Verdict]


@pytest.fixture
def verdict(tmp_path: Path) -> Verdicts:
    def of(run: SyntheticRun, objectives: ObjectivesPlan | None = None, *, live: bool = False) -> Verdict:
        path = tmp_path / "run.db"
        if not path.exists():
            run.write(path)
        with StoreReader(path) as r:
            return judge(gather(r, objectives, live=live))

    return of


def eventful() -> SyntheticRun:
    """A healthy minute with one of each: a reload, a rotation, a backend away for 5 s."""
    run = SyntheticRun(seconds=90)
    run.add_fault(record(1, "reload", 10.0))
    run.add_fault(record(2, "cert-rotate", 20.0, active_s=20.5))
    run.add_fault(record(3, "backend-down", 30.0, recovery_s=0.9, recovered_s=35.4))
    run.see(SightKind.GENERATION, "1", 0.0, 10.3)
    run.see(SightKind.GENERATION, "2", 10.1, 20.4)
    run.see(SightKind.GENERATION, "3", 20.2, 89.9)
    run.see(SightKind.SERIAL, "aa", 0.0, 20.0, SightVia.PROBE)
    run.see(SightKind.SERIAL, "bb", 20.5, 89.0, SightVia.PROBE)
    run.see(SightKind.SERIAL, "aa", 0.0, 80.0, SightVia.TRAFFIC)  # a kept connection is no fresh handshake
    run.certificates = [CertificateRecord("aa", 0.0, "fa"), CertificateRecord("bb", 20.0, "fb", 2)]
    return run


def only_missed(v: Verdict) -> Objective:
    """Return the one missed objective; any other would be a false alarm."""
    missed = [o for o in v.objectives if not o.ok]
    assert 1 == len(missed), [o.sentence for o in missed]
    assert [missed[0].sentence] == list(v.reasons)
    assert missed[0] is v.worst
    return missed[0]


def test_a_healthy_run_passes_everything_it_can_be_judged_by(verdict):
    """Drift needs a longer run and says so; all else holds."""
    v = verdict(eventful())
    assert ("pass", [], 0, None) == (v.verdict, v.reasons, v.exit_code, v.worst)
    assert ["p99_drift", "rss_growth", "fds_growth", "processes_growth"] == [n.name for n in v.not_judged]
    assert "the run lasted 1m30s; drift is judged from 2h on" == v.not_judged[0].reason
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


class TestTraffic:
    def test_dropped_slots_fail_the_proxy(self, verdict):
        """It was too slow to take them."""
        run = SyntheticRun()
        run.changes[5] = {"scheduled": 150, "dropped": 50}
        missed = only_missed(v := verdict(run))
        assert ("fail", "rate_held", 1) == (v.verdict, missed.name, v.exit_code)
        assert "50 of 6050 slots were dropped" in missed.reason

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

    def test_stale_reuse_past_its_budget(self, verdict):
        """With the share that no client may repeat blindly."""
        run = eventful()
        run.fail(10, Outcome.STALE_REUSE, 6)
        run.changes[10] = {"stale_non_idempotent": 2}
        missed = only_missed(verdict(run))
        assert ("stale_reuse", 1) == (missed.name, missed.fault)
        assert "2 of 6 not idempotent" in missed.measured

    @pytest.mark.parametrize("outcome", [Outcome.IDENTITY_MISMATCH, Outcome.BODY_MISMATCH])
    def test_mismatches_are_never_right(self, verdict, outcome):
        """Not even under a fault."""
        run = SyntheticRun()
        run.add_fault(record(1, "backend-down", 30.0))
        run.fail(31, outcome)
        missed = only_missed(verdict(run))
        assert ("mismatches", 1, 1) == (missed.name, missed.value, missed.fault)


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
        run.add_fault(
            record(4, "backend-down", 50.0, outcome=FaultOutcome.INCONCLUSIVE, reason="answers never ceased")
        )
        missed = only_missed(v := verdict(run))
        assert ("invalid", "faults_verified", Word.INVALID) == (v.verdict, missed.name, missed.word)

    def test_skipped_is_neither(self, verdict):
        """Refused by the arbiter: shown elsewhere, judged nowhere."""
        run = eventful()
        run.faults.append(
            record(4, "reload", 50.0, injected_s=None, active_s=None, outcome=FaultOutcome.SKIPPED)
        )
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
            "backend-down #4 of b1 at 50.0s disturbed traffic for 11.00 s (limit 10 s; 1 of 2 over it)"
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

    def test_p99_drift(self, verdict):
        """Slower in the last quarter than in the first."""
        run = self.run()
        for s in range(300, 400):
            run.changes[s] = {"latency": histogram(100, 1.5)}
        missed = only_missed(verdict(run))
        assert "p99_drift" == missed.name
        assert "from 1.00 ms in the first quarter to 1.50 ms in the last (x 1.50, limit 1.2)" in missed.reason

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

    @pytest.mark.parametrize(
        ("changes", "what"),
        [
            (
                {"kind": "reload", "active_s": None, "outcome": FaultOutcome.FAILED, "reason": "never seen"},
                "effect",
            ),
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

    def test_a_recovery_that_may_have_lasted_longer_is_hidden(self, verdict):
        """Calm was seen only after unwell seconds: between the last failure and them lies too much."""
        run = SyntheticRun(seconds=2000)
        run.add_fault(record(1, "backend-down", 150.0, recovery_s=1.5))
        run.fail(151, Outcome.STATUS_5XX, 5)
        run.unwell = [Unwell(152.0, 168.0, "starved")]
        missed = only_missed(verdict(run))
        assert "while the recovery of backend-down #1" in missed.reason

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

    def test_any_other_end_is_invalid(self, verdict):
        """The load worker died, the disk was full: the reason is told."""
        run = SyntheticRun(
            seconds=30, plan={"length": 120}, ended={"at_s": 30, "reason": "the disk is full", "dirty": False}
        )
        assert (
            "the run ended early, after 30.0s of 2m00s: the disk is full" == only_missed(verdict(run)).reason
        )

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


def test_several_workers_are_in_flight_together(tmp_path):
    """The identity of a class holds over its workers, at every second."""
    from soak.store import StoreWriter
    from tests.soak.synthetic import report

    path = tmp_path / "run.db"
    SyntheticRun(seconds=1).write(path)
    with StoreWriter(path) as w:
        w.add_report(report(1, window(1, in_flight=3, outcomes={Outcome.OK: 97})))
        w.add_report(
            report(1, window(1, in_flight=2, outcomes={Outcome.OK: 98}), worker=1, evidence=[failed(1)])
        )
        w.add_report(report(2, window(2, in_flight=0, outcomes={Outcome.OK: 103})))
    with StoreReader(path) as r:
        facts = gather(r)
    assert ([], {"get": 2}, 2) == (facts.violations, facts.in_flight, facts.worker.workers)


def test_unwell_stretches_are_rounded_out_and_joined():
    """A second that was touched is set apart whole."""
    s = stretches_of(
        [Unwell(10.5, 11.5, ""), Unwell(3.0, 3.0, ""), Unwell(12.0, 12.1, ""), Unwell(10.9, 11.0, "")]
    )
    assert ((3, 4), (10, 13)) == s.ranges
    assert 4 == s.seconds
    assert [False, True, False, False, True, True, False] == [s.covers(x) for x in (2, 3, 4, 9, 10, 12, 13)]
    assert 1.5 == s.overlap_s(3.5, 11.0)


@pytest.mark.parametrize(("at_s", "words"), [(41.26, "41.3s"), (725, "12m05s"), (33_600, "9h20m00s")])
def test_instants_are_said_as_people_do(at_s, words):
    """Hours, minutes, seconds."""
    assert words == clock(at_s)
