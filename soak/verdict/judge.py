"""From facts to a verdict: every objective is checked, the worst decides, and a checker that crashes proves nothing.

``fail`` is worse than ``invalid``, ``invalid`` worse than ``pass``. A target that was left as it should not be (dirty)
changes the exit code alone; the verdict is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chaos.model import FaultOutcome
from soak.errors import EXIT_DIRTY, EXIT_FAIL, EXIT_INVALID, EXIT_PASS
from soak.plan import ObjectivesPlan
from soak.store import StoreReader
from soak.verdict.checks import CHECKS, Check
from soak.verdict.facts import RunFacts, gather
from soak.verdict.objectives import NotJudged, Objective, Word

_EXIT = {"pass": EXIT_PASS, "fail": EXIT_FAIL, "invalid": EXIT_INVALID}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a run."""

    verdict: str
    """``pass``, ``fail`` or ``invalid``."""
    reasons: Sequence[str]
    """One sentence for each objective that was missed, the worst first; empty for a pass."""
    objectives: Sequence[Objective]
    not_judged: Sequence[NotJudged]
    dirty: bool

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 3 invalid, 4 dirty."""
        return EXIT_DIRTY if self.dirty else _EXIT[self.verdict]

    @property
    def worst(self) -> Objective | None:
        """The missed objective that decides, None for a pass."""
        missed = _missed(self.objectives)
        return missed[0] if missed else None


def judge_run(
    reader: StoreReader, objectives: ObjectivesPlan | None = None, *, live: bool = False
) -> tuple[RunFacts, Verdict]:
    """Read a run and judge it. One that fails is judged again without the seconds in which the lab was starved or broken."""
    facts = gather(reader, objectives, live=live)
    verdict = judge(facts)
    if verdict.verdict == Word.FAIL and facts.excusable.seconds:
        facts = gather(reader, objectives, live=live, excuse=True)
        verdict = judge(facts)
    return facts, verdict


def judge(facts: RunFacts, checks: Iterable[tuple[str, Check]] = CHECKS) -> Verdict:
    """Judge a run by its objectives. Never raises: a checker that does makes the run ``invalid``, with its words."""
    objectives: list[Objective] = []
    not_judged: list[NotJudged] = []
    for name, check in checks:
        try:
            found = check(facts)
        except Exception as e:  # noqa: BLE001 - whatever a checker trips over, it has not shown that the run passed
            reason = f"the checker crashed, so nothing is known: {type(e).__name__}: {e}"
            found = Objective(name, "could not be measured", None, None, word=Word.INVALID, reason=reason)
        for one in [found] if isinstance(found, Objective | NotJudged) else found:
            if isinstance(one, NotJudged):
                not_judged.append(one)
            else:
                objectives.append(one)
    missed = _missed(objectives)
    return Verdict(
        verdict=str(missed[0].word) if missed else "pass",
        reasons=[o.sentence for o in missed],
        objectives=objectives,
        not_judged=not_judged,
        dirty=bool((facts.ended or {}).get("dirty"))
        or any(f.outcome is FaultOutcome.DIRTY for f in facts.faults),
    )


def _missed(objectives: Iterable[Objective]) -> list[Objective]:
    """Return the missed objectives, failures first, each group in the order of the checks."""
    return sorted((o for o in objectives if not o.ok), key=lambda o: o.word is not Word.FAIL)
