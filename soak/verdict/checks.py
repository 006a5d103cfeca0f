"""Every check of a verdict in the order of the report, and those that look at the traffic of the whole run.

A check measures one thing and returns an ``Objective``, or ``NotJudged`` with the reason. Unwell seconds are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from soak.measure.histogram import Histogram
from soak.model import Outcome
from soak.verdict import (
    aftermath,
    balance,
    drifting,
    faulting,
    happenings,
    keeping,
    origins,
    recovering,
    stalls,
    workers,
)
from soak.verdict.classes import classes
from soak.verdict.facts import MISMATCHES, RunFacts
from soak.verdict.losses import first_of, in_steady, in_transition, lost
from soak.verdict.objectives import Found, NotJudged, Objective, Word, clock, label

FINISHED = "finished"
WISHED_ENDS = frozenset({FINISHED, "stopped", "soak stop", "SIGINT", "SIGTERM"})
"""Ends that the plan or a person wanted; a run that ended otherwise cannot be judged as a whole."""
_END_SLACK_S = 2.0
_RACE_S = 0.05
_LEAST_DROPPED = 5
Check = Callable[[RunFacts], Found | Sequence[Found]]


def rate_held(f: RunFacts) -> Objective:
    """Judge the share of slots that were sent. Dropped slots are the proxy's doing, missed ones are our own."""
    scheduled = sum(t.scheduled for t in f.totals)
    sent = sum(t.sent for t in f.totals)
    missed = sum(t.missed for t in f.totals)
    dropped = sum(t.dropped for t in f.totals) - sum(t.dropped for t in f.excused_totals)
    limit = f.objectives.rate_held
    value = sent / scheduled if scheduled else 0.0
    word, reason = Word.PASS, ""
    at_s: float | None = None
    fault: int | None = None
    evidence: tuple[str, ...] = ()
    if scheduled and (scheduled - dropped) / scheduled < limit:
        word = Word.FAIL
        where, at_s, fault, evidence = _most_dropped(f)
        reason = (
            f"{dropped} of {scheduled} slots were dropped, for too many requests were waiting for the proxy"
            f"{where}"
        )
    elif value < limit:
        word = Word.INVALID
        reason = f"only {value:.3%} of {scheduled} slots were sent: soak itself missed {missed} of them"
    return Objective(
        "rate_held", "sent / scheduled", value, limit, "share", word, reason, at_s, fault, evidence
    )


def _most_dropped(f: RunFacts) -> tuple[str, float | None, int | None, tuple[str, ...]]:
    """Return words for where most slots were dropped, since when, the fault and its evidence."""
    dropped = Counter[int]()
    for t in f.totals:
        dropped[t.scope] += t.dropped
    scope, n = dropped.most_common(1)[0]
    ids = set(f.scope_faults(scope))
    under = [x for x in f.faults if x.id in ids]
    start_s = f.scopes[scope].start_s if scope in f.scopes else None
    if not under:
        return f"; {n} of them in phase {f.phase(scope)}", start_s, None, ()
    words = f"; {n} of them under {' and '.join(map(label, under))}"
    return words, start_s, under[0].id, (str(under[0].id),)


def success(f: RunFacts) -> Objective | NotJudged:
    """Judge the share of ended requests that ended as promised; our own failures are left out."""
    ok = failed = 0
    for _, good, failures in f.judged():
        ok += good
        failed += failures.total() - failures[Outcome.CLIENT_RESOURCE]
    if ok + failed == 0:
        return NotJudged("success", "no request ended")
    value, limit = ok / (ok + failed), f.objectives.success
    if value >= limit:
        return Objective("success", "ok / ended", value, limit, "share")
    worst = Counter[Outcome]()
    for _, _, failures in f.judged():
        worst += failures
    words = ", ".join(f"{n} {o}" for o, n in worst.most_common(3))
    reason = f"only {value:.3%} of requests ended as promised; {words}{first_of(f, worst)[0]}"
    return Objective(
        "success", "ok / ended", value, limit, "share", Word.FAIL, reason, *first_of(f, worst)[1:]
    )


def steady_failures(f: RunFacts) -> Objective:
    """Judge that nothing fails while nothing is going on. Classes with a limit of their own are judged by that."""
    own = {name for name, limits in f.class_limits.items() if limits.steady_failures is not None}
    limit = f.objectives.steady_failures
    return lost(f, "steady_failures", limit, lambda c, s: c not in own and in_steady(f, s), "in phase steady")


def transition_failures(f: RunFacts) -> Objective | NotJudged:
    """Judge that reloads and rotations lose nothing. Classes with a limit of their own are judged by that."""
    if not any(f.is_transition(fault.kind) for fault in f.faults):
        return NotJudged("transition_failures", "no reload or rotation in this run")
    own = {name for name, limits in f.class_limits.items() if limits.transition_failures is not None}
    limit = f.objectives.transition_failures
    return lost(
        f,
        "transition_failures",
        limit,
        lambda c, s: c not in own and in_transition(f, s),
        "to reloads and rotations",
    )


def stale_reuse(f: RunFacts) -> Objective | NotJudged:
    """Judge the share of requests that met a kept connection as it closed; real clients repeat those."""
    stale = ended = 0
    for _, ok, failures in f.judged():
        stale += failures[Outcome.STALE_REUSE]
        ended += ok + failures.total()
    if not ended:
        return NotJudged("stale_reuse", "no request ended")
    blind = sum(t.stale_non_idempotent for t in f.totals)
    value, limit = stale / ended, f.objectives.stale_reuse
    measured = f"stale_reuse / ended; {blind} of {stale} not idempotent, so no client may repeat them blindly"
    no_race = _dropped(f)
    if value <= limit and not no_race:
        return Objective("stale_reuse", measured, value, limit, "share")
    when, at_s, fault, evidence = first_of(f, [Outcome.STALE_REUSE])
    reason = f"{stale} of {ended} requests met a connection that the proxy was closing ({value:.4%}, limit {limit:.4%}){no_race}{when}"
    return Objective("stale_reuse", measured, value, limit, "share", Word.FAIL, reason, at_s, fault, evidence)


def _dropped(f: RunFacts) -> str:
    """Say when most of these requests, in steady state and at transitions, met no race at all: the proxy had them, and dropped them.

    A connection that was closing as the request went out is seen to close one way over the network later, at most.
    """
    handshakes = Histogram()
    for *_, handshake in f.histograms.values():
        handshakes.merge(handshake)
    race_s = max(_RACE_S, handshakes.quantile_ns(0.5) / 1e9)
    ages = [age_s for scope, age_s in f.stale_kept if in_steady(f, scope) or in_transition(f, scope)]
    late = sum(age_s > race_s for age_s in ages)
    if late < _LEAST_DROPPED or late <= len(ages) / 2:
        return ""
    return (
        f"; {late} of {len(ages)} kept as evidence closed later than {race_s * 1e3:.0f} ms after the request was sent, "
        "so it was no race: the proxy had these requests and dropped them"
    )


def tls_not_resumed(f: RunFacts) -> Objective | NotJudged:
    """Judge the share of attempts to resume a TLS session that ended in a full handshake: a cost, not a loss."""
    refused = sum(failures[Outcome.TLS_NOT_RESUMED] for _, _, failures in f.judged())
    attempts = refused + f.connections.tls_resumed
    if not attempts:
        return NotJudged("tls_not_resumed", "no traffic class resumed TLS sessions")
    value, limit = refused / attempts, f.objectives.tls_not_resumed
    measured = "tls_not_resumed / attempts to resume"
    if value <= limit:
        return Objective("tls_not_resumed", measured, value, limit, "share")
    when, at_s, fault, evidence = first_of(f, [Outcome.TLS_NOT_RESUMED])
    reason = f"{refused} of {attempts} TLS sessions were not resumed ({value:.2%}, limit {limit:.2%}){when}"
    return Objective(
        "tls_not_resumed", measured, value, limit, "share", Word.FAIL, reason, at_s, fault, evidence
    )


def mismatches(f: RunFacts) -> Objective:
    """Judge that no answer was another request's, or had a wrong body: neither hunger nor our own illness makes one."""
    n = sum(failures[o] for failures in f.failures.values() for o in MISMATCHES)
    limit = f.objectives.mismatches
    measured = "answers that were another request's, or had a wrong body"
    if n <= limit:
        return Objective("mismatches", measured, n, limit, "requests")
    when, at_s, fault, evidence = first_of(f, MISMATCHES)
    reason = f"{n} answers did not belong to their request or had a wrong body (limit {limit}){when}"
    return Objective("mismatches", measured, n, limit, "requests", Word.FAIL, reason, at_s, fault, evidence)


def self_healthy(f: RunFacts) -> Objective:
    """Judge that soak itself was able to judge: alive, on time, with all its sums in order."""
    share = f.stretches.seconds / f.elapsed_s if f.elapsed_s else 0.0
    limit = f.self_limits.max_unwell
    reasons: list[str] = []
    at_s: float | None = None
    if not any(t.sent for t in f.totals):
        reasons.append("not one request was sent, so there is nothing to judge")
    if share > limit:
        at_s = f.unwell[0].from_s
        reasons.append(
            f"soak was unwell in {f.stretches.seconds} of {f.elapsed_s:.0f} s ({share:.1%}, limit {limit:.1%}), "
            f"first at {clock(at_s)}: {f.unwell[0].reason}"
        )
    reasons += [
        f"soak was unwell while {what} of {label(fault)} was to be seen" for fault, what in faulting.hidden(f)
    ]
    if ours := sum(c[Outcome.CLIENT_RESOURCE] for c in f.failures.values()):
        reasons.append(f"{ours} requests failed for want of our own resources (client_resource)")
    reasons += f.violations
    reasons += [f"{n} {k.removeprefix('lost_')} records were lost by the store" for k, n in _holes(f)]
    word = Word.INVALID if reasons else Word.PASS
    measured = "unwell seconds / seconds"
    return Objective("self_healthy", measured, share, limit, "share", word, "; ".join(reasons), at_s)


def run_complete(f: RunFacts) -> Objective:
    """Judge that the run came to an end that somebody wanted."""
    value, limit = f.elapsed_s, f.length_s
    of = f"{clock(value)} of {clock(limit)}"
    reason = ""
    why = None if f.ended is None else str(f.ended.get("reason") or "nobody said why")
    if why is None and f.live:
        reason = f"the run is still going: {of}"
    elif why is None:
        reason = f"the run ended by itself after {of}: its daemon was killed or crashed"
    elif why not in WISHED_ENDS:
        reason = f"the run ended early, after {of}: {why}"
    elif why == FINISHED and value < limit - _END_SLACK_S:
        reason = f"the load ended by itself after {of}"
    word = Word.INVALID if reason else Word.PASS
    return Objective("run_complete", "length of the run", value, limit, "s", word, reason)


def _holes(f: RunFacts) -> list[tuple[str, int]]:
    return [(k, n) for k, n in sorted(f.counters.items()) if k.startswith("lost_") and n]


CHECKS: tuple[tuple[str, Check], ...] = (
    ("rate_held", rate_held),
    ("success", success),
    ("steady_failures", steady_failures),
    ("transition_failures", transition_failures),
    ("stale_reuse", stale_reuse),
    ("tls_not_resumed", tls_not_resumed),
    ("mismatches", mismatches),
    ("classes", classes),
    *stalls.CHECKS,
    *origins.CHECKS,
    *balance.CHECKS,
    *keeping.CHECKS,
    *faulting.CHECKS,
    *recovering.CHECKS,
    *aftermath.CHECKS,
    *workers.CHECKS,
    *happenings.CHECKS,
    *drifting.CHECKS,
    ("self_healthy", self_healthy),
    ("run_complete", run_complete),
)
"""Names and checks, in the order of the report."""
