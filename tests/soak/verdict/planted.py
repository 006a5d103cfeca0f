"""Defects as runs made of whole cloth, by the words that docs/DEFECTS.md has for them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chaos.model import FaultOutcome
from soak.model import Event, Outcome, Sighting, SightKind, SightVia, Vital
from tests.soak.synthetic import SyntheticRun, histogram, record, window
from tests.soak.synthetic import failed as failed_request
from tests.soak.verdict.runs import eventful

LONG_S = 7300
MIB = 2**20
ONE_CLASS = {"traffic": {"classes": [{"name": "get", "share": 1}]}}
PLANTED: dict[str, list[tuple[str, Callable[[], SyntheticRun]]]] = {}
"""By row: the objective that must name it, and the run. A row with several defects has several."""


def planted(row: str, *objectives: str) -> Callable[[Callable[[], SyntheticRun]], Callable[[], SyntheticRun]]:
    def keep(build: Callable[[], SyntheticRun]) -> Callable[[], SyntheticRun]:
        PLANTED.setdefault(row, []).extend((name, build) for name in objectives)
        return build

    return keep


def under_reload(outcome: Outcome, n: int = 2) -> Callable[[], SyntheticRun]:
    def build() -> SyntheticRun:
        run = eventful()
        run.fail(10, outcome, n)
        return run

    return build


def steady(outcome: Outcome) -> Callable[[], SyntheticRun]:
    def build() -> SyntheticRun:
        run = eventful()
        run.fail(70, outcome)
        return run

    return build


def failed(kind: str, reason: str, **evidence: Any) -> Callable[[], SyntheticRun]:
    def build() -> SyntheticRun:
        run = eventful()
        changes = {"active_s": None, "outcome": FaultOutcome.FAILED, "reason": reason, "evidence": evidence}
        run.add_fault(record(4, kind, 50.0, **changes))
        return run

    return build


def looked_at(seconds: int = LONG_S, *, every_s: int = 30, **read: Callable[[float], float]) -> SyntheticRun:
    """A run with a reload every five minutes and looks at a proxy whose vitals are these functions of time."""
    run = SyntheticRun(seconds=seconds)
    for i in range(1, seconds // 300):
        run.add_fault(record(i, "reload", i * 300.0))
    for t in range(0, seconds, every_s):
        values: dict[str, Any] = {"rss_bytes": 30 * MIB, "cpu_s": t * 0.05, "fds": 50, "processes": 3}
        values |= {key: of(t) if key == "cpu_s" else int(of(t)) for key, of in read.items()}
        run.vitals.append(Vital(float(t), "proxy", **values, detail={"pid": 7, "roles": {"worker": 2}}))
    return run


def slow(run: SyntheticRun, seconds: range, ms: float) -> SyntheticRun:
    for s in seconds:
        run.changes[s] = {"latency": histogram(100, ms)}
    return run


def answering(**answers: tuple[int, float]) -> SyntheticRun:
    run = SyntheticRun(seconds=300, plan=ONE_CLASS)
    run.sightings = [
        Sighting(SightKind.ORIGIN, name, SightVia.TRAFFIC, 0.0, last_s, n)
        for name, (n, last_s) in answers.items()
    ]
    return run


def away(run: SyntheticRun, until_s: float, *failing: int, **changes: Any) -> SyntheticRun:
    run.add_fault(record(1, "backend-down", 60.0, reverted_s=until_s, **changes))
    for s in failing:
        run.fail(s, Outcome.STATUS_5XX, evidence=False)
    return run


# -- at a reload or a rotation ---------------------------------------------------------------------------------------------

for _reason in ("the proxy accepted it", "the old one stopped serving", "the good one was refused"):
    planted(
        "a broken configuration is accepted, or kills the good one, or the next good one is ignored",
        "faults_verified",
    )(failed("reload-bad", _reason))
planted("the listener is closed for a moment", "transition_failures")(under_reload(Outcome.CONNECT_REFUSED))
for _outcome in (Outcome.CUT_BEFORE_RESPONSE, Outcome.CUT_MID_RESPONSE, Outcome.H2_GOAWAY):
    planted(
        "requests in flight are dropped, sockets cut, HTTP/2 streams lost behind a GOAWAY",
        "transition_failures",
    )(under_reload(_outcome))
planted(
    "kept connections are closed without notice, more than clients can repeat",
    "stale_reuse",
)(under_reload(Outcome.STALE_REUSE, 9))
planted("sessions are not resumed any more", "tls_not_resumed")(under_reload(Outcome.TLS_NOT_RESUMED, 9))
planted("the new certificate is never served, late, or not by all workers", "faults_verified")(
    failed("cert-rotate", "serial bb was never presented by a fresh handshake within 10 s")
)
WRONG_CERTIFICATE = "a wrong or expired certificate is served, if only to new connections"
planted(WRONG_CERTIFICATE, "transition_failures")(under_reload(Outcome.TLS_CERTIFICATE))
planted(WRONG_CERTIFICATE, "steady_failures")(steady(Outcome.TLS_CERTIFICATE))


@planted("requests in flight on kept connections are dropped, within the budget for races", "stale_reuse")
def _dropped_in_flight() -> SyntheticRun:
    return stale(5, after_s=0.08)


def stale(n: int, *, after_s: float) -> SyntheticRun:
    """A reload at which so many requests ended with their kept connection, so long after they were sent."""
    run = SyntheticRun(seconds=300)
    run.add_fault(record(1, "reload", 100.0))
    run.fail(100, Outcome.STALE_REUSE, n, evidence=False)
    rows = [failed_request(100, run.scope_at(100), Outcome.STALE_REUSE) for _ in range(n)]
    run.evidence[100] = [replace(row, done_s=row.sent_s + after_s) for row in rows]
    return run


@planted("it takes effect late", "config_effect")
def _late() -> SyntheticRun:
    run = eventful()
    run.add_fault(record(4, "reload", 50.0, active_s=62.5))
    return run


@planted("one worker keeps the old configuration for ever", "old_config_gone")
def _two_configurations() -> SyntheticRun:
    run = eventful()
    run.see(SightKind.GENERATION, "1", 0.0, 89.0)
    return run


@planted("an old worker is ended with requests of its own, ten seconds later", "steady_failures")
def _later() -> SyntheticRun:
    run = SyntheticRun(seconds=300)
    run.add_fault(record(1, "reload", 100.0))
    run.fail(110, Outcome.CUT_MID_RESPONSE)
    return run


@planted("every request waits, though none fails", "recovery")
def _waiting() -> SyntheticRun:
    run = SyntheticRun(seconds=200)
    run.add_fault(record(1, "reload", 60.0, recovery_s=20.0, recovered_s=80.0), until_s=83.0)
    return slow(run, range(60, 80), 900.0)


@planted("old workers never end", "old_workers_gone")
def _old_worker() -> SyntheticRun:
    run = looked_at(900, every_s=5, processes=lambda t: 3 + (t > 600))
    run.vitals = [
        Vital(v.at_s, v.subject, v.rss_bytes, v.cpu_s, v.fds, v.processes, v.processes - 3, v.detail)
        for v in run.vitals
    ]
    run.faults, run.scopes = run.faults[:2], run.scopes[:5]
    return run


@planted("old workers never end", "processes_growth")
@planted("processes pile up", "processes_growth")
def _processes() -> SyntheticRun:
    return looked_at(processes=lambda t: 3 + t // 300)


@planted("a file is left open by each reload", "fds_growth")
def _file_a_reload() -> SyntheticRun:
    return looked_at(fds=lambda t: 50 + t // 300)


@planted("a worker spins", "cpu_drift")
@planted("the same requests need more and more processor time", "cpu_drift")
def _spinning() -> SyntheticRun:
    return looked_at(cpu_s=lambda t: t * 0.05 + max(0.0, t - 3000))


@planted("the new certificate is never served, late, or not by all workers", "certificate_effect")
def _late_certificate() -> SyntheticRun:
    run = eventful()
    run.add_fault(record(4, "cert-rotate", 50.0, active_s=62.5))
    return run


@planted("the new certificate is never served, late, or not by all workers", "old_certificate_gone")
def _two_certificates() -> SyntheticRun:
    run = eventful()
    run.see(SightKind.SERIAL, "aa", 0.0, 70.0, SightVia.PROBE)
    return run


@planted(WRONG_CERTIFICATE, "certificate_valid")
def _expired() -> SyntheticRun:
    run = eventful()
    said = {"at_s": 21.0, "stage": "certificate", "reason": "certificate has expired", "serial": "aa"}
    run.events.append(Event(21.0, 1_700_000_021.0, "probe.failed", said))
    return run


# -- when a backend goes, and when it comes back -----------------------------------------------------------------------------


@planted("it takes long to route around it, or never does", "recovery")
def _long() -> SyntheticRun:
    return away(SyntheticRun(seconds=2000), 120.0, *range(60, 75), recovery_s=14.5)


@planted("it takes long to route around it, or never does", "recovery")
def _never() -> SyntheticRun:
    run = away(SyntheticRun(seconds=300), 120.0, recovery_s=None, recovered_s=None)
    return slow(run, range(60, 300), 300.0)


@planted(
    "1 % fail for as long as it is away, also when that is no longer than it may take to recover", "recovery"
)
def _one_percent() -> SyntheticRun:
    return away(SyntheticRun(seconds=2000), 70.0, *range(60, 70), recovery_s=9.5, recovered_s=70.0)


@planted("traffic had recovered, but now and then a request is sent there still", "recovered_success")
def _now_and_then() -> SyntheticRun:
    return away(SyntheticRun(seconds=3600), 120.0, *range(60, 120, 5), recovery_s=0.5, recovered_s=120.0)


@planted("traffic has not recovered when the run ends", "recovery")
def _at_the_end() -> SyntheticRun:
    run = away(SyntheticRun(seconds=90), 65.0, recovery_s=None, recovered_s=None)
    return slow(run, range(60, 90), 300.0)


planted("it is never used again", "faults_verified")(
    failed("backend-down", "backend b1 never came back into rotation within 10 s of its revert")
)


@planted("it is used again, and forgotten later", "balance")
def _forgotten() -> SyntheticRun:
    return away(answering(b1=(15_000, 299.9), b2=(12_000, 299.9), b3=(3_000, 80.0)), 65.0, target="b3")


@planted("another backend gets next to nothing", "balance")
def _starved() -> SyntheticRun:
    return answering(b1=(15_000, 299.9), b2=(14_900, 299.9), b3=(100, 299.9))


@planted("a POST is sent to a second backend, too", "duplicates")
def _twice() -> SyntheticRun:
    run = eventful()
    run.origins = {"b1": {"requests": 4500, "non_idempotent": 450, "duplicates": 1}}
    return run


@planted("more requests wait for the proxy than there may be", "rate_held")
def _dropped() -> SyntheticRun:
    run = eventful()
    run.changes[30] = {"scheduled": 150, "dropped": 50}
    return run


# -- while nothing is going on -------------------------------------------------------------------------------------------------

planted("one wrong body in ten thousand; another user's object from the cache", "mismatches")(
    steady(Outcome.BODY_MISMATCH)
)
planted("another request's answer, once; the request's id lost on the way", "mismatches")(
    steady(Outcome.IDENTITY_MISMATCH)
)
planted("a burst of errors outside of every fault", "steady_failures")(steady(Outcome.STATUS_5XX))


@planted("everything stands still for two seconds every minute, and is answered in the end", "steady_p99")
def _standing_still() -> SyntheticRun:
    run = SyntheticRun(seconds=300)
    for s in range(30, 300, 60):
        slow(run, range(s, s + 2), 1500.0)
    return run


@planted("kept connections are closed after each answer", "connections_kept")
def _closing() -> SyntheticRun:
    run = SyntheticRun(seconds=60, plan=ONE_CLASS)
    run.reused = 0
    return run


@planted("the proxy ends and is started again by whoever supervises it", "proxy_alive")
def _started_again() -> SyntheticRun:
    run = looked_at(300)
    run.vitals = [
        Vital(v.at_s, v.subject, v.rss_bytes, v.cpu_s, v.fds, v.processes, 0, {"pid": 7 + (v.at_s > 100)})
        for v in run.vitals
    ]
    return run


@planted("a worker crashes and its master replaces it", "workers_kept")
def _replaced() -> SyntheticRun:
    run = looked_at(300)
    said = {"workers": 1, "pids": [8], "from_s": 100.0, "to_s": 105.0, "replaced": 1}
    run.events = [
        Event(0.1, 1_700_000_000.1, "proxy.workers_known"),
        Event(105.0, 1_700_000_105.0, "proxy.worker_died", said),
    ]
    return run


# -- over hours --------------------------------------------------------------------------------------------------------------------

CREEPING = "latency creeps up, of all requests or of one class behind a slower one"


@planted(CREEPING, "p99_drift")
def _creeping() -> SyntheticRun:
    run = SyntheticRun(seconds=LONG_S)
    for s in range(LONG_S):
        slow(run, range(s, s + 1), 1.01 ** (s / 60))
    return run


@planted(CREEPING, "p99_drift")
def _creeping_behind() -> SyntheticRun:
    run = _creeping()
    run.beside = lambda s: [window(s, "new", latency=histogram(100, 30.0))]
    return run


for _mib_per_h in (60, 10):
    planted("memory leaks, 1 MiB a minute or 10 MiB an hour", "rss_growth")(
        lambda per_h=_mib_per_h: looked_at(rss_bytes=lambda t: (30 + per_h * t / 3600) * MIB)  # type: ignore[misc]  # mypy cannot infer a default
    )
planted("files or connections to backends leak", "fds_growth")(
    lambda: looked_at(fds=lambda t: 50 + 30 * t / 3600)
)


# -- nothing at all ------------------------------------------------------------------------------------------------------------------


def noisy(seed: int) -> SyntheticRun:
    """Two healthy hours of a proxy on a host that has other things to do: everything wanders, hiccups, drains and races."""
    rng = random.Random(seed)
    run = answering(**dict.fromkeys(("b1", "b2", "b3"), (LONG_S * 33, LONG_S - 0.1)))
    run.seconds, fault = LONG_S, 0
    run.events = [Event(0.1, 1_700_000_000.1, "proxy.workers_known")]
    for t in range(300, 7200, 300):
        run.add_fault(record(fault := fault + 1, "reload", float(t), active_s=t + rng.uniform(0.05, 0.6)))
        run.fail(t, Outcome.STALE_REUSE, rng.choice((1, 2)), evidence=False)
        if t % 900 == 0:
            away_s = {"reverted_s": t + 120.0, "recovery_s": rng.uniform(0, 3), "recovered_s": t + 120.5}
            run.add_fault(record(fault := fault + 1, "backend-down", t + 60.0, target="b2", **away_s))
            run.fail(t + 60, Outcome.STATUS_5XX, 2, evidence=False)
    rss, files = 30.0, 60.0
    for t in range(0, LONG_S, 5):
        rss += 0.002 * (30 - rss) + rng.gauss(0, 0.03)
        files += 0.02 * (60 - files) + rng.gauss(0, 1.2)
        old = 2 if 0 < t % 300 < 10 and 300 < t < 7200 else 0
        sizes = int((rss + 8 * old) * MIB), t * 0.05 + rng.uniform(0, 0.05), int(files) + 10 * old
        run.vitals.append(Vital(float(t), "proxy", *sizes, 3 + old, old, {"pid": 7, "roles": {"worker": 2}}))
    for s in range(LONG_S):
        ms = rng.lognormvariate(0, 0.15) * (rng.uniform(5, 300) if rng.random() < 0.01 else 1)
        latency = histogram(97, ms)
        latency.merge(histogram(3, ms * rng.uniform(1, 6)))
        run.changes[s] = {"latency": latency}
    return run
