"""What no fault asked for: a proxy that ended fails, a backend that ended excuses, a certificate that does not verify is never excused."""

from __future__ import annotations

from typing import Any

import pytest

from soak.model import Event, Outcome, SightKind, SightVia, Unwell, Vital
from tests.soak.synthetic import SyntheticRun, record
from tests.soak.verdict.runs import only_missed


def event(at_s: float, name: str, /, **data: Any) -> Event:
    return Event(at_s, 1_700_000_000 + at_s, name, data)


def looks(run: SyntheticRun, pid: int, *, since_s: int = 0) -> None:
    run.vitals = [v for v in run.vitals if v.at_s < since_s]
    run.vitals += [
        Vital(float(t), "proxy", 10**8, 1.0, 50, 3, 0, {"pid": pid}) for t in range(since_s, run.seconds, 5)
    ]


class TestProxy:
    def test_a_proxy_that_was_started_anew_by_somebody_is_named(self, verdict):
        """A supervisor hid it: not one request failed."""
        run = SyntheticRun(seconds=300)
        looks(run, 100)
        looks(run, 200, since_s=100)
        missed = only_missed(v := verdict(run))
        assert ("fail", "proxy_alive", 100.0) == (v.verdict, missed.name, missed.at_s)
        assert "its first process was 100 and is 200 since 1m40s" == missed.reason

    def test_a_proxy_that_stays_is_well(self, verdict):
        """One first process, from the first look to the last."""
        run = SyntheticRun(seconds=60)
        looks(run, 100)
        v = verdict(run)
        assert ("pass", 0) == (v.verdict, next(o.value for o in v.objectives if o.name == "proxy_alive"))

    @pytest.mark.parametrize("name", ["proxy.died", "proxy.oom", "proxy.removed"])
    def test_an_end_that_was_seen_is_told_with_how(self, verdict, name):
        """In its own words, and only once: the other process that follows is no second end."""
        run = SyntheticRun(seconds=300)
        looks(run, 100)
        looks(run, 200, since_s=100)
        run.events = [event(97.0, name, name="proxy", how="it was ended by SIGSEGV")]
        missed = only_missed(verdict(run))
        assert ("proxy_alive", 1) == (missed.name, missed.value)
        assert "proxy ended at 1m37s: it was ended by SIGSEGV" == missed.reason

    def test_an_end_under_a_fault_of_the_proxy_itself_was_asked_for(self, verdict):
        """Its memory was taken away: that the kernel ends it then is the fault's doing."""
        run = SyntheticRun(seconds=300)
        run.add_fault(record(1, "backend-down", 90.0, target="proxy", reverted_s=100.0))
        run.events = [event(97.0, "proxy.oom", name="proxy", how="killed for want of memory")]
        looks(run, 100)
        looks(run, 200, since_s=100)
        v = verdict(run)
        assert ("pass", 0) == (v.verdict, next(o.value for o in v.objectives if o.name == "proxy_alive"))

    def test_what_happened_before_or_after_the_run_does_not_count(self, verdict):
        """Before hour zero it could not be relied upon, after the load it may go."""
        run = SyntheticRun(seconds=60)
        run.events = [event(-1.0, "proxy.died", name="proxy"), event(61.0, "proxy.died", name="proxy")]
        assert "pass" == verdict(run).verdict


class TestEngine:
    def run(self, *events: Event) -> SyntheticRun:
        run = SyntheticRun(seconds=300)
        looks(run, 100)
        run.events = list(events)
        run.fail(101, Outcome.CONNECT_REFUSED, 50)
        return run

    @pytest.mark.parametrize("died_s", [99.0, 105.0, 112.0])
    def test_an_engine_that_takes_the_proxy_along_is_to_blame(self, verdict, died_s):
        """It was away, and what it ran ended with it or once it was back: nothing is known of the proxy from then on."""
        gone = event(died_s, "proxy.died", name="proxy", how="it was ended by SIGKILL")
        v = verdict(self.run(event(100.0, "engine.away"), event(110.0, "engine.back"), gone))
        assert "invalid" == v.verdict
        assert "the container engine went away at 1m40s and took the proxy along" in v.reasons[0]

    @pytest.mark.parametrize("died_s", [84.0, 141.0])
    def test_a_proxy_that_ends_at_another_time_ends_by_itself(self, verdict, died_s):
        """Before the engine went, or long after it was back."""
        gone = event(died_s, "proxy.died", name="proxy", how="it was ended by SIGSEGV")
        v = verdict(self.run(event(100.0, "engine.away"), event(110.0, "engine.back"), gone))
        assert ("fail", ["proxy_alive"]) == (
            v.verdict,
            [o.name for o in v.objectives if o.name == "proxy_alive" and not o.ok],
        )

    def test_an_engine_that_is_away_excuses_nothing_by_itself(self, verdict):
        """Containers run without it; a proxy that fails meanwhile fails."""
        v = verdict(self.run(event(100.0, "engine.away")))
        assert "fail" == v.verdict


class TestBackends:
    def test_a_backend_that_died_by_itself_is_not_held_against_the_proxy(self, verdict):
        """Nobody can say what the proxy should have done: invalid, with the backend's name."""
        run = SyntheticRun(seconds=300)
        run.events = [event(100.0, "origin.died", name="b2", how="it was ended by SIGKILL")]
        run.fail(101, Outcome.STATUS_5XX, 3)
        v = verdict(run)
        assert "invalid" == v.verdict
        assert "backend b2 ended although no fault asked for it (it was ended by SIGKILL)" in v.reasons[0]

    def test_it_takes_nothing_from_a_pass(self, verdict):
        """A proxy that went round it kept its promises."""
        run = SyntheticRun(seconds=300)
        run.events = [event(100.0, "origin.died", name="b2")]
        assert "pass" == verdict(run).verdict

    def test_what_failed_before_still_fails(self, verdict):
        """Only what came after it is excused."""
        run = SyntheticRun(seconds=300)
        run.events = [event(100.0, "origin.died", name="b2")]
        run.fail(50, Outcome.STATUS_5XX)
        assert "fail" == verdict(run).verdict


class TestCertificates:
    def test_one_that_does_not_verify_is_named_with_what_came_before(self, verdict):
        """Seen by fresh handshakes alone: kept connections go on. Our own illness is no excuse for it."""
        run = SyntheticRun(seconds=300)
        run.add_fault(record(1, "cert-rotate", 90.0))
        run.unwell = [Unwell(100.0, 102.0, "late")]
        run.events = [
            event(
                s, "probe.failed", at_s=s, stage="certificate", reason="certificate has expired", serial="aa"
            )
            for s in (100.5, 101.5)
        ]
        missed = only_missed(v := verdict(run))
        assert ("fail", "certificate_valid", 2, 1) == (v.verdict, missed.name, missed.value, missed.fault)
        assert (
            "2 fresh handshakes showed a certificate that does not verify: certificate has expired (serial aa); "
            "first at 1m40s, 10.5 s after cert-rotate #1 at 1m30s"
        ) == missed.reason

    def test_a_handshake_that_came_to_nothing_says_nothing_of_certificates(self, verdict):
        """Refused or slow: traffic judges that."""
        run = SyntheticRun(seconds=60)
        run.see(SightKind.SERIAL, "aa", 0.0, 59.0, SightVia.PROBE)
        run.events = [event(10.0, "probe.failed", at_s=10.0, stage="connect", reason="refused")]
        v = verdict(run)
        assert "pass" == v.verdict
        assert "certificate_valid" in {o.name for o in v.objectives}


KNOWN = event(0.1, "proxy.workers_known")


def worker_died(to_s: float, *pids: int, **data: Any) -> Event:
    said = {"workers": len(pids), "pids": list(pids), "from_s": to_s - 5, "to_s": to_s, "replaced": len(pids)}
    return event(to_s, "proxy.worker_died", **{**said, **data})


class TestWorkers:
    def test_a_worker_that_was_replaced_is_named_with_how_and_when(self, verdict):
        """Not one request failed."""
        run = SyntheticRun(seconds=300)
        run.add_fault(record(4, "reload", 60.0))
        run.events = [KNOWN, worker_died(105.0, 4711, how={"4711": "exited on signal 11 (core dumped)"})]
        missed = only_missed(v := verdict(run))
        assert ("fail", "workers_kept", 1, 0) == (v.verdict, missed.name, missed.value, missed.limit)
        assert (105.0, 4, ("4",)) == (missed.at_s, missed.fault, missed.evidence)
        assert (
            "1 of the proxy's workers ended unasked (1 replaced, limit 0): pid 4711 between 1m40s and 1m45s "
            "(exited on signal 11 (core dumped)); first 45 s after reload #4 at 1m00s"
        ) == missed.reason

    def test_many_are_counted_and_the_first_are_named(self, verdict):
        """Those that an event did not name, too; what came before hour zero is none of the run's."""
        run = SyntheticRun(seconds=300)
        run.events = [
            KNOWN,
            worker_died(-2.0, 1),
            worker_died(105.0, 11, 12, replaced=1),
            worker_died(200.0, *range(20, 36), workers=40),
        ]
        missed = only_missed(verdict(run))
        assert (42, 105.0, None, ()) == (missed.value, missed.at_s, missed.fault, missed.evidence)
        assert (
            "42 of the proxy's workers ended unasked (17 replaced, limit 0): pid 11 between 1m40s and 1m45s; "
            "pid 12 between 1m40s and 1m45s; pid 20 between 3m15s and 3m20s; and 39 more, the last until 3m20s"
        ) == missed.reason

    def test_being_unwell_ends_no_worker(self, verdict):
        """Nor does hunger: no second is set apart for this."""
        run = SyntheticRun(seconds=300)
        run.unwell = [Unwell(100.0, 101.0, "stopped")]
        run.events = [KNOWN, worker_died(100.5, 11)]
        assert "workers_kept" == only_missed(verdict(run)).name

    def test_a_limit_may_allow_some(self, verdict):
        """For a proxy whose workers end after so many requests by design."""
        run = SyntheticRun(seconds=60)
        run.plan = {"objectives": {"workers_kept": 1}}
        run.events = [KNOWN, worker_died(50.0, 11)]
        v = verdict(run)
        assert ("pass", 1) == (v.verdict, next(o.value for o in v.objectives if o.name == "workers_kept"))

    @pytest.mark.parametrize("known", [False, True])
    def test_workers_that_nobody_told_apart_are_not_judged(self, verdict, known):
        """A proxy of one process, or one whose processes could not be identified."""
        run = SyntheticRun(seconds=60)
        run.events = [KNOWN] if known else []
        v = verdict(run)
        assert known is ("workers_kept" in {o.name for o in v.objectives})
        assert known is not ("workers_kept" in {n.name for n in v.not_judged})
