"""Shared by the tests of the verdict: a store written, gathered and judged in one call, and one healthy eventful run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from soak.model import CertificateRecord, SightKind, SightVia
from soak.plan import ObjectivesPlan
from soak.store import StoreReader
from soak.verdict import Objective, Verdict, judge_run
from tests.soak.synthetic import SyntheticRun, record

Verdicts = Callable[..., Verdict]


def judged(
    run: SyntheticRun, path: Path, objectives: ObjectivesPlan | None = None, *, live: bool = False
) -> Verdict:
    """Write a run, unless it already is, and judge it from its store."""
    if not path.exists():
        run.write(path)
    with StoreReader(path) as r:
        return judge_run(r, objectives, live=live)[1]


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
