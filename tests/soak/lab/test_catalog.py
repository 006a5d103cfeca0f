"""Labs by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from soak.errors import PlanError
from soak.lab.catalog import LABS, lab_of
from soak.lab.local import LocalLab
from soak.labplan import LabPlan
from soak.plan import Plan
from soak.rundir import RunDir


def test_the_lab_of_the_default_plan_is_local(tmp_path: Path):
    """Made, not started: it has addresses, and no file is written."""
    lab = lab_of(RunDir(tmp_path), Plan(), on_event=lambda _name, _data: None)
    assert isinstance(lab, LocalLab)
    assert ["b1", "b2", "b3"] == [address.name for address in lab.backend_addresses]
    assert [] == list(tmp_path.iterdir())


def test_an_unknown_lab_is_answered_with_the_nearest_name(tmp_path: Path):
    """A plan that was built around validation is refused here."""
    unchecked: dict[str, Any] = {"kind": "locl", "backends": 3}
    plan = Plan.model_construct(**{**dict(Plan()), "lab": LabPlan.model_construct(**unchecked)})
    with pytest.raises(PlanError, match="no lab 'locl'; did you mean 'local'"):
        lab_of(RunDir(tmp_path), plan, on_event=lambda _name, _data: None)


def test_every_listed_lab_can_be_planned():
    """The names here are the names that a plan accepts."""
    assert list(LABS) == list(get_args(LabPlan.model_fields["kind"].annotation))
