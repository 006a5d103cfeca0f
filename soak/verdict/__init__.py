"""The verdict: pure judgements over what the store holds. Reads nothing else, so any run can be judged again."""

from soak.verdict.facts import RunFacts, gather
from soak.verdict.judge import Verdict, judge, judge_run
from soak.verdict.objectives import NotJudged, Objective, Word
from soak.verdict.recovery import RecoveryTracker, TrafficRecovery

__all__ = [
    "NotJudged",
    "Objective",
    "RecoveryTracker",
    "RunFacts",
    "TrafficRecovery",
    "Verdict",
    "Word",
    "gather",
    "judge",
    "judge_run",
]
