"""A fixture that judges a synthetic run through a real store."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.plan import ObjectivesPlan
from soak.verdict import Verdict
from tests.soak.synthetic import SyntheticRun
from tests.soak.verdict.runs import Verdicts, judged


@pytest.fixture
def verdict(tmp_path: Path) -> Verdicts:
    def of(run: SyntheticRun, objectives: ObjectivesPlan | None = None, *, live: bool = False) -> Verdict:
        return judged(run, tmp_path / "run.db", objectives, live=live)

    return of
