"""Checks of what faults did: every one verified, new configurations and certificates in effect, old ones gone, recovery.

A fault whose effect or recovery was to be seen while soak was unwell fails nothing: it is ``hidden``, which makes
the run ``invalid`` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from chaos.model import FaultOutcome, FaultRecord, Source
from soak.model import Sighting, SightKind, SightVia
from soak.verdict.facts import RunFacts, edges_of
from soak.verdict.objectives import NotJudged, Objective, Word, clock, label

CERTIFICATE_KINDS = frozenset({"cert-rotate"})
"""Transitions whose effect is a new certificate; that of all others is a new configuration."""
BAD_KINDS = frozenset({"reload-bad"})
"""Transitions that the proxy must refuse."""
_THE_END, _HEAL = "the run is stopping", "the run was told to heal"
"""Reasons of a skip that say nothing of the plan: the run was over."""
_MOST_NAMED = 5
_BLIND_SHARE = 0.5
"""An effect is hidden when soak was unwell for more than this share of the time in which it was to be seen."""


@dataclass(frozen=True, slots=True)
class Timed:
    """How long something took, and the fault that asked for it."""

    fault: FaultRecord | None
    took_s: float
    at_s: float
    words: str
    at_least: bool = False
    """It took longer than this; by how much is not known."""

    def over(self, limit_s: float) -> bool:
        """Whether it took too long."""
        return self.took_s > limit_s or (self.at_least and self.took_s >= limit_s)


def effect_s(fault: FaultRecord) -> float | None:
    """Return how long a transition took from its application to the first sight of its effect, None if never seen."""
    if fault.injected_s is None or fault.active_s is None:
        return None
    return max(fault.active_s - fault.injected_s, 0.0)


def recovery_s(f: RunFacts, fault: FaultRecord) -> float | None:
    """Return the longest disturbance of a fault: as judged while the run went on, else as the store shows it."""
    if fault.recovery_s is not None:
        return fault.recovery_s
    judged = f.recoveries.get(fault.id)
    return None if judged is None else judged.recovery_s


def recovered_s(f: RunFacts, fault: FaultRecord) -> float | None:
    """Return the instant from which traffic stayed in the steady band after a fault."""
    if fault.recovered_s is not None:
        return fault.recovered_s
    judged = f.recoveries.get(fault.id)
    return None if judged is None else judged.recovered_s


# -- hidden by our own illness -------------------------------------------------------------------------------------------


def hidden(f: RunFacts) -> list[tuple[FaultRecord, str]]:
    """Return the faults whose effect or recovery cannot be known, because soak was unwell when it was to be seen."""
    out = []
    for fault in f.faults:
        if _effect_hidden(f, fault):
            out.append((fault, "the effect"))
        elif not f.is_transition(fault.kind) and recovery_hidden(f, fault):
            out.append((fault, "the recovery"))
    return out


def _effect_hidden(f: RunFacts, fault: FaultRecord) -> bool:
    """Whether soak was too unwell to say that an effect came late, or never.

    One that was not seen in the larger part of its time by eyes that were well is no effect that they missed.
    """
    if fault.injected_s is None or fault.outcome in (None, FaultOutcome.SKIPPED):
        return False
    if fault.kind in BAD_KINDS and fault.evidence.get("applied", {}).get("ok") is False:
        return False  # the proxy said yes to it; no eyes were needed to see that
    limit_s, took_s = f.objectives.effect_within, effect_s(fault)
    verified = fault.outcome is FaultOutcome.VERIFIED
    if verified and (took_s is None or not f.is_transition(fault.kind)):
        return False
    if verified and took_s is not None:
        return took_s > limit_s >= took_s - f.stretches.overlap_s(fault.injected_s, fault.injected_s + took_s)
    looks = [t for t in (fault.injected_s, fault.reverted_s) if t is not None]
    blind_s = max(f.stretches.overlap_s(t, t + limit_s) for t in looks)
    return blind_s > (_BLIND_SHARE * limit_s if fault.outcome is FaultOutcome.FAILED else 0)


def recovery_hidden(f: RunFacts, fault: FaultRecord) -> bool:
    """Whether soak was too unwell to say that traffic recovered in time."""
    transition = f.is_transition(fault.kind)
    edges = edges_of(fault, transition=transition)
    if fault.injected_s is None or (fault.reverted_s is None and not transition):
        return False
    limit_s, took_s = f.objectives.recovery_within, recovery_s(f, fault)
    judged = f.recoveries.get(fault.id)
    if took_s is None:
        return f.stretches.overlap_s(edges[-1], edges[-1] + f.recovery_timeout_s) > 0
    if took_s <= limit_s:
        return judged is not None and judged.upper_s is not None and judged.upper_s > limit_s
    return took_s - max(f.stretches.overlap_s(e, e + took_s) for e in edges) <= limit_s


# -- cut short by the end ------------------------------------------------------------------------------------------------


def cut_short(f: RunFacts, fault: FaultRecord) -> bool:
    """Whether the evidence of a fault is missing only because the run, or its traffic, ended before it could be seen."""
    limit_s = f.objectives.effect_within
    if fault.injected_s is None or f.ended is None:
        return False
    if fault.outcome is FaultOutcome.INCONCLUSIVE:
        over_s = (
            fault.reverted_s or fault.injected_s
        )  # healed when the run ended, then traffic had time to recover
        looked = "active" in fault.evidence
        return (limit_s if looked else f.recovery_timeout_s + limit_s) + over_s > f.traffic_end_s
    if fault.outcome is not FaultOutcome.FAILED:
        return False
    if f.is_transition(fault.kind):
        taken = bool(fault.evidence.get("applied", {}).get("ok"))
        return taken and fault.injected_s + limit_s > f.traffic_end_s
    unclean = fault.evidence.get("clean", {}).get("ok") is False
    return unclean and fault.reverted_s is not None and fault.reverted_s + limit_s > f.traffic_end_s


# -- checks --------------------------------------------------------------------------------------------------------------


def faults_verified(f: RunFacts) -> Objective | NotJudged:
    """Judge that evidence showed each fault to have done what it should, and to have been undone."""
    ended = [x for x in f.faults if x.outcome not in (None, FaultOutcome.SKIPPED)]
    never = _never_ran(f)
    if not ended and not never:
        return NotJudged("faults_verified", "no fault ran to its end")
    unseen = {fault.id for fault, _ in hidden(f)}
    cut = {x.id for x in ended if cut_short(f, x)}
    unseen |= cut
    failed = [x for x in ended if x.outcome is FaultOutcome.FAILED and x.id not in unseen]
    unclear = [x for x in ended if x.outcome is FaultOutcome.INCONCLUSIVE and x.id not in unseen]
    bad = failed or unclear
    measured = f"faults of {len(ended)} that evidence does not support"
    if cut:
        measured += f"; {len(cut)} cut short by the end of the run are left out"
    n = len(failed) + len(unclear)
    if not bad and never:
        words = "; ".join(
            f"{kind} never ran, though it was asked for {k} times, so nothing is known of it: {why}"
            for kind, k, why in never
        )
        return Objective("faults_verified", measured, n, 0, "faults", Word.INVALID, words)
    if not bad:
        return Objective("faults_verified", measured, n, 0, "faults")
    word = Word.FAIL if failed else Word.INVALID
    named = "; ".join(f"{label(x)}: {x.reason or x.outcome}" for x in bad[:_MOST_NAMED])
    more = f"; and {len(bad) - _MOST_NAMED} more" if len(bad) > _MOST_NAMED else ""
    return Objective(
        *("faults_verified", measured, n, 0, "faults", word, named + more, bad[0].injected_s, bad[0].id),
        evidence=tuple(str(x.id) for x in bad[:_MOST_NAMED]),
    )


def _never_ran(f: RunFacts) -> list[tuple[str, int, str]]:
    """Return the kinds that the plan asked for and of which not one instance ran: how many, and why the first did not."""
    asked: dict[str, list[FaultRecord]] = {}
    for x in f.faults:
        if x.source is Source.SCHEDULE:
            asked.setdefault(x.kind, []).append(x)
    return [
        (kind, len(faults), faults[0].reason)
        for kind, faults in asked.items()
        if all(x.outcome is FaultOutcome.SKIPPED for x in faults)
        and not all(_THE_END in x.reason or _HEAL in x.reason for x in faults)
    ]


def within(
    name: str, measured: str, limit_s: float, timed: Sequence[Timed], none: str
) -> Objective | NotJudged:
    """Judge the longest of some times."""
    if not timed:
        return NotJudged(name, none)
    worst = max(timed, key=lambda t: (t.over(limit_s), t.took_s))
    if not worst.over(limit_s):
        return Objective(name, measured, worst.took_s, limit_s, "s")
    over = sum(t.over(limit_s) for t in timed)
    reason = f"{worst.words} (limit {limit_s:g} s; {over} of {len(timed)} over it)"
    fault = None if worst.fault is None else worst.fault.id
    evidence = () if fault is None else (str(fault),)
    return Objective(
        name, measured, worst.took_s, limit_s, "s", Word.FAIL, reason, worst.at_s, fault, evidence
    )


def _effects(f: RunFacts, *, certificates: bool) -> list[Timed]:
    unseen = {fault.id for fault, _ in hidden(f)}
    return [
        Timed(x, took_s, x.injected_s or 0.0, f"{label(x)} took {took_s:.2f} s to take effect")
        for x in f.faults
        if f.is_transition(x.kind) and (x.kind in CERTIFICATE_KINDS) == certificates and x.id not in unseen
        if (took_s := effect_s(x)) is not None
    ]


def config_effect(f: RunFacts) -> Objective | NotJudged:
    """Judge how soon traffic showed each new configuration."""
    timed = _effects(f, certificates=False)
    return within(
        "config_effect",
        "longest time until traffic showed a new configuration",
        f.objectives.effect_within,
        timed,
        "no reload took effect in this run",
    )


def certificate_effect(f: RunFacts) -> Objective | NotJudged:
    """Judge how soon a fresh handshake showed each new certificate."""
    timed = _effects(f, certificates=True)
    return within(
        "certificate_effect",
        "longest time until a fresh handshake showed a new certificate",
        f.objectives.effect_within,
        timed,
        "no certificate rotation took effect in this run",
    )


def old_config_gone(f: RunFacts) -> Objective | NotJudged:
    """Judge how long answers of an old configuration were seen after the next one took effect."""
    seen = [s for s in f.sightings if s.kind is SightKind.GENERATION and s.via is SightVia.TRAFFIC]
    return within(
        "old_config_gone",
        "longest time that an old configuration still answered",
        f.objectives.drain_within,
        _leftovers(f, seen, "generation"),
        "no second configuration was seen in this run",
    )


def old_certificate_gone(f: RunFacts) -> Objective | NotJudged:
    """Judge how long fresh handshakes showed an old certificate after the next one took effect."""
    known = {c.serial for c in f.certificates}
    seen = [
        s
        for s in f.sightings
        if s.kind is SightKind.SERIAL and s.via is SightVia.PROBE and (s.value in known or not known)
    ]
    return within(
        "old_certificate_gone",
        "longest time that fresh handshakes still showed an old certificate",
        f.objectives.drain_within,
        _leftovers(f, seen, "certificate"),
        "no second certificate was seen in this run",
    )


def _leftovers(f: RunFacts, seen: Iterable[Sighting], what: str) -> list[Timed]:
    """Return how long each value was seen after the next one had been; unwell time is taken off."""
    out = []
    ordered = sorted(seen, key=lambda s: s.first_s)
    for old, new in pairwise(ordered):
        took_s = max(0.0, old.last_s - new.first_s)
        took_s = max(0.0, took_s - f.stretches.overlap_s(new.first_s, old.last_s))
        fault = _cause(f, new.first_s)
        by = "" if fault is None else f" by {label(fault)}"
        words = (
            f"{what} {old.value} was still seen {took_s:.1f} s after {what} {new.value} took effect"
            f" at {clock(new.first_s)}{by}"
        )
        out.append(Timed(fault, took_s, new.first_s, words))
    return out


def _cause(f: RunFacts, at_s: float) -> FaultRecord | None:
    """Return the transition that began last before an instant."""
    began = [
        x for x in f.faults if f.is_transition(x.kind) and x.injected_s is not None and x.injected_s <= at_s
    ]
    return max(began, key=lambda x: x.injected_s or 0.0, default=None)


CHECKS: tuple[tuple[str, Callable[[RunFacts], Objective | NotJudged]], ...] = (
    ("faults_verified", faults_verified),
    ("config_effect", config_effect),
    ("certificate_effect", certificate_effect),
    ("old_config_gone", old_config_gone),
    ("old_certificate_gone", old_certificate_gone),
)
